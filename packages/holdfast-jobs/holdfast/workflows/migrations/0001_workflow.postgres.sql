DO $$
DECLARE
    tenanted text;
BEGIN
    FOREACH tenanted IN ARRAY ARRAY['workflow', 'workflow_step', 'workflow_edge', 'workflow_item',
                                    'job_wait', 'sent_event'] LOOP
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

-- A tenant reads its workflows. It writes none of these tables.
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.workflow, holdfast.workflow_step,
    holdfast.workflow_edge, holdfast.workflow_item, holdfast.job_wait, holdfast.sent_event
    TO holdfast_engine;
GRANT SELECT ON holdfast.workflow, holdfast.workflow_step, holdfast.workflow_edge,
    holdfast.workflow_item, holdfast.job_wait, holdfast.sent_event TO holdfast_tenant;

-- The row of a running mapped step changes with every group of jobs, and an item once.
ALTER TABLE holdfast.workflow_step SET (fillfactor = 50);
ALTER TABLE holdfast.workflow_item SET (
    fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
