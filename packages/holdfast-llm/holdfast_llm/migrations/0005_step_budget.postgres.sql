GRANT SELECT, INSERT ON holdfast.budgeted_job TO holdfast_engine;
GRANT SELECT ON holdfast.budgeted_job TO holdfast_tenant;

ALTER TABLE holdfast.budgeted_job ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.budgeted_job FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_serves_all ON holdfast.budgeted_job TO holdfast_engine
    USING (true) WITH CHECK (true);
CREATE POLICY tenant_sees_itself ON holdfast.budgeted_job TO holdfast_tenant
    USING (org_id = (SELECT holdfast.current_tenant()))
    WITH CHECK (org_id = (SELECT holdfast.current_tenant()));
