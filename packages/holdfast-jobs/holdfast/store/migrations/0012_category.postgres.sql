-- Two more roles. Audit enrichment reads what its tenant may read and writes audit tables only. A
-- login of handlers has the privileges of both and cannot choose its tenant: see
-- holdfast.current_tenant().
DO $$
DECLARE
    role_name text;
    member_name text;
    statement text;
    missing text[] := '{}';
BEGIN
    FOREACH role_name IN ARRAY ARRAY['holdfast_auditor', 'holdfast_handler'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role_name) THEN
            missing := missing || format('CREATE ROLE %I NOLOGIN;', role_name);
        END IF;
    END LOOP;
    FOR role_name, member_name IN VALUES
        ('holdfast_auditor', 'holdfast_engine'), ('holdfast_auditor', 'holdfast_handler'),
        ('holdfast_tenant', 'holdfast_handler')
    LOOP
        IF NOT EXISTS (
            SELECT FROM pg_roles AS member, pg_roles AS granted
            WHERE member.rolname = member_name AND granted.rolname = role_name
              AND pg_has_role(member.oid, granted.oid, 'USAGE'))
        THEN
            missing := missing || format('GRANT %I TO %I;', role_name, member_name);
        END IF;
    END LOOP;
    FOREACH statement IN ARRAY missing LOOP
        -- Another database of the server may have done the same just now.
        BEGIN
            EXECUTE statement;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
        END;
    END LOOP;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE EXCEPTION 'The roles holdfast_auditor and holdfast_handler are missing or incomplete, and % may not create them.', current_user
        USING HINT = 'As an administrator: ' || array_to_string(missing, ' ');
END $$;

ALTER TABLE holdfast.audit_note ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.audit_note FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_serves_all ON holdfast.audit_note TO holdfast_engine
    USING (true) WITH CHECK (true);
CREATE POLICY tenant_sees_itself ON holdfast.audit_note TO holdfast_tenant
    USING (org_id = (SELECT holdfast.current_tenant()))
    WITH CHECK (org_id = (SELECT holdfast.current_tenant()));
CREATE POLICY auditor_notes_for_itself ON holdfast.audit_note FOR INSERT TO holdfast_auditor
    WITH CHECK (org_id = (SELECT holdfast.current_tenant()));

GRANT SELECT, INSERT, UPDATE ON holdfast.category TO holdfast_engine;
GRANT SELECT ON holdfast.category TO holdfast_tenant;
GRANT SELECT, INSERT ON holdfast.audit_note TO holdfast_engine;
GRANT SELECT ON holdfast.audit_note TO holdfast_tenant;
GRANT INSERT ON holdfast.audit_note TO holdfast_auditor;

-- Everything that a tenant may read, for its own rows only.
GRANT USAGE ON SCHEMA holdfast TO holdfast_auditor;
DO $$
DECLARE
    readable text;
BEGIN
    FOR readable IN
        SELECT relname FROM pg_class
        WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p', 'v')
          AND has_table_privilege('holdfast_tenant', oid, 'SELECT')
    LOOP
        EXECUTE format('GRANT SELECT ON holdfast.%I TO holdfast_auditor', readable);
    END LOOP;
    FOR readable IN
        SELECT tablename FROM pg_policies
        WHERE schemaname = 'holdfast' AND policyname = 'tenant_sees_itself'
          -- Only the engine and holdfast.current_tenant() read the bindings.
          AND tablename <> 'handler_transaction'
    LOOP
        EXECUTE format(
            'CREATE POLICY auditor_sees_itself ON holdfast.%I FOR SELECT TO holdfast_auditor'
            ' USING (org_id = (SELECT holdfast.current_tenant()))',
            readable);
    END LOOP;
END $$;

CREATE FUNCTION holdfast.check_audit_note() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM (
            SELECT event.id, event.events FROM holdfast.audit_event AS event
            WHERE event.org_id = NEW.org_id AND event.id >= NEW.event_id
            ORDER BY event.id LIMIT 1) AS found
        WHERE found.id - found.events < NEW.event_id
    ) THEN
        RAISE EXCEPTION USING MESSAGE = 'a note must refer to an event of its tenant',
            ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER audit_note_stays_in_its_tenant BEFORE INSERT ON holdfast.audit_note
    FOR EACH ROW EXECUTE FUNCTION holdfast.check_audit_note();
CREATE TRIGGER audit_note_never_truncated BEFORE TRUNCATE ON holdfast.audit_note
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse('the audit is append-only');

-- Whether a queue is full. SECURITY DEFINER, because a tenant sees only its own jobs; it does not
-- return a count.
CREATE FUNCTION holdfast.is_full(queue text, jobs bigint DEFAULT 1) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM holdfast.queue AS rules
        WHERE rules.name = is_full.queue AND rules.max_depth IS NOT NULL
          AND rules.max_depth < is_full.jobs
            + (SELECT count(*) FROM (
                SELECT FROM holdfast.job_ready AS job WHERE job.queue = is_full.queue
                LIMIT rules.max_depth) AS ready)
            + (SELECT count(*) FROM (
                SELECT FROM holdfast.job_waiting AS job WHERE job.queue = is_full.queue
                LIMIT rules.max_depth) AS waiting))
$$;

-- A requested job: the columns that job.sql inserts, and the length of its payload text.
CREATE TYPE holdfast.job_request AS (
    place bigint,
    id uuid,
    org_id uuid,
    project_id uuid,
    job_type text,
    category text,
    actor_type text,
    actor_id text,
    request_id text,
    correlation_id text,
    idempotency_key text,
    payload jsonb,
    payload_bytes integer,
    payload_hash text,
    priority integer,
    unit_key text,
    limit_key text,
    turn uuid,
    scheduled_for timestamptz,
    traceparent text,
    routing_decision jsonb,
    replay_of uuid,
    origin_queue text,
    queue text,
    stage text,
    pipeline_version text,
    max_attempts integer,
    not_before_at timestamptz
);

-- The problem of the first invalid request, beginning with the field name; NULL if all are valid.
-- The rules of request.py, for callers that are not trusted.
CREATE FUNCTION holdfast.find_fault(requests holdfast.job_request[], stamp timestamptz)
RETURNS text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    fault text;
BEGIN
    SELECT coalesce(rule.broken, texts.broken, document.broken) INTO fault
    FROM unnest(requests) AS request
    LEFT JOIN holdfast.category AS kind ON kind.name = request.category
    LEFT JOIN holdfast.queue AS first_queue ON first_queue.name = request.queue
    LEFT JOIN holdfast.queue AS last_queue ON last_queue.name = request.origin_queue
    CROSS JOIN LATERAL (SELECT
        request.job_type || ':' || request.org_id::text || ':'
            || coalesce(request.project_id::text, '') || ':' AS key_scope,
        coalesce(request.scheduled_for, request.not_before_at) AS due,
        CASE WHEN first_queue.name IS NULL OR first_queue.name = 'q:deadletter'
             THEN request.queue ELSE request.origin_queue END AS odd_queue,
        length(request.payload::text) AS size) AS made
    CROSS JOIN LATERAL (SELECT CASE
        WHEN request.job_type IS NULL OR length(request.job_type) > 100
            OR request.job_type !~ '^[a-z][a-z0-9_]*(\.[a-z0-9_]+)*$'
            THEN 'job_type must be lower-case words joined by dots, at most 100 characters'
        WHEN request.org_id IS NULL THEN 'org_id is required'
        WHEN request.payload IS NULL OR jsonb_typeof(request.payload) <> 'object'
            THEN 'payload must be a JSON object'
        WHEN request.payload_bytes > 262144
            THEN 'payload is larger than 256 KiB; store it and pass a reference'
        WHEN kind.name IS NULL THEN 'category is not one of '
            || (SELECT string_agg(known.name, ', ' ORDER BY known.name) FROM holdfast.category AS known)
        WHEN made.odd_queue IS NULL OR made.odd_queue !~ '^q:[a-z][a-z0-9_-]{0,49}$'
            THEN 'queue must look like q:default'
        WHEN made.odd_queue = 'q:deadletter'
            THEN 'queue must not be q:deadletter; only a dead job goes there'
        WHEN first_queue.name IS NULL OR last_queue.name IS NULL THEN 'queue ' || made.odd_queue
            || ' is not registered; declare it in the application and start a worker'
        WHEN request.priority IS NULL OR request.priority NOT IN (0, 10, 20, 30)
            THEN 'priority must be critical, high, normal or low'
        WHEN request.actor_type IS NULL OR request.actor_type NOT IN ('user', 'system', 'api_key')
            THEN 'actor_type must be user, system or api_key'
        WHEN request.actor_id IS NULL THEN 'actor_id is required'
        WHEN request.max_attempts IS NULL OR request.max_attempts NOT BETWEEN 1 AND 100
            THEN 'max_attempts must be from 1 to 100'
        WHEN made.due NOT BETWEEN stamp - interval '1830 days' AND stamp + interval '1830 days'
            THEN CASE WHEN request.scheduled_for IS NULL THEN 'not_before_at' ELSE 'scheduled_for' END
                || ' is more than five years away'
        WHEN request.scheduled_for IS NOT NULL AND kind.duty NOT IN ('maintenance', 'notification')
            THEN 'scheduled_for is only for maintenance jobs and delayed notifications'
        WHEN request.traceparent !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'
            THEN 'traceparent must be a W3C traceparent'
        WHEN request.replay_of IS NOT NULL
            THEN 'replay_of is for operators: holdfast dead-letters replay'
        WHEN request.limit_key IS NULL OR request.limit_key !~ '^[a-z0-9._:/-]{0,100}$'
            AND NOT (request.limit_key = '~batch'
                     AND coalesce(request.routing_decision ->> 'execution_mode', '') = 'batch')
            THEN 'limit_key must be 1 to 100 of the characters a-z, 0-9, ., _, :, / and -'
        WHEN jsonb_typeof(request.routing_decision) <> 'object'
            OR length(request.routing_decision::text) > 16384
            THEN 'routing_decision must be a JSON object of at most 16 KiB'
        WHEN request.routing_decision ? 'command' AND kind.duty <> 'planning'
            THEN 'command is only for planning jobs'
        WHEN request.idempotency_key ~ '[\u0001-\u001f\u007f]'
            THEN 'idempotency_key must not contain control characters'
        WHEN request.idempotency_key IS NULL OR length(request.idempotency_key) > 500
            OR NOT starts_with(request.idempotency_key, made.key_scope)
            OR request.idempotency_key = made.key_scope
            THEN 'idempotency_key was made for another tenant, project or job type'
    END AS broken) AS rule
    CROSS JOIN LATERAL (
        SELECT min(given.name || CASE
            WHEN length(given.value) NOT BETWEEN 1 AND 200
                THEN ' must be text of 1 to 200 characters'
            WHEN given.value ~ '[\u0001-\u001f\u007f]' THEN ' must not contain control characters'
        END) AS broken
        FROM (VALUES ('actor_id', request.actor_id), ('request_id', request.request_id),
                     ('correlation_id', request.correlation_id), ('unit_key', request.unit_key),
                     ('command', request.routing_decision ->> 'command'),
                     ('pipeline_version', nullif(request.pipeline_version, '')))
            AS given (name, value)) AS texts
    -- The limits of document.py, beyond which a document cannot be read again. A short text is
    -- beyond none of them.
    CROSS JOIN LATERAL (SELECT CASE
        WHEN rule.broken IS NOT NULL THEN NULL
        WHEN made.size > 64 AND jsonb_path_exists(request.payload, 'strict $.**{32 to last}')
            THEN 'payload is nested deeper than 32 levels'
        WHEN made.size > 300 AND jsonb_path_exists(request.payload,
                'strict $.** ? (@.type() == "number" && (@ >= 1e308 || @ <= -1e308))')
            THEN 'payload has a number of over 308 digits'
        WHEN made.size > 10000
            AND (SELECT count(*) FROM jsonb_path_query(request.payload, 'strict $.**')) > 10000
            THEN 'payload has more than 10000 values'
        WHEN holdfast.carries_secret(request.payload)
            THEN 'payload carries something shaped like a secret; pass a reference to it'
        WHEN jsonb_path_exists(request.routing_decision, 'strict $.**{32 to last}')
            THEN 'routing_decision is nested deeper than 32 levels'
        WHEN holdfast.carries_secret(request.routing_decision)
            THEN 'routing_decision carries something shaped like a secret'
    END AS broken) AS document
    WHERE coalesce(rule.broken, texts.broken, document.broken) IS NOT NULL
    ORDER BY request.place
    LIMIT 1;
    RETURN fault;
END $$;

-- The key of a job that was enqueued without one. It is not stored.
CREATE FUNCTION holdfast.own_key(job_type text, org_id uuid, project_id uuid, id uuid) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT job_type || ':' || org_id::text || ':' || coalesce(project_id::text, '') || ':'
        || replace(id::text, '-', '')
$$;

-- The job of an idempotency key.
CREATE FUNCTION holdfast.find_key(org_id uuid, idempotency_key text) RETURNS uuid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(
        (SELECT job.id FROM holdfast.job_envelope AS job
         WHERE job.org_id = find_key.org_id AND job.idempotency_key = find_key.idempotency_key),
        (SELECT job.id FROM holdfast.job_envelope AS job
         WHERE job.org_id = find_key.org_id AND job.idempotency_key IS NULL
           AND job.id = CASE WHEN right(find_key.idempotency_key, 33) ~ '^:[0-9a-f]{32}$'
                             THEN right(find_key.idempotency_key, 32)::uuid END
           AND find_key.idempotency_key
               = holdfast.own_key(job.job_type, job.org_id, job.project_id, job.id)))
$$;

-- Whether a key is that of a job that was enqueued without one.
CREATE FUNCTION holdfast.has_own_key(org_id uuid, idempotency_key text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT right(has_own_key.idempotency_key, 33) ~ '^:[0-9a-f]{32}$' AND EXISTS (
        SELECT FROM holdfast.job_envelope AS job
        WHERE job.org_id = has_own_key.org_id AND job.idempotency_key IS NULL
          AND job.id = right(has_own_key.idempotency_key, 32)::uuid)
$$;

-- Write requests as job.sql does: an existing key returns its job, and if one
-- queue is full nothing is written. The outcome of each is created, duplicate, differs (its key
-- belongs to a job with another payload), full, or busy (the job of its key was just pruned). The
-- index is used regardless of the statistics at planning time. A tenant chooses ids, so it could give
-- the key of a job that it enqueues later without one: its keys are stored, so that the unique index
-- finds both.
CREATE FUNCTION holdfast.insert_requests(
    requests holdfast.job_request[],
    stamp timestamptz
) RETURNS TABLE (
    place bigint, id uuid, org_id uuid, job_type text, idempotency_key text, created_at timestamptz,
    outcome text
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    is_engine boolean := holdfast.is_engine();
    is_full boolean;
    created uuid[];
BEGIN
    SELECT coalesce(bool_or(
        (rules.max_depth IS NOT NULL AND holdfast.is_full(asked.queue, asked.of_queue))
        OR (rules.max_depth_per_tenant IS NOT NULL
            AND rules.max_depth_per_tenant < asked.of_tenant + (
                SELECT count(*) FROM holdfast.job_ready AS job
                WHERE job.queue = asked.queue AND job.org_id = asked.org_id) + (
                SELECT count(*) FROM holdfast.job_waiting AS job
                WHERE job.queue = asked.queue AND job.org_id = asked.org_id))), false)
    INTO is_full
    FROM (
        SELECT request.queue, request.org_id, count(*) AS of_tenant,
               (sum(count(*)) OVER (PARTITION BY request.queue))::bigint AS of_queue
        FROM unnest(requests) AS request
        GROUP BY request.queue, request.org_id) AS asked
    JOIN holdfast.queue AS rules ON rules.name = asked.queue
    WHERE rules.max_depth IS NOT NULL OR rules.max_depth_per_tenant IS NOT NULL;

    WITH made AS (
        INSERT INTO holdfast.job_envelope AS job
            (id, org_id, project_id, job_type, category, actor_type, actor_id, request_id,
             correlation_id, idempotency_key, payload, payload_hash, priority, unit_key, limit_key,
             turn, scheduled_for, traceparent, routing_decision, replay_of, origin_queue, queue,
             stage, pipeline_version, max_attempts, not_before_at, created_at)
        SELECT request.id, request.org_id, request.project_id, request.job_type, request.category,
               request.actor_type, request.actor_id, request.request_id, request.correlation_id,
               CASE WHEN is_engine THEN nullif(request.idempotency_key, holdfast.own_key(
                   request.job_type, request.org_id, request.project_id, request.id))
                    ELSE request.idempotency_key END,
               request.payload, request.payload_hash, request.priority,
               request.unit_key, request.limit_key, nullif(request.turn, request.id),
               request.scheduled_for, request.traceparent, request.routing_decision,
               request.replay_of, request.origin_queue,
               nullif(request.queue, request.origin_queue), request.stage,
               request.pipeline_version, request.max_attempts, request.not_before_at, stamp
        FROM unnest(requests) AS request
        WHERE NOT is_full AND NOT holdfast.has_own_key(request.org_id, request.idempotency_key)
        ORDER BY request.place
        ON CONFLICT (org_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
        RETURNING job.id)
    SELECT coalesce(array_agg(made.id), '{}') INTO created FROM made;

    IF cardinality(created) = cardinality(requests) THEN
        RETURN QUERY
        SELECT request.place, request.id, request.org_id, request.job_type,
               request.idempotency_key, stamp, 'created'
        FROM unnest(requests) AS request;
        RETURN;
    END IF;

    RETURN QUERY
    WITH missing AS (
        SELECT request.* FROM unnest(requests) AS request
        WHERE NOT EXISTS (SELECT FROM unnest(created) AS made (id) WHERE made.id = request.id)
    ),
    originals AS (
        SELECT record.* FROM missing
        CROSS JOIN LATERAL (
            SELECT missing.place, missing.payload_hash AS asked_hash, missing.request_id AS asked_by,
                   missing.id AS asked_id, job.id, job.org_id, job.project_id, job.job_type,
                   job.request_id, job.correlation_id, job.attempt_count, job.created_at,
                   job.payload IS DISTINCT FROM missing.payload AS differs
            FROM holdfast.job AS job
            WHERE job.org_id = missing.org_id
              AND job.id = holdfast.find_key(missing.org_id, missing.idempotency_key)) AS record
    ),
    seen AS (
        INSERT INTO holdfast.job_key_seen AS mine (org_id, job_id, last_seen_at)
        SELECT job.org_id, job.id, stamp
        FROM (SELECT DISTINCT original.org_id, original.id FROM originals AS original) AS asked
        JOIN holdfast.job_envelope AS job ON job.org_id = asked.org_id AND job.id = asked.id
        FOR KEY SHARE OF job
        ON CONFLICT (org_id, job_id) DO UPDATE SET last_seen_at = excluded.last_seen_at
        RETURNING mine.job_id
    ),
    noted AS (
        INSERT INTO holdfast.audit_event
            (org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
             correlation_id, at, detail)
        SELECT original.org_id, original.project_id, original.id, original.job_type,
               'job.duplicate_differs', original.attempt_count + 1, 'system', 'holdfast',
               original.request_id, original.correlation_id, stamp,
               jsonb_build_object('payload_hash', original.asked_hash, 'request_id',
                                  coalesce(original.asked_by, original.asked_id::text))
        FROM originals AS original
        -- The transaction has its number before an event is written: sealing relies on that.
        WHERE original.differs AND pg_current_xact_id() IS NOT NULL
    )
    SELECT request.place, coalesce(original.id, request.id), request.org_id, request.job_type,
           request.idempotency_key, coalesce(original.created_at, stamp),
           CASE WHEN missing.place IS NULL THEN 'created'
                WHEN seen.job_id IS NULL THEN CASE WHEN is_full THEN 'full' ELSE 'busy' END
                WHEN original.differs THEN 'differs' ELSE 'duplicate' END
    FROM unnest(requests) AS request
    LEFT JOIN missing ON missing.place = request.place
    LEFT JOIN originals AS original ON original.place = request.place
    LEFT JOIN seen ON seen.job_id = original.id;
END $$;

-- A worker holds the jobs of several tenants at once and finds what it loaded for each by the id of
-- the job. So no two tenants may have jobs with the same id. Ids are random; this index is for the
-- ids that tenants choose. It costs an enqueue 75 bytes of WAL and less than a microsecond.
CREATE UNIQUE INDEX job_once_per_id ON holdfast.job_envelope (id);

-- The requests of a tenant, with every column overwritten that a caller could forge. An id is kept
-- if it was made just now and no tenant has used it: an outbox names the job that delivers a message.
-- The worker sets the first stage, because it knows the pipeline.
CREATE FUNCTION holdfast.confine_requests(
    requests holdfast.job_request[], tenant uuid, stamp timestamptz
) RETURNS holdfast.job_request[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    confined holdfast.job_request[];
BEGIN
    IF tenant IS NULL OR EXISTS (
        SELECT FROM unnest(requests) AS request WHERE request.org_id IS DISTINCT FROM tenant)
    THEN
        RAISE EXCEPTION 'row-level security: org_id is not the tenant of this transaction'
            USING ERRCODE = 'insufficient_privilege',
                  HINT = 'SET LOCAL holdfast.org_id to the tenant, and pass the same org_id.';
    END IF;
    SELECT array_agg(ROW(
        request.place, made.id, request.org_id, request.project_id, request.job_type,
        request.category, request.actor_type, request.actor_id, request.request_id,
        request.correlation_id,
        CASE WHEN request.unit_key IS NULL THEN request.idempotency_key
             ELSE request.job_type || ':' || request.org_id::text || ':'
                 || coalesce(request.project_id::text, '') || ':' || left(encode(sha256(
                     convert_to(E'unit\n' || request.unit_key, 'UTF8')), 'hex'), 32) END,
        request.payload, request.payload_bytes, request.payload_hash, request.priority,
        request.unit_key, request.limit_key,
        -- No tenant chooses a turn: two jobs with one turn would stop the promotion of all. A turn
        -- that equals the id has version 8, so no other job has it; a shifted one is random. A step
        -- of priority is worth a second to 30 days: ageing_seconds.
        CASE WHEN request.priority = 20 AND made.id = request.id
            THEN overlay(made.id::text PLACING '8' FROM 15)::uuid
            WHEN request.priority = 20 THEN made.id
            ELSE overlay(holdfast.new_id(stamp)::text PLACING left(
                holdfast.shift_id(made.id, sign(request.priority - 20)::bigint * least(greatest(
                    abs(holdfast.ms_of(request.turn) - holdfast.ms_of(request.id)),
                    1000 * abs(request.priority - 20) / 10),
                    259200000::bigint * abs(request.priority - 20)))::text, 13) FROM 1)::uuid END,
        request.scheduled_for, request.traceparent, request.routing_decision, request.replay_of,
        CASE WHEN request.scheduled_for IS NULL THEN request.queue
             WHEN kind.duty = 'maintenance' THEN 'q:maintenance' ELSE request.origin_queue END,
        CASE WHEN request.scheduled_for IS NULL THEN request.queue ELSE 'q:maintenance' END,
        '', request.pipeline_version, request.max_attempts,
        coalesce(request.scheduled_for, request.not_before_at))::holdfast.job_request
        ORDER BY request.place)
    INTO confined
    FROM unnest(requests) AS request
    LEFT JOIN holdfast.category AS kind ON kind.name = request.category
    CROSS JOIN LATERAL (
        SELECT CASE WHEN request.id::text ~ '^.{14}7.{4}[89ab]'
                AND abs(holdfast.ms_of(request.id) - extract(epoch FROM stamp) * 1000) < 300000
                AND NOT EXISTS (
                    SELECT FROM holdfast.job_envelope AS job WHERE job.id = request.id)
                AND NOT EXISTS (
                    SELECT FROM holdfast.job_remainder AS gone
                    WHERE gone.org_id = request.org_id AND gone.job_id = request.id)
                AND NOT EXISTS (
                    SELECT FROM holdfast.audit_event AS event
                    WHERE event.job_id = request.id AND event.jobs IS NULL)
            THEN request.id ELSE holdfast.new_id(stamp) END AS id) AS made;
    RETURN confined;
END $$;

-- Enqueues any number of jobs, for callers with the engine's or a tenant's privileges: conn= in
-- Python. The parameters are those of insert_jobs in job.sql. An engine is trusted. For a tenant,
-- columns that it may not choose are overwritten, and the others are checked. One job takes 1.0 ms
-- for an engine, as the plain insert does, and 1.8 for a tenant; planned anew in each call it took
-- 3.7.
CREATE FUNCTION holdfast.enqueue_jobs(jobs json, frames json, now timestamptz DEFAULT NULL)
RETURNS TABLE (
    place bigint, id uuid, org_id uuid, job_type text, idempotency_key text, created_at timestamptz,
    outcome text
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    is_engine boolean := holdfast.is_engine();
    tenant uuid := holdfast.current_tenant();
    stamp timestamptz := statement_timestamp();
    requests holdfast.job_request[];
    fault text;
BEGIN
    IF is_engine AND enqueue_jobs.now IS NOT NULL THEN
        stamp := enqueue_jobs.now;
    END IF;
    SELECT array_agg(ROW(
        job.place, job.id, frame.org_id, frame.project_id, frame.job_type, frame.category,
        frame.actor_type, frame.actor_id, frame.request_id, frame.correlation_id,
        coalesce(job.idempotency_key, holdfast.own_key(
            frame.job_type, frame.org_id, frame.project_id, job.id)),
        job.payload::jsonb, octet_length(job.payload),
        left(encode(sha256(convert_to(job.payload, 'UTF8')), 'hex'), 32),
        frame.priority, job.unit_key, frame.limit_key, coalesce(job.turn, job.id),
        frame.scheduled_for, frame.traceparent, frame.routing_decision::jsonb, frame.replay_of,
        frame.origin_queue, frame.queue, frame.stage, frame.pipeline_version, frame.max_attempts,
        frame.not_before_at)::holdfast.job_request ORDER BY job.place)
    INTO requests
    FROM ROWS FROM (json_to_recordset(jobs) AS (
        frame integer, id uuid, idempotency_key text, payload text, unit_key text, turn uuid))
        WITH ORDINALITY AS job (frame, id, idempotency_key, payload, unit_key, turn, place)
    JOIN json_to_recordset(frames) AS frame (
        frame integer, org_id uuid, project_id uuid, job_type text, category text, actor_type text,
        actor_id text, request_id text, correlation_id text, priority integer, limit_key text,
        scheduled_for timestamptz, traceparent text, routing_decision text, replay_of uuid,
        origin_queue text, queue text, stage text, pipeline_version text, max_attempts integer,
        not_before_at timestamptz)
      ON frame.frame = job.frame;
    IF coalesce(cardinality(requests), 0) <> json_array_length(jobs) THEN
        RAISE EXCEPTION 'frame: each job must reference one set of shared columns'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NOT is_engine THEN
        requests := holdfast.confine_requests(requests, tenant, stamp);
        fault := holdfast.find_fault(requests, stamp);
        IF fault IS NOT NULL THEN
            RAISE EXCEPTION '%', fault USING ERRCODE = 'invalid_parameter_value';
        END IF;
    END IF;
    RETURN QUERY SELECT * FROM holdfast.insert_requests(requests, stamp);
END $$;

-- Enqueue from any language, inside the caller's own transaction:
--
--     SELECT * FROM holdfast.enqueue('report.export', '{"project": 7}', 'ORG-UUID',
--                                    idempotency_key => 'export-7-2026-11');
--
-- The same rules as the Python call: one job per key, the original is returned with created =
-- false. The tables decide the routing: a category's queue and budget, whether the queue is
-- registered and not full.
CREATE FUNCTION holdfast.enqueue(
    job_type text,
    payload jsonb,
    org_id uuid,
    project_id uuid DEFAULT NULL,
    idempotency_key text DEFAULT NULL,
    category text DEFAULT 'general',
    queue text DEFAULT NULL,
    priority text DEFAULT 'normal',
    actor_type text DEFAULT 'system',
    actor_id text DEFAULT 'sql',
    request_id text DEFAULT NULL,
    correlation_id text DEFAULT NULL,
    max_attempts integer DEFAULT NULL,
    not_before_at timestamptz DEFAULT NULL,
    traceparent text DEFAULT NULL,
    limit_key text DEFAULT NULL,
    command text DEFAULT NULL,
    OUT job_id uuid,
    OUT created boolean
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_variable
DECLARE
    stamp timestamptz := statement_timestamp();
    scope text := enqueue.job_type || ':' || enqueue.org_id::text || ':'
        || coalesce(enqueue.project_id::text, '') || ':';
    kind holdfast.category;
    request holdfast.job_request;
    fault text;
    answer text;
BEGIN
    SELECT * INTO kind FROM holdfast.category AS known WHERE known.name = enqueue.category;
    request.place := 1;
    request.id := holdfast.new_id(stamp);
    request.org_id := enqueue.org_id;
    request.project_id := enqueue.project_id;
    request.job_type := enqueue.job_type;
    request.category := enqueue.category;
    request.actor_type := enqueue.actor_type;
    request.actor_id := enqueue.actor_id;
    request.request_id := enqueue.request_id;
    request.correlation_id := enqueue.correlation_id;
    request.payload := enqueue.payload;
    request.payload_bytes := octet_length(enqueue.payload::text);
    -- Of the text that is stored: it is no hash of the text that Python would have made.
    request.payload_hash :=
        'jsonb:' || left(encode(sha256(convert_to(enqueue.payload::text, 'UTF8')), 'hex'), 32);
    request.priority := CASE lower(enqueue.priority)
        WHEN 'critical' THEN 0 WHEN 'high' THEN 10 WHEN 'normal' THEN 20 WHEN 'low' THEN 30 END;
    request.limit_key := coalesce(enqueue.limit_key, '');
    -- A step of priority is worth an hour.
    request.turn := holdfast.shift_id(request.id, (request.priority - 20) * 360000);
    request.traceparent := enqueue.traceparent;
    request.routing_decision := CASE WHEN enqueue.command IS NOT NULL
        THEN jsonb_build_object('command', enqueue.command) END;
    request.queue := coalesce(enqueue.queue, kind.queue);
    request.origin_queue := request.queue;
    request.stage := '';
    request.pipeline_version := '';
    request.max_attempts := coalesce(enqueue.max_attempts, kind.max_attempts);
    request.not_before_at := enqueue.not_before_at;
    request.idempotency_key := CASE
        WHEN enqueue.idempotency_key IS NULL THEN scope || replace(request.id::text, '-', '')
        WHEN starts_with(enqueue.idempotency_key, scope) AND enqueue.idempotency_key <> scope
            -- A key in the full form of another scope is refused as it is.
            OR enqueue.idempotency_key ~ '^[a-z][a-z0-9_.]*:[0-9a-f-]{36}:([0-9a-f-]{36})?:.'
            THEN enqueue.idempotency_key
        ELSE scope || left(encode(sha256(convert_to(enqueue.idempotency_key, 'UTF8')), 'hex'), 32)
    END;
    -- Said here, because they are gone from the request.
    fault := CASE
        WHEN enqueue.limit_key = '' THEN 'limit_key must not be empty'
        WHEN length(enqueue.idempotency_key) NOT BETWEEN 1 AND 500
            THEN 'idempotency_key must be text of 1 to 500 characters'
        WHEN enqueue.idempotency_key ~ '[\u0001-\u001f\u007f]'
            THEN 'idempotency_key must not contain control characters'
    END;
    fault := coalesce(fault, holdfast.find_fault(ARRAY[request], stamp));
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION '%', fault USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NOT holdfast.is_engine() THEN
        request := (holdfast.confine_requests(
            ARRAY[request], holdfast.current_tenant(), stamp))[1];
    END IF;
    SELECT answered.id, answered.outcome INTO job_id, answer
    FROM holdfast.insert_requests(ARRAY[request], stamp) AS answered;
    created := answer = 'created';
    IF answer = 'full' THEN
        RAISE EXCEPTION 'queue % is full; try again later', request.queue
            USING ERRCODE = 'configuration_limit_exceeded';
    ELSIF answer = 'busy' THEN
        RAISE EXCEPTION 'the original of a duplicate job was pruned concurrently; try again'
            USING ERRCODE = 'serialization_failure';
    END IF;
END $$;

-- Wake the workers of a queue at once instead of at their next poll. Call it after the commit of
-- the transaction that enqueued, in a separate statement: NOTIFY takes a lock on the whole database
-- when its transaction commits, so holdfast.enqueue does not notify.
CREATE FUNCTION holdfast.wake(queue text) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_notify('holdfast:' || wake.queue, '')
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA holdfast FROM PUBLIC;
GRANT EXECUTE ON FUNCTION holdfast.own_key, holdfast.find_key TO holdfast_engine, holdfast_tenant;
GRANT EXECUTE ON FUNCTION holdfast.is_full, holdfast.enqueue, holdfast.enqueue_jobs, holdfast.wake
    TO holdfast_engine, holdfast_tenant;
GRANT SELECT ON holdfast.lease_extension TO holdfast_auditor;
GRANT EXECUTE ON FUNCTION holdfast.current_tenant TO holdfast_auditor, holdfast_handler;

-- The engine's own statements in a handler's transaction: the fence, a checkpoint, an artifact.
-- They must commit with the handler's rows, so they run on the handler's login. Only a caller that
-- presents the secret of this transaction may run one; the engine sends it as a parameter, which no
-- other statement can read. The functions belong to holdfast_engine and have exactly its
-- privileges. They fix the settings that a handler could have changed to alter the meaning of a
-- statement.
CREATE FUNCTION holdfast.check_secret(secret text) RETURNS void
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET row_security = on AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM holdfast.handler_transaction AS bound
        WHERE bound.xid = pg_current_xact_id_if_assigned()::text::bigint
          AND bound.server_started_at = pg_postmaster_start_time()
          AND bound.secret_hash = sha256(convert_to(check_secret.secret, 'UTF8')))
    THEN
        RAISE EXCEPTION 'this transaction is not bound to a tenant, or the secret is not its own'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
END $$;

CREATE FUNCTION holdfast.fetch_as_engine(secret text, statement text) RETURNS SETOF record
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET row_security = on SET standard_conforming_strings = on SET transform_null_equals = off AS $$
BEGIN
    PERFORM holdfast.check_secret(secret);
    RETURN QUERY EXECUTE statement;
END $$;

CREATE FUNCTION holdfast.run_as_engine(secret text, statement text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET row_security = on SET standard_conforming_strings = on SET transform_null_equals = off AS $$
DECLARE
    touched bigint;
BEGIN
    PERFORM holdfast.check_secret(secret);
    EXECUTE statement;
    GET DIAGNOSTICS touched = ROW_COUNT;
    RETURN touched;
END $$;

REVOKE ALL ON FUNCTION holdfast.check_secret, holdfast.fetch_as_engine, holdfast.run_as_engine
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION holdfast.fetch_as_engine, holdfast.run_as_engine TO holdfast_handler;
GRANT USAGE ON SCHEMA holdfast TO holdfast_handler;
-- A new owner needs CREATE on the schema during the change.
GRANT CREATE ON SCHEMA holdfast TO holdfast_engine;
ALTER FUNCTION holdfast.check_secret OWNER TO holdfast_engine;
ALTER FUNCTION holdfast.fetch_as_engine OWNER TO holdfast_engine;
ALTER FUNCTION holdfast.run_as_engine OWNER TO holdfast_engine;
REVOKE CREATE ON SCHEMA holdfast FROM holdfast_engine;
