-- A batch serves many tenants and names none; of its items a tenant sees its own.
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.provider_batch, holdfast.batch_item
    TO holdfast_engine;
GRANT SELECT ON holdfast.batch_item TO holdfast_tenant;

ALTER TABLE holdfast.batch_item ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.batch_item FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_serves_all ON holdfast.batch_item TO holdfast_engine
    USING (true) WITH CHECK (true);
CREATE POLICY tenant_sees_itself ON holdfast.batch_item TO holdfast_tenant
    USING (org_id = (SELECT holdfast.current_tenant()))
    WITH CHECK (org_id = (SELECT holdfast.current_tenant()));

-- A raw answer is a tenant's text: only the engine reads it.
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.batch_answer TO holdfast_engine;
ALTER TABLE holdfast.batch_answer ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.batch_answer FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_serves_all ON holdfast.batch_answer TO holdfast_engine
    USING (true) WITH CHECK (true);
CREATE POLICY tenant_sees_itself ON holdfast.batch_answer TO holdfast_tenant
    USING (org_id = (SELECT holdfast.current_tenant()))
    WITH CHECK (org_id = (SELECT holdfast.current_tenant()));

-- SECURITY DEFINER: a tenant may cancel its job, and may not read what was kept for it.
CREATE FUNCTION holdfast.forget_batch_answer() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM holdfast.batch_answer AS answer
    WHERE answer.org_id = OLD.org_id AND answer.job_id = OLD.id;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION holdfast.forget_batch_answer FROM PUBLIC;
CREATE TRIGGER job_forgets_batch_answer AFTER UPDATE OF state ON holdfast.job FOR EACH ROW
    WHEN (OLD.state = 'batch_submitted' AND NEW.state <> 'batch_submitted')
    EXECUTE FUNCTION holdfast.forget_batch_answer();
CREATE TRIGGER job_gone_forgets_batch_answer AFTER DELETE ON holdfast.job FOR EACH ROW
    WHEN (OLD.state = 'batch_submitted') EXECUTE FUNCTION holdfast.forget_batch_answer();
