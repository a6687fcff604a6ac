-- Handlers have no grant on keys and sessions. The policies hold even if one is granted.
DO $$
DECLARE
    tenanted text;
BEGIN
    FOREACH tenanted IN ARRAY ARRAY['api_key', 'console_session'] LOOP
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
    END LOOP;
END $$;

GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.api_key_window TO holdfast_engine;

-- The API reads in the role of tenants for a key of a tenant. The policies of these tables show a
-- tenant its own rows.
GRANT SELECT ON holdfast.delivery_attempt, holdfast.delivery_evidence TO holdfast_tenant;
GRANT SELECT (job_type, replay_refusal) ON holdfast.job_type_rule TO holdfast_tenant;
