-- Row-level security, forced on every table with a tenant. The engine role serves all tenants; the
-- tenant role sees the one named in holdfast.org_id and nobody when it is unset. nullif, because
-- the setting reads '' and not NULL after the transaction that set it.
DO $$
DECLARE
    tenanted text;
BEGIN
    FOREACH tenanted IN ARRAY ARRAY['job', 'job_stage', 'dead_letter', 'job_event', 'audit_seal'] LOOP
        EXECUTE format('ALTER TABLE holdfast.%I ENABLE ROW LEVEL SECURITY', tenanted);
        EXECUTE format('ALTER TABLE holdfast.%I FORCE ROW LEVEL SECURITY', tenanted);
        EXECUTE format(
            'CREATE POLICY engine_serves_all ON holdfast.%I TO holdfast_engine'
            ' USING (true) WITH CHECK (true)', tenanted);
        EXECUTE format(
            'CREATE POLICY tenant_sees_itself ON holdfast.%I TO holdfast_tenant'
            ' USING (org_id = nullif(current_setting(''holdfast.org_id'', true), '''')::uuid)'
            ' WITH CHECK (org_id = nullif(current_setting(''holdfast.org_id'', true), '''')::uuid)',
            tenanted);
    END LOOP;
END $$;

-- An ordinary view would run with its owner's rights and show every tenant to everybody.
ALTER VIEW holdfast.idempotency_key SET (security_invoker = true);

GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.job, holdfast.job_stage, holdfast.dead_letter
    TO holdfast_engine;
GRANT SELECT, INSERT ON holdfast.job_event, holdfast.audit_seal TO holdfast_engine;
GRANT SELECT, UPDATE ON holdfast.audit_cursor TO holdfast_engine;
GRANT SELECT ON holdfast.migration, holdfast.idempotency_key TO holdfast_engine, holdfast_tenant;
GRANT SELECT ON holdfast.job, holdfast.job_stage, holdfast.dead_letter, holdfast.job_event,
    holdfast.audit_seal TO holdfast_tenant;
GRANT INSERT, UPDATE (key_last_seen_at) ON holdfast.job TO holdfast_tenant;
