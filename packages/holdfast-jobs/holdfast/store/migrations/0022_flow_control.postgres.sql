DO $$
DECLARE
    tenanted text;
BEGIN
    FOREACH tenanted IN ARRAY ARRAY['unique_key', 'job_deadline'] LOOP
        EXECUTE format('ALTER TABLE holdfast.%I ENABLE ROW LEVEL SECURITY', tenanted);
        EXECUTE format('ALTER TABLE holdfast.%I FORCE ROW LEVEL SECURITY', tenanted);
        EXECUTE format(
            'CREATE POLICY engine_serves_all ON holdfast.%I TO holdfast_engine'
            ' USING (true) WITH CHECK (true)', tenanted);
        EXECUTE format(
            'CREATE POLICY tenant_sees_itself ON holdfast.%I TO holdfast_tenant'
            ' USING (org_id = (SELECT holdfast.current_tenant()))'
            ' WITH CHECK (org_id = (SELECT holdfast.current_tenant()))',
            tenanted);
        EXECUTE format(
            'GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.%I TO holdfast_engine', tenanted);
        EXECUTE format('GRANT SELECT ON holdfast.%I TO holdfast_tenant', tenanted);
    END LOOP;
END $$;

-- Raises unless the caller is the engine or the tenant of every row.
CREATE FUNCTION holdfast.check_tenant(tenants uuid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT holdfast.is_engine() AND EXISTS (
        SELECT FROM unnest(tenants) AS named (org_id)
        WHERE named.org_id IS DISTINCT FROM holdfast.current_tenant())
    THEN
        RAISE EXCEPTION 'row-level security: org_id is not the tenant of this transaction'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
END $$;

-- lock_keys and find_holders of unique.sql for a caller's connection, which may have only a
-- tenant's privileges. Two statements: the second sees what the first has waited for.
CREATE FUNCTION holdfast.lock_keys(keys json, now timestamptz DEFAULT NULL) RETURNS TABLE (
    place bigint, job_id uuid, waiting_since timestamptz, state text, lease_token integer,
    idempotency_key text, created_at timestamptz
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    stamp timestamptz := CASE WHEN holdfast.is_engine()
        THEN coalesce(lock_keys.now, statement_timestamp()) ELSE statement_timestamp() END;
BEGIN
    PERFORM holdfast.check_tenant(array_agg(asked.org_id))
    FROM json_to_recordset(keys) AS asked (org_id uuid);
    INSERT INTO holdfast.unique_key AS mine
        (org_id, job_type, unique_key, job_id, waiting_since, updated_at)
    SELECT asked.org_id, asked.job_type, asked.unique_key, asked.job_id, stamp, stamp
    FROM json_to_recordset(keys) AS asked (
        org_id uuid, job_type text, unique_key text, job_id uuid)
    ORDER BY asked.org_id, asked.job_type, asked.unique_key
    ON CONFLICT (org_id, job_type, unique_key) DO UPDATE SET updated_at = excluded.updated_at;
    RETURN QUERY
    SELECT asked.place, mine.job_id, mine.waiting_since, job.state, job.lease_token,
           job.idempotency_key, job.created_at
    FROM json_to_recordset(keys) AS asked (
        place bigint, org_id uuid, job_type text, unique_key text)
    JOIN holdfast.unique_key AS mine ON mine.org_id = asked.org_id
        AND mine.job_type = asked.job_type AND mine.unique_key = asked.unique_key
    LEFT JOIN holdfast.job AS job ON job.org_id = mine.org_id AND job.id = mine.job_id;
END $$;

-- hold_keys, supersede_jobs, their events, and insert_deadlines for a caller's connection. A tenant
-- gives a key or a deadline only to a job that it enqueued in this transaction, and supersedes only
-- the job that held the key.
CREATE FUNCTION holdfast.write_flow(holds json, deadlines json, now timestamptz DEFAULT NULL)
RETURNS TABLE (org_id uuid, id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    is_engine boolean := holdfast.is_engine();
    stamp timestamptz := CASE WHEN holdfast.is_engine()
        THEN coalesce(write_flow.now, statement_timestamp()) ELSE statement_timestamp() END;
    superseded json;
    ended_ids uuid[] := '{}';
BEGIN
    PERFORM holdfast.check_tenant(array_agg(asked.org_id))
    FROM (SELECT hold.org_id FROM json_to_recordset(holds) AS hold (org_id uuid)
          UNION ALL
          SELECT due.org_id FROM json_to_recordset(deadlines) AS due (org_id uuid)) AS asked;
    INSERT INTO holdfast.job_deadline (org_id, job_id, deadline_at)
    SELECT due.org_id, due.job_id, due.deadline_at
    FROM json_to_recordset(deadlines) AS due (org_id uuid, job_id uuid, deadline_at timestamptz)
    JOIN holdfast.job_envelope AS job ON job.org_id = due.org_id AND job.id = due.job_id
    WHERE is_engine OR job.created_at >= transaction_timestamp()
    ON CONFLICT DO NOTHING;
    WITH hold AS (
        SELECT hold.* FROM json_to_recordset(holds) AS hold (
            org_id uuid, job_type text, unique_key text, job_id uuid, replaces boolean,
            waiting_since timestamptz)
        JOIN holdfast.job_envelope AS job ON job.org_id = hold.org_id AND job.id = hold.job_id
            AND job.job_type = hold.job_type
        WHERE is_engine OR job.created_at >= transaction_timestamp()
    ),
    held AS (
        SELECT hold.org_id, mine.job_id AS old_id, hold.job_id AS new_id FROM hold
        JOIN holdfast.unique_key AS mine ON mine.org_id = hold.org_id
            AND mine.job_type = hold.job_type AND mine.unique_key = hold.unique_key
        WHERE hold.replaces AND mine.job_id <> hold.job_id
    ),
    moved AS (
        UPDATE holdfast.unique_key AS mine
        SET job_id = hold.job_id, waiting_since = coalesce(hold.waiting_since, stamp),
            updated_at = stamp
        FROM hold
        WHERE mine.org_id = hold.org_id AND mine.job_type = hold.job_type
          AND mine.unique_key = hold.unique_key
    )
    SELECT coalesce(json_agg(held), '[]') INTO superseded FROM held;

    -- As supersede_jobs: a job that is claimed meanwhile stays. Twice, for a job that becomes ready.
    FOR attempt IN 1..2 LOOP
        WITH waiting AS MATERIALIZED (
            SELECT place.org_id, place.job_id
            FROM json_to_recordset(superseded) AS held (org_id uuid, old_id uuid)
            JOIN holdfast.job_waiting AS place
              ON place.org_id = held.org_id AND place.job_id = held.old_id
            WHERE place.lease_token = 0
            ORDER BY place.org_id, place.job_id
            FOR UPDATE OF place
        ),
        ready AS MATERIALIZED (
            SELECT place.org_id, place.job_id
            FROM json_to_recordset(superseded) AS held (org_id uuid, old_id uuid)
            JOIN holdfast.job_envelope AS asked
              ON asked.org_id = held.org_id AND asked.id = held.old_id
            JOIN holdfast.job_ready AS place
              ON place.queue IN (asked.origin_queue, asked.queue)
             AND place.limit_key = asked.limit_key AND place.org_id = asked.org_id
             AND place.turn = coalesce(asked.turn, asked.id) AND place.job_id = asked.id
            WHERE place.lease_token = 0
            ORDER BY place.org_id, place.job_id
            FOR UPDATE OF place
        ),
        ended AS (
            INSERT INTO holdfast.job_outcome
                (org_id, job_id, finished_at, key_expires_at, lease_token, attempt_count, state)
            SELECT job.org_id, job.id, stamp, stamp + coalesce(
                       (SELECT category.key_ttl_ms FROM holdfast.category AS category
                        WHERE category.name = job.category), 2592000000) * interval '1 millisecond',
                   0, 0, 'canceled'
            FROM (SELECT * FROM waiting UNION ALL SELECT * FROM ready) AS place
            JOIN holdfast.job_envelope AS job
              ON job.org_id = place.org_id AND job.id = place.job_id
            RETURNING job_outcome.job_id
        )
        SELECT ended_ids || coalesce(array_agg(ended.job_id), '{}') INTO ended_ids FROM ended;
    END LOOP;

    INSERT INTO holdfast.audit_event
        (org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
         correlation_id, at, detail, digest)
    SELECT job.org_id, job.project_id, job.id, job.job_type, 'job.canceled',
           job.attempt_count + 1, 'system', 'holdfast', job.request_id, job.correlation_id, stamp,
           jsonb_build_object('reason', 'superseded', 'superseded_by', held.new_id),
           {digest state job}
    FROM json_to_recordset(superseded) AS held (org_id uuid, old_id uuid, new_id uuid)
    JOIN holdfast.job AS job ON job.org_id = held.org_id AND job.id = held.old_id
    WHERE held.old_id = ANY (ended_ids) AND pg_current_xact_id() IS NOT NULL;

    RETURN QUERY
    SELECT held.org_id, held.old_id
    FROM json_to_recordset(superseded) AS held (org_id uuid, old_id uuid)
    WHERE held.old_id = ANY (ended_ids);
END $$;

REVOKE ALL ON FUNCTION holdfast.check_tenant, holdfast.lock_keys, holdfast.write_flow FROM PUBLIC;
GRANT EXECUTE ON FUNCTION holdfast.lock_keys, holdfast.write_flow
    TO holdfast_engine, holdfast_tenant;
