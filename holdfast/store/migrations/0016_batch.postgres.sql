-- A batch serves many tenants and names none; of its items a tenant sees its own.
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.provider_batch, holdfast.batch_item
    TO holdfast_engine;
GRANT SELECT ON holdfast.batch_item TO holdfast_tenant;

ALTER TABLE holdfast.batch_item ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.batch_item FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_serves_all ON holdfast.batch_item TO holdfast_engine
    USING (true) WITH CHECK (true);
CREATE POLICY tenant_sees_itself ON holdfast.batch_item TO holdfast_tenant
    USING (org_id = nullif(current_setting('holdfast.org_id', true), '')::uuid)
    WITH CHECK (org_id = nullif(current_setting('holdfast.org_id', true), '')::uuid);
