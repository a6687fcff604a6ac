ALTER TABLE holdfast.webhook_endpoint ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.webhook_endpoint FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_serves_all ON holdfast.webhook_endpoint TO holdfast_engine
    USING (true) WITH CHECK (true);
CREATE POLICY tenant_sees_itself ON holdfast.webhook_endpoint TO holdfast_tenant
    USING (org_id = (SELECT holdfast.current_tenant()))
    WITH CHECK (org_id = (SELECT holdfast.current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.webhook_endpoint TO holdfast_engine;
GRANT SELECT, UPDATE ON holdfast.webhook_cursor TO holdfast_engine;
