-- An output is delivered: as long as its draft waits for a verdict or a person, there is none.
CREATE FUNCTION holdfast.rewrite_output_of_decided() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM holdfast.rewrite_draft AS draft
        WHERE draft.org_id = NEW.org_id AND draft.rewrite_request_id = NEW.rewrite_request_id
          AND draft.state <> 'stored')
    THEN
        RAISE EXCEPTION 'a draft is stored after its verdict'
            USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION holdfast.rewrite_output_of_decided() FROM PUBLIC;
CREATE TRIGGER rewrite_output_of_decided BEFORE INSERT ON holdfast.rewrite_output
FOR EACH ROW EXECUTE FUNCTION holdfast.rewrite_output_of_decided();

ALTER TABLE holdfast.rewrite_draft ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.rewrite_draft FORCE ROW LEVEL SECURITY;
CREATE POLICY engine_serves_all ON holdfast.rewrite_draft TO holdfast_engine
    USING (true) WITH CHECK (true);
CREATE POLICY tenant_sees_itself ON holdfast.rewrite_draft TO holdfast_tenant
    USING (org_id = (SELECT holdfast.current_tenant()))
    WITH CHECK (org_id = (SELECT holdfast.current_tenant()));
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.rewrite_draft TO holdfast_engine;
