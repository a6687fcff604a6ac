-- The ledger is append-only; a tenant sees only its own rows.
GRANT SELECT, INSERT ON holdfast.provider_call TO holdfast_engine;
GRANT SELECT ON holdfast.provider_call TO holdfast_tenant;
GRANT SELECT, INSERT, UPDATE ON holdfast.provider_account TO holdfast_engine;

ALTER TABLE holdfast.provider_call ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.provider_call FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_serves_all ON holdfast.provider_call TO holdfast_engine
    USING (true) WITH CHECK (true);
CREATE POLICY tenant_sees_itself ON holdfast.provider_call TO holdfast_tenant
    USING (org_id = (SELECT holdfast.current_tenant()))
    WITH CHECK (org_id = (SELECT holdfast.current_tenant()));

CREATE TRIGGER provider_call_never_truncated BEFORE TRUNCATE ON holdfast.provider_call
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse('the ledger is append-only');
