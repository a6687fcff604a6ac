-- Only the engine writes them, so a tenant cannot discover other tenants' names through conflicts.
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.schedule, holdfast.schedule_tick TO holdfast_engine;
GRANT SELECT ON holdfast.schedule, holdfast.schedule_tick TO holdfast_tenant;

DO $$
DECLARE
    tenanted text;
BEGIN
    FOREACH tenanted IN ARRAY ARRAY['schedule', 'schedule_tick'] LOOP
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
