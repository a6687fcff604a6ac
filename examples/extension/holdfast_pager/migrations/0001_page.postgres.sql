ALTER TABLE holdfast.pager_page ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.pager_page FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_serves_all ON holdfast.pager_page TO holdfast_engine USING (true) WITH CHECK (true);
CREATE POLICY tenant_sees_itself ON holdfast.pager_page TO holdfast_tenant
    USING (org_id = (SELECT holdfast.current_tenant()))
    WITH CHECK (org_id = (SELECT holdfast.current_tenant()));
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.pager_page TO holdfast_engine;
GRANT SELECT ON holdfast.pager_page TO holdfast_tenant;

ALTER TABLE holdfast.pager_failure ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.pager_failure FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_serves_all ON holdfast.pager_failure TO holdfast_engine USING (true) WITH CHECK (true);
CREATE POLICY tenant_sees_itself ON holdfast.pager_failure TO holdfast_tenant
    USING (org_id = (SELECT holdfast.current_tenant()))
    WITH CHECK (org_id = (SELECT holdfast.current_tenant()));
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.pager_failure TO holdfast_engine;
GRANT SELECT ON holdfast.pager_failure TO holdfast_tenant;
