-- Operators own the rules: every role may read them; of tenants, a tenant sees only itself.
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.queue, holdfast.tenant, holdfast.limit_key
    TO holdfast_engine;
GRANT SELECT, UPDATE ON holdfast.flow TO holdfast_engine;
GRANT SELECT ON holdfast.queue, holdfast.tenant, holdfast.flow TO holdfast_tenant;

ALTER TABLE holdfast.tenant ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.tenant FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_serves_all ON holdfast.tenant TO holdfast_engine USING (true) WITH CHECK (true);
CREATE POLICY tenant_sees_itself ON holdfast.tenant TO holdfast_tenant
    USING (org_id = (SELECT holdfast.current_tenant()))
    WITH CHECK (org_id = (SELECT holdfast.current_tenant()));
