ALTER TABLE holdfast.in_app_notification ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.in_app_notification FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_serves_all ON holdfast.in_app_notification TO holdfast_engine
    USING (true) WITH CHECK (true);
CREATE POLICY tenant_sees_itself ON holdfast.in_app_notification TO holdfast_tenant
    USING (org_id = (SELECT holdfast.current_tenant()))
    WITH CHECK (org_id = (SELECT holdfast.current_tenant()));
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.in_app_notification TO holdfast_engine;
-- A handler may read its tenant's notifications; only the channel writes them.
GRANT SELECT ON holdfast.in_app_notification TO holdfast_tenant;
