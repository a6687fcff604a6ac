CREATE TRIGGER audit_seal_never_truncated BEFORE TRUNCATE ON holdfast.audit_seal
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse('seals cannot be deleted');

ALTER TABLE holdfast.audit_seal ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.audit_seal FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_serves_all ON holdfast.audit_seal TO holdfast_engine
    USING (true) WITH CHECK (true);
CREATE POLICY tenant_sees_itself ON holdfast.audit_seal TO holdfast_tenant
    USING (org_id = (SELECT holdfast.current_tenant()))
    WITH CHECK (org_id = (SELECT holdfast.current_tenant()));
CREATE POLICY auditor_sees_itself ON holdfast.audit_seal FOR SELECT TO holdfast_auditor
    USING (org_id = (SELECT holdfast.current_tenant()));

GRANT SELECT, INSERT ON holdfast.audit_seal TO holdfast_engine;
GRANT SELECT, UPDATE ON holdfast.audit_cursor TO holdfast_engine;
GRANT SELECT ON holdfast.audit_seal TO holdfast_tenant, holdfast_auditor;
