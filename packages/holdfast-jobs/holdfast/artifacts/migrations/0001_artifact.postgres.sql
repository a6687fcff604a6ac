ALTER TABLE holdfast.artifact ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.artifact FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_serves_all ON holdfast.artifact TO holdfast_engine
    USING (true) WITH CHECK (true);
CREATE POLICY tenant_sees_itself ON holdfast.artifact TO holdfast_tenant
    USING (org_id = (SELECT holdfast.current_tenant()))
    WITH CHECK (org_id = (SELECT holdfast.current_tenant()));

GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.artifact TO holdfast_engine;
GRANT SELECT ON holdfast.artifact TO holdfast_tenant;

GRANT SELECT ON holdfast.artifact TO holdfast_auditor;
CREATE POLICY auditor_sees_itself ON holdfast.artifact FOR SELECT TO holdfast_auditor
    USING (org_id = (SELECT holdfast.current_tenant()));
