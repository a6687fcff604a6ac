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
    scope text := enqueue.job_type || ':' || enqueue.org_id::text || ':' || coalesce(enqueue.project_id::text, '') || ':';
    full_key text;
    stamp timestamptz := statement_timestamp();
    random_bytes bytea := decode(replace(gen_random_uuid()::text, '-', ''), 'hex');
    to_queue text;
    budget integer;
BEGIN
    IF enqueue.job_type IS NULL OR enqueue.job_type !~ '^[a-z][a-z0-9_]*(\.[a-z0-9_]+)*$' OR length(enqueue.job_type) > 100 THEN
        RAISE EXCEPTION 'job_type must be lower-case words joined by dots, at most 100 characters'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF enqueue.org_id IS NULL THEN
        RAISE EXCEPTION 'org_id is required' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF enqueue.payload IS NULL OR jsonb_typeof(enqueue.payload) <> 'object' THEN
        RAISE EXCEPTION 'payload must be a JSON object' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF octet_length(enqueue.payload::text) > 262144 THEN
        RAISE EXCEPTION 'payload is larger than 256 KiB; store it and pass a reference'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF enqueue.payload::text ~ '(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----|\m(sk-[A-Za-z0-9_-]{20,200}|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36,255}|xox[abeoprs]-[A-Za-z0-9-]{10,250}))' THEN
        RAISE EXCEPTION 'payload carries something shaped like a secret; pass a reference to it'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;

    full_key := CASE
        WHEN enqueue.idempotency_key IS NULL THEN NULL
        WHEN starts_with(enqueue.idempotency_key, scope) THEN enqueue.idempotency_key
        WHEN enqueue.idempotency_key ~ '^[a-z][a-z0-9_.]*:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:' THEN 'foreign'
        ELSE scope || left(encode(sha256(convert_to(enqueue.idempotency_key, 'UTF8')), 'hex'), 32)
    END;
    IF full_key = 'foreign' THEN
        RAISE EXCEPTION 'idempotency_key was made for another tenant, project or job type'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;

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
         enqueue.payload, '', CASE enqueue.priority WHEN 'critical' THEN 0 WHEN 'high' THEN 10
             WHEN 'normal' THEN 20 WHEN 'low' THEN 30 END,
         enqueue.traceparent, to_queue, to_queue, budget, enqueue.not_before_at, stamp, stamp, stamp)
    ON CONFLICT DO NOTHING;
    created := FOUND;
    IF created THEN
        PERFORM pg_notify('holdfast:' || to_queue, '');
    ELSE
        SELECT job.id INTO job_id FROM holdfast.job AS job WHERE job.idempotency_key = full_key;
    END IF;
END $$;
GRANT EXECUTE ON FUNCTION holdfast.enqueue TO holdfast_engine, holdfast_tenant;
