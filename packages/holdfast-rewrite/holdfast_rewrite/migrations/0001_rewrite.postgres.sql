-- A completed request has its output when the transaction ends.
ALTER TABLE holdfast.rewrite_request ADD CONSTRAINT rewrite_request_completed_has_output
    FOREIGN KEY (org_id, rewrite_request_id, output_recipient_user_id)
    REFERENCES holdfast.rewrite_output (org_id, rewrite_request_id, recipient_user_id)
    DEFERRABLE INITIALLY DEFERRED;

-- Written behind the completion of its job, in the same transaction.
CREATE FUNCTION holdfast.rewrite_output_of_completed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM holdfast.rewrite_request AS request
        WHERE request.org_id = NEW.org_id AND request.rewrite_request_id = NEW.rewrite_request_id
          AND request.recipient_user_id = NEW.recipient_user_id AND request.status = 'completed'
          AND request.erased_at IS NULL AND request.target_locale = NEW.target_locale
          AND request.policy_version = NEW.policy_version)
    THEN
        RAISE EXCEPTION 'an output belongs to a completed request'
            USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER rewrite_output_of_completed BEFORE INSERT ON holdfast.rewrite_output
FOR EACH ROW EXECUTE FUNCTION holdfast.rewrite_output_of_completed();

-- Erasing a person sets the mark on the request first.
CREATE FUNCTION holdfast.keep_preference_snapshot() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM holdfast.rewrite_request AS request
        WHERE request.org_id = OLD.org_id AND request.rewrite_request_id = OLD.rewrite_request_id
          AND request.preferences_erased_at IS NOT NULL)
    THEN
        RAISE EXCEPTION 'a preference snapshot is deleted only with the data of its person'
            USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER preference_snapshot_stays_until_erased
    BEFORE DELETE ON holdfast.recipient_preference_snapshot
    FOR EACH ROW EXECUTE FUNCTION holdfast.keep_preference_snapshot();
CREATE TRIGGER preference_snapshot_never_truncated
    BEFORE TRUNCATE ON holdfast.recipient_preference_snapshot
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse('a preference snapshot stays until erased');
CREATE TRIGGER recipient_snapshot_never_truncated BEFORE TRUNCATE ON holdfast.recipient_snapshot
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse('recipient snapshots cannot be deleted');

DO $$
DECLARE
    tenanted text;
BEGIN
    FOREACH tenanted IN ARRAY ARRAY['home', 'home_member', 'preference_answer', 'rewrite_block',
        'rewrite_request', 'rewrite_message', 'recipient_snapshot',
        'recipient_preference_snapshot', 'rewrite_output'] LOOP
        EXECUTE format('ALTER TABLE holdfast.%I ENABLE ROW LEVEL SECURITY', tenanted);
        EXECUTE format('ALTER TABLE holdfast.%I FORCE ROW LEVEL SECURITY', tenanted);
        EXECUTE format(
            'CREATE POLICY engine_serves_all ON holdfast.%I TO holdfast_engine'
            ' USING (true) WITH CHECK (true)', tenanted);
        EXECUTE format(
            'CREATE POLICY tenant_sees_itself ON holdfast.%I TO holdfast_tenant'
            ' USING (org_id = (SELECT holdfast.current_tenant()))'
            ' WITH CHECK (org_id = (SELECT holdfast.current_tenant()))',
            tenanted);
        EXECUTE format('GRANT SELECT ON holdfast.%I TO holdfast_engine', tenanted);
        EXECUTE format('GRANT INSERT, DELETE ON holdfast.%I TO holdfast_engine', tenanted);
    END LOOP;
END $$;

GRANT UPDATE ON holdfast.home, holdfast.home_member, holdfast.preference_answer,
    holdfast.rewrite_request, holdfast.rewrite_message, holdfast.rewrite_output TO holdfast_engine;
-- A member's own data is read through the application, which knows who asks; a home's handlers see
-- who lives there.
GRANT SELECT ON holdfast.home, holdfast.home_member TO holdfast_tenant;

-- An ordinary view would run with its owner's rights and show every tenant to everybody.
ALTER VIEW holdfast.rewrite_status SET (security_invoker = true);
GRANT SELECT ON holdfast.rewrite_status TO holdfast_engine;
REVOKE ALL ON FUNCTION holdfast.rewrite_output_of_completed, holdfast.keep_preference_snapshot
    FROM PUBLIC;
