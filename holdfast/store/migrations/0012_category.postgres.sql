-- A third role: audit enrichment reads what its tenant may read and writes audit tables only.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'holdfast_auditor') THEN
        BEGIN
            CREATE ROLE holdfast_auditor NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
        END;
    END IF;
    IF NOT pg_has_role('holdfast_engine', 'holdfast_auditor', 'USAGE') THEN
        BEGIN
            GRANT holdfast_auditor TO holdfast_engine;
        EXCEPTION WHEN unique_violation THEN NULL;
        END;
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE EXCEPTION 'The role holdfast_auditor is not ready, and % may not make it so.', current_user
        USING HINT = 'As an administrator: CREATE ROLE holdfast_auditor NOLOGIN;'
            ' GRANT holdfast_auditor TO holdfast_engine;';
END $$;

ALTER TABLE holdfast.audit_note ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.audit_note FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_serves_all ON holdfast.audit_note TO holdfast_engine
    USING (true) WITH CHECK (true);
CREATE POLICY tenant_sees_itself ON holdfast.audit_note TO holdfast_tenant
    USING (org_id = nullif(current_setting('holdfast.org_id', true), '')::uuid)
    WITH CHECK (org_id = nullif(current_setting('holdfast.org_id', true), '')::uuid);
CREATE POLICY auditor_notes_for_itself ON holdfast.audit_note FOR INSERT TO holdfast_auditor
    WITH CHECK (org_id = nullif(current_setting('holdfast.org_id', true), '')::uuid);

GRANT SELECT, INSERT, UPDATE ON holdfast.category TO holdfast_engine;
GRANT SELECT ON holdfast.category TO holdfast_tenant;
-- A tenant that enqueues looks how deep the queue is, as far as it can see.
GRANT SELECT ON holdfast.claimable TO holdfast_tenant;
GRANT SELECT, INSERT ON holdfast.audit_note TO holdfast_engine;
GRANT SELECT ON holdfast.audit_note TO holdfast_tenant;
GRANT INSERT ON holdfast.audit_note TO holdfast_auditor;

-- Whatever a tenant may read, and of its own rows only.
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
    LOOP
        EXECUTE format(
            'CREATE POLICY auditor_sees_itself ON holdfast.%I FOR SELECT TO holdfast_auditor'
            ' USING (org_id = nullif(current_setting(''holdfast.org_id'', true), '''')::uuid)',
            readable);
    END LOOP;
END $$;

CREATE FUNCTION holdfast.check_audit_note() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM holdfast.job_event AS event
        WHERE event.id = NEW.event_id AND event.org_id = NEW.org_id
    ) THEN
        RAISE EXCEPTION USING MESSAGE = 'a note is about an event of its own tenant',
            ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER audit_note_stays_in_its_tenant BEFORE INSERT ON holdfast.audit_note
    FOR EACH ROW EXECUTE FUNCTION holdfast.check_audit_note();
CREATE TRIGGER audit_note_never_truncated BEFORE TRUNCATE ON holdfast.audit_note
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse('the audit is append-only');

-- Whether a queue takes no more. With the owner's rights, because a tenant sees only its own jobs;
-- it learns no number from it.
CREATE FUNCTION holdfast.is_full(queue text, jobs bigint DEFAULT 1) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM holdfast.queue AS rules
        WHERE rules.name = is_full.queue AND rules.max_depth IS NOT NULL
          AND rules.max_depth < is_full.jobs
            + (SELECT count(*) FROM (
                SELECT FROM holdfast.claimable AS job WHERE job.queue = is_full.queue
                LIMIT rules.max_depth) AS waiting)
            + (SELECT count(*) FROM (
                SELECT FROM holdfast.job AS job
                WHERE job.queue = is_full.queue AND job.state = 'queued'
                  AND job.not_before_at IS NOT NULL
                LIMIT rules.max_depth) AS deferred))
$$;
REVOKE ALL ON FUNCTION holdfast.is_full FROM PUBLIC;
GRANT EXECUTE ON FUNCTION holdfast.is_full TO holdfast_engine, holdfast_tenant;

-- The function of 0006 made anew. It routes by the tables: a category's queue and budget, whether
-- the queue is registered and takes more. A job has a turn by priority, a limit key, a command and
-- a checksum, and a key that history holds answers with the archived job.
DROP FUNCTION holdfast.enqueue;
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
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    scope text := enqueue.job_type || ':' || enqueue.org_id::text || ':'
        || coalesce(enqueue.project_id::text, '') || ':';
    full_key text;
    stamp timestamptz := statement_timestamp();
    random_bytes bytea := decode(replace(gen_random_uuid()::text, '-', ''), 'hex');
    kind holdfast.category;
    rules holdfast.queue;
    to_queue text;
    rank smallint;
    made_ms bigint := (extract(epoch FROM stamp) * 1000)::bigint;
    turn uuid;
    is_full boolean;
    bad text;
BEGIN
    SELECT * INTO kind FROM holdfast.category AS known WHERE known.name = enqueue.category;
    to_queue := coalesce(enqueue.queue, kind.queue);
    SELECT * INTO rules FROM holdfast.queue AS known WHERE known.name = to_queue;
    bad := CASE
        WHEN enqueue.job_type IS NULL OR length(enqueue.job_type) > 100
            OR enqueue.job_type !~ '^[a-z][a-z0-9_]*(\.[a-z0-9_]+)*$'
            THEN 'job_type must be lower-case words joined by dots, at most 100 characters'
        WHEN enqueue.org_id IS NULL THEN 'org_id is required'
        WHEN enqueue.payload IS NULL OR jsonb_typeof(enqueue.payload) <> 'object'
            THEN 'payload must be a JSON object'
        WHEN octet_length(enqueue.payload::text) > 262144
            THEN 'payload is larger than 256 KiB; store it and pass a reference'
        WHEN kind.name IS NULL THEN 'category is not one of '
            || (SELECT string_agg(known.name, ', ' ORDER BY known.name) FROM holdfast.category AS known)
        WHEN enqueue.queue !~ '^q:[a-z][a-z0-9_-]{0,49}$' THEN 'queue must look like q:default'
        WHEN enqueue.queue = 'q:deadletter'
            THEN 'queue must not be q:deadletter; only a dead job goes there'
        WHEN rules.name IS NULL
            THEN 'queue ' || to_queue || ' is not registered; declare it in the application and start a worker'
        WHEN enqueue.priority IS NULL
            OR lower(enqueue.priority) NOT IN ('critical', 'high', 'normal', 'low')
            THEN 'priority must be critical, high, normal or low'
        WHEN enqueue.actor_type IS NULL OR enqueue.actor_type NOT IN ('user', 'system', 'api_key')
            THEN 'actor_type must be user, system or api_key'
        WHEN enqueue.actor_id IS NULL THEN 'actor_id is required'
        WHEN enqueue.max_attempts NOT BETWEEN 1 AND 100
            THEN 'max_attempts must be from 1 to 100'
        WHEN NOT isfinite(enqueue.not_before_at)
            OR enqueue.not_before_at NOT BETWEEN stamp - interval '1830 days'
                AND stamp + interval '1830 days'
            THEN 'not_before_at is more than five years away'
        WHEN enqueue.traceparent !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'
            THEN 'traceparent must be a W3C traceparent'
        WHEN length(enqueue.idempotency_key) NOT BETWEEN 1 AND 500
            THEN 'idempotency_key must be text of 1 to 500 characters'
        WHEN enqueue.limit_key !~ '^[a-z0-9._:/-]{1,100}$'
            THEN 'limit_key must be 1 to 100 of the characters a-z, 0-9, ., _, :, / and -'
        WHEN enqueue.command IS NOT NULL AND kind.duty <> 'planning'
            THEN 'command is only for planning jobs'
    END;
    SELECT coalesce(bad, min(given.name || ' must be text of 1 to 200 characters'))
    INTO bad
    FROM (VALUES ('actor_id', enqueue.actor_id), ('request_id', enqueue.request_id),
                 ('correlation_id', enqueue.correlation_id), ('command', enqueue.command))
        AS given (name, value)
    WHERE length(given.value) NOT BETWEEN 1 AND 200;
    SELECT coalesce(bad, min(given.name || ' must not contain control characters'))
    INTO bad
    FROM (VALUES ('actor_id', enqueue.actor_id), ('request_id', enqueue.request_id),
                 ('correlation_id', enqueue.correlation_id),
                 ('idempotency_key', enqueue.idempotency_key), ('command', enqueue.command))
        AS given (name, value)
    WHERE given.value ~ '[\u0001-\u001f\u007f]';
    -- The shapes and names of secret.py. Strings are looked at one by one, as they are when read.
    IF bad IS NULL AND (
        enqueue.payload::text ~* '"(password|passwd|passphrase|secret|client[-_ ]secret|api[-_ ]key|apikey|access[-_ ]token|refresh[-_ ]token|auth[-_ ]token|bearer[-_ ]token|private[-_ ]key|authorization|secret[-_ ]key|aws[-_ ]secret[-_ ]access[-_ ]key|connection[-_ ]string)": "[^"]'
        OR EXISTS (
            SELECT FROM jsonb_path_query(enqueue.payload, 'strict $.** ? (@.type() == "string")') AS part
            WHERE part #>> '{}' ~ '-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----|(?<![A-Za-z0-9_-])(sk-[A-Za-z0-9_-]{20,}|[sr]k_(live|test)_[A-Za-z0-9]{16,100}|A[KS]IA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}|glpat-[A-Za-z0-9_-]{20,100}|xox[abeoprs]-[A-Za-z0-9-]{10,}|AIza[A-Za-z0-9_-]{35}|npm_[A-Za-z0-9]{36}|hf_[a-z]{2,10}_[A-Za-z0-9]{8,64}_[A-Za-z0-9_-]{32,64}|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,})(?![A-Za-z0-9_-])|(?<![A-Za-z0-9+.-])[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,100}:[^\s/:@]{1,200}@[^\s/]')
    ) THEN
        bad := 'payload carries something shaped like a secret; pass a reference to it';
    END IF;
    IF bad IS NULL AND NOT starts_with(enqueue.idempotency_key, scope)
        AND enqueue.idempotency_key ~ '^[a-z][a-z0-9_.]*:[0-9a-f-]{36}:([0-9a-f-]{36})?:.' THEN
        bad := 'idempotency_key was made for another tenant, project or job type';
    END IF;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION '%', bad USING ERRCODE = 'invalid_parameter_value';
    END IF;

    full_key := CASE
        WHEN starts_with(enqueue.idempotency_key, scope) AND enqueue.idempotency_key <> scope
            THEN enqueue.idempotency_key
        ELSE scope || left(encode(sha256(convert_to(enqueue.idempotency_key, 'UTF8')), 'hex'), 32)
    END;
    rank := CASE lower(enqueue.priority)
        WHEN 'critical' THEN 0 WHEN 'high' THEN 10 WHEN 'normal' THEN 20 ELSE 30 END;

    -- A version 7 id: the time in front keeps the index warm and the order readable.
    job_id := encode(
        set_byte(set_byte(
            substring(int8send(made_ms) FROM 3) || substring(random_bytes FROM 7),
            6, (get_byte(random_bytes, 6) & 15) | 112),
            8, (get_byte(random_bytes, 8) & 63) | 128), 'hex')::uuid;
    -- The turn is the id, made earlier or later by what the priority is worth: an hour a step.
    turn := overlay(job_id::text PLACING
        overlay(encode(substring(int8send(made_ms + (rank - 20) * 360000) FROM 3), 'hex')
                PLACING '-' FROM 9 FOR 0)
        FROM 1 FOR 13)::uuid;
    is_full := (rules.max_depth IS NOT NULL AND holdfast.is_full(to_queue))
        OR (rules.max_depth_per_tenant IS NOT NULL AND rules.max_depth_per_tenant <= (
            SELECT count(*) FROM holdfast.job AS job
            WHERE job.queue = to_queue AND job.org_id = enqueue.org_id AND job.state = 'queued'));

    INSERT INTO holdfast.job AS job
        (id, org_id, project_id, job_type, category, actor_type, actor_id, request_id,
         correlation_id, idempotency_key, payload, payload_hash, priority, traceparent, origin_queue,
         queue, max_attempts, not_before_at, created_at, updated_at, key_last_seen_at, turn,
         limit_key, routing_decision)
    SELECT
         job_id, enqueue.org_id, enqueue.project_id, enqueue.job_type, enqueue.category,
         enqueue.actor_type, enqueue.actor_id, coalesce(enqueue.request_id, job_id::text),
         coalesce(enqueue.correlation_id, enqueue.request_id, job_id::text),
         coalesce(full_key, scope || left(encode(sha256(convert_to(job_id::text, 'UTF8')), 'hex'), 32)),
         enqueue.payload,
         -- Of the text that is stored: it is no hash of the text that Python would have made.
         'jsonb:' || left(encode(sha256(convert_to(enqueue.payload::text, 'UTF8')), 'hex'), 32),
         rank, enqueue.traceparent, to_queue, to_queue,
         coalesce(enqueue.max_attempts, kind.max_attempts), enqueue.not_before_at, stamp, stamp,
         stamp, turn, coalesce(enqueue.limit_key, ''),
         CASE WHEN enqueue.command IS NOT NULL
              THEN jsonb_build_object('command', enqueue.command) END
    WHERE NOT is_full AND NOT EXISTS (
        SELECT FROM holdfast.job_history AS history WHERE history.idempotency_key = full_key)
    ON CONFLICT DO NOTHING;
    created := FOUND;
    IF created THEN
        PERFORM pg_notify('holdfast:' || to_queue, '');
    ELSE
        UPDATE holdfast.job AS job SET key_last_seen_at = stamp
        WHERE job.idempotency_key = full_key
        RETURNING job.id INTO job_id;
        IF NOT FOUND THEN
            UPDATE holdfast.job_history AS history SET key_last_seen_at = stamp
            WHERE history.idempotency_key = full_key
            RETURNING history.id INTO job_id;
        END IF;
        IF NOT FOUND AND is_full THEN
            RAISE EXCEPTION 'queue % is full; try again later', to_queue
                USING ERRCODE = 'configuration_limit_exceeded';
        ELSIF NOT FOUND THEN
            RAISE EXCEPTION 'the original of a duplicate job has just left; try again'
                USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;
END $$;
GRANT EXECUTE ON FUNCTION holdfast.enqueue TO holdfast_engine, holdfast_tenant;
