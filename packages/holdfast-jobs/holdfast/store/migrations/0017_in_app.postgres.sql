ALTER TABLE holdfast.in_app_notification ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.in_app_notification FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_serves_all ON holdfast.in_app_notification TO holdfast_engine
    USING (true) WITH CHECK (true);
CREATE POLICY tenant_sees_itself ON holdfast.in_app_notification TO holdfast_tenant
    USING (org_id = (SELECT holdfast.current_tenant()))
    WITH CHECK (org_id = (SELECT holdfast.current_tenant()));
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.in_app_notification TO holdfast_engine;
-- A handler may look at what its tenant's people were told; only the channel writes it.
GRANT SELECT ON holdfast.in_app_notification TO holdfast_tenant;
