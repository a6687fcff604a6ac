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

ALTER TABLE holdfast.job ALTER COLUMN turn SET NOT NULL;
ALTER VIEW holdfast.claimable SET (security_invoker = true);
GRANT SELECT ON holdfast.claimable TO holdfast_engine;
-- Jobs that wait for a provider batch, oldest first. For the few rows that it expects, PostgreSQL
-- would scan the table instead of walking job_oldest in order; SQLite walks.
CREATE INDEX job_batched ON holdfast.job (queue, created_at, id)
    WHERE limit_key = '~batch' AND finished_at IS NULL AND claimed_at IS NULL
        AND not_before_at IS NULL AND state <> 'batch_submitted';
