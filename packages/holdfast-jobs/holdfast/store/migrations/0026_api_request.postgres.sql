-- Neither handlers nor the role of tenants have a grant. The policies hold even if one is granted.
ALTER TABLE holdfast.api_request ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.api_request FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_serves_all ON holdfast.api_request TO holdfast_engine
    USING (true) WITH CHECK (true);
CREATE POLICY tenant_sees_itself ON holdfast.api_request TO holdfast_tenant
    USING (org_id = (SELECT holdfast.current_tenant()))
    WITH CHECK (org_id = (SELECT holdfast.current_tenant()));
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.api_request TO holdfast_engine;
