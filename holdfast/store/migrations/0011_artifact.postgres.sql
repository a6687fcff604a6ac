ALTER TABLE holdfast.artifact ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.artifact FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_serves_all ON holdfast.artifact TO holdfast_engine
    USING (true) WITH CHECK (true);
CREATE POLICY tenant_sees_itself ON holdfast.artifact TO holdfast_tenant
    USING (org_id = nullif(current_setting('holdfast.org_id', true), '')::uuid)
    WITH CHECK (org_id = nullif(current_setting('holdfast.org_id', true), '')::uuid);

GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.artifact TO holdfast_engine;
GRANT SELECT ON holdfast.artifact TO holdfast_tenant;
