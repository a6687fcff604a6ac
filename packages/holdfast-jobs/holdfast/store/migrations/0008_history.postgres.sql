DO $$
DECLARE
    tenanted text;
BEGIN
    FOREACH tenanted IN ARRAY ARRAY['job_history', 'job_stage_history'] LOOP
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
    END LOOP;
END $$;
GRANT SELECT, INSERT, DELETE ON holdfast.job_history, holdfast.job_stage_history TO holdfast_engine;
GRANT UPDATE (key_last_seen_at) ON holdfast.job_history TO holdfast_engine;
GRANT SELECT ON holdfast.job_history, holdfast.job_stage_history TO holdfast_tenant;

ALTER VIEW holdfast.job_record SET (security_invoker = true);
ALTER VIEW holdfast.idempotency_key SET (security_invoker = true);
GRANT SELECT ON holdfast.job_record, holdfast.idempotency_key TO holdfast_engine, holdfast_tenant;

-- A key or a unit is taken as long as its job is kept, in history too. An enqueue checks history
-- before it inserts. If the job is being archived at that moment, this check comes too early: the
-- enqueue waits for the row that is being deleted, and then the key seems free. This trigger checks
-- after the insert and sees rows committed since.
--
-- The index is used regardless of the statistics at planning time.
CREATE FUNCTION holdfast.refuse_archived() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    broken text;
BEGIN
    SELECT 'job_once_per_key' INTO broken FROM added
    JOIN holdfast.job_history AS history
      ON history.org_id = added.org_id AND history.idempotency_key = added.idempotency_key
    LIMIT 1;
    IF NOT FOUND THEN
        SELECT 'job_once_per_unit' INTO broken FROM added
        JOIN holdfast.job_history AS history ON history.org_id = added.org_id
            AND history.job_type = added.job_type AND history.unit_key = added.unit_key
        WHERE added.unit_key IS NOT NULL
        LIMIT 1;
    END IF;
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION 'the job of this key or unit is in history'
            USING ERRCODE = 'unique_violation', CONSTRAINT = broken,
                  SCHEMA = 'holdfast', TABLE = 'job';
    END IF;
    -- With one snapshot for the whole transaction nothing that was committed since can be seen. A
    -- job that this snapshot still shows beside the one just inserted has been archived; and no
    -- job is archived before it has ended a quarter of an hour ago, so in a younger transaction
    -- there is none that this snapshot does not show.
    IF current_setting('transaction_isolation') <> 'read committed' AND (
        transaction_timestamp() < clock_timestamp() - interval '15 minutes'
        OR EXISTS (
            SELECT FROM added JOIN holdfast.job AS job
            ON job.org_id = added.org_id AND job.idempotency_key = added.idempotency_key
            AND job.id <> added.id)
        OR EXISTS (
            SELECT FROM added JOIN holdfast.job AS job
            ON job.org_id = added.org_id AND job.job_type = added.job_type
            AND job.unit_key = added.unit_key AND job.id <> added.id)) THEN
        RAISE EXCEPTION 'this transaction is too old to see whether the key is taken; try again'
            USING ERRCODE = 'serialization_failure',
                  HINT = 'Enqueue in a transaction that is read committed or younger than 15 minutes.';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER job_not_in_history AFTER INSERT ON holdfast.job
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_archived();
REVOKE ALL ON FUNCTION holdfast.refuse_archived FROM PUBLIC;
