-- Enqueue from any language, inside the caller's own transaction:
--
--     SELECT * FROM holdfast.enqueue('report.export', '{"project": 7}', 'ORG-UUID',
--                                    idempotency_key => 'export-7-2026-11');
--
-- The same rules as the Python call: one job per key, the original comes back with created = false.
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
    to_queue text;
    budget integer;
    rank smallint;
    bad text;
BEGIN
    bad := CASE
        WHEN enqueue.job_type IS NULL OR length(enqueue.job_type) > 100
            OR enqueue.job_type !~ '^[a-z][a-z0-9_]*(\.[a-z0-9_]+)*$'
            THEN 'job_type must be lower-case words joined by dots, at most 100 characters'
        WHEN enqueue.org_id IS NULL THEN 'org_id is required'
        WHEN enqueue.payload IS NULL OR jsonb_typeof(enqueue.payload) <> 'object'
            THEN 'payload must be a JSON object'
        WHEN octet_length(enqueue.payload::text) > 262144
            THEN 'payload is larger than 256 KiB; store it and pass a reference'
        WHEN enqueue.category IS NULL OR enqueue.category NOT IN
            ('general', 'notification', 'audit_enrichment', 'planning', 'export', 'maintenance')
            THEN 'category is not one of general, notification, audit_enrichment, planning, export, maintenance'
        WHEN enqueue.queue !~ '^q:[a-z][a-z0-9_-]{0,49}$' THEN 'queue must look like q:default'
        WHEN enqueue.queue = 'q:deadletter'
            THEN 'queue must not be q:deadletter; only a dead job goes there'
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
    END;
    SELECT coalesce(bad, min(given.name || ' must be text of 1 to 200 characters'))
    INTO bad
    FROM (VALUES ('actor_id', enqueue.actor_id), ('request_id', enqueue.request_id),
                 ('correlation_id', enqueue.correlation_id)) AS given (name, value)
    WHERE length(given.value) NOT BETWEEN 1 AND 200;
    SELECT coalesce(bad, min(given.name || ' must not contain control characters'))
    INTO bad
    FROM (VALUES ('actor_id', enqueue.actor_id), ('request_id', enqueue.request_id),
                 ('correlation_id', enqueue.correlation_id),
                 ('idempotency_key', enqueue.idempotency_key)) AS given (name, value)
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

    to_queue := coalesce(enqueue.queue, CASE enqueue.category
        WHEN 'notification' THEN 'q:notifications' WHEN 'planning' THEN 'q:planning'
        WHEN 'export' THEN 'q:exports' WHEN 'maintenance' THEN 'q:maintenance' ELSE 'q:default' END);
    budget := coalesce(enqueue.max_attempts, CASE enqueue.category
        WHEN 'notification' THEN 10 WHEN 'planning' THEN 3 ELSE 5 END);

    -- A version 7 id: the time in front keeps the index warm and the order readable.
    job_id := encode(
        set_byte(set_byte(
            substring(int8send((extract(epoch FROM stamp) * 1000)::bigint) FROM 3) || substring(random_bytes FROM 7),
            6, (get_byte(random_bytes, 6) & 15) | 112),
            8, (get_byte(random_bytes, 8) & 63) | 128), 'hex')::uuid;

    INSERT INTO holdfast.job AS job
        (id, org_id, project_id, job_type, category, actor_type, actor_id, request_id,
         correlation_id, idempotency_key, payload, payload_hash, priority, traceparent, origin_queue,
         queue, max_attempts, not_before_at, created_at, updated_at, key_last_seen_at)
    VALUES
        (job_id, enqueue.org_id, enqueue.project_id, enqueue.job_type, enqueue.category,
         enqueue.actor_type, enqueue.actor_id, coalesce(enqueue.request_id, job_id::text),
         coalesce(enqueue.correlation_id, enqueue.request_id, job_id::text),
         coalesce(full_key, scope || left(encode(sha256(convert_to(job_id::text, 'UTF8')), 'hex'), 32)),
         enqueue.payload, '', rank, enqueue.traceparent, to_queue, to_queue, budget,
         enqueue.not_before_at, stamp, stamp, stamp)
    ON CONFLICT DO NOTHING;
    created := FOUND;
    IF created THEN
        PERFORM pg_notify('holdfast:' || to_queue, '');
    ELSE
        UPDATE holdfast.job AS job SET key_last_seen_at = stamp
        WHERE job.idempotency_key = full_key
        RETURNING job.id INTO job_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the original of a duplicate job has just left; try again'
                USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;
END $$;
GRANT EXECUTE ON FUNCTION holdfast.enqueue TO holdfast_engine, holdfast_tenant;
