-- A batch serves many tenants and has none itself. A tenant sees only its own items.
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

-- A raw answer contains a tenant's text, so only the engine reads it.
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.batch_answer TO holdfast_engine;
ALTER TABLE holdfast.batch_answer ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.batch_answer FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_serves_all ON holdfast.batch_answer TO holdfast_engine
    USING (true) WITH CHECK (true);
CREATE POLICY tenant_sees_itself ON holdfast.batch_answer TO holdfast_tenant
    USING (org_id = (SELECT holdfast.current_tenant()))
    WITH CHECK (org_id = (SELECT holdfast.current_tenant()));

CREATE FUNCTION holdfast.forget_batch_answer() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM holdfast.batch_answer AS answer
    WHERE answer.org_id = OLD.org_id AND answer.batch_id = OLD.batch_id
      AND answer.batch_item_index = OLD.batch_item_index;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION holdfast.forget_batch_answer FROM PUBLIC;
CREATE TRIGGER batch_item_forgets_answer AFTER UPDATE OF is_open ON holdfast.batch_item FOR EACH ROW
    WHEN (OLD.is_open = 1 AND NEW.is_open = 0) EXECUTE FUNCTION holdfast.forget_batch_answer();
