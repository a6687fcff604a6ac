CREATE FUNCTION holdfast.changelist_follows_review() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holdfast.changelist AS changelist SET succeeded_version = NEW.review_version
    WHERE changelist.org_id = NEW.org_id AND changelist.changelist_id = NEW.changelist_id
      AND (changelist.succeeded_version IS NULL
           OR changelist.succeeded_version < NEW.review_version);
    RETURN NULL;
END $$;
CREATE TRIGGER changelist_follows_review AFTER UPDATE OF status ON holdfast.review
FOR EACH ROW WHEN (NEW.status = 'completed' AND OLD.status <> 'completed')
EXECUTE FUNCTION holdfast.changelist_follows_review();

-- Done means that everybody who must be told has been told.
CREATE FUNCTION holdfast.review_succeeded_when_told() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.intended_at IS NULL OR EXISTS (
        SELECT FROM holdfast.review_recipient AS recipient
        WHERE recipient.org_id = NEW.org_id AND recipient.review_id = NEW.review_id
          AND recipient.is_required = 1
          AND NOT EXISTS (
              SELECT FROM holdfast.delivery AS delivery
              WHERE delivery.org_id = NEW.org_id
                AND delivery.subject = 'changelist:' || NEW.changelist_id
                AND delivery.recipient = recipient.recipient
                AND delivery.version = NEW.review_version
                AND delivery.notified_at IS NOT NULL))
    THEN
        RAISE EXCEPTION 'a required recipient has not been notified'
            USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER review_succeeded_when_told BEFORE UPDATE OF status ON holdfast.review
FOR EACH ROW WHEN (NEW.status = 'completed' AND OLD.status <> 'completed')
EXECUTE FUNCTION holdfast.review_succeeded_when_told();

-- A higher version than the one that succeeded, and only if that was said.
CREATE FUNCTION holdfast.review_above_succeeded() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM holdfast.changelist AS changelist
        WHERE changelist.org_id = NEW.org_id AND changelist.changelist_id = NEW.changelist_id
          AND changelist.succeeded_version IS NOT NULL
          AND (NEW.is_rerun = 0 OR NEW.review_version <= changelist.succeeded_version))
    THEN
        RAISE EXCEPTION 'a rerun requires a higher version'
            USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER review_above_succeeded BEFORE INSERT ON holdfast.review
FOR EACH ROW EXECUTE FUNCTION holdfast.review_above_succeeded();

-- Who is told, and of what, is fixed before the first one is.
CREATE FUNCTION holdfast.review_not_told_yet() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM holdfast.review AS review
        WHERE review.org_id = NEW.org_id AND review.review_id = NEW.review_id
          AND (review.intended_at IS NOT NULL OR review.erased_at IS NOT NULL))
    THEN
        RAISE EXCEPTION 'recipients cannot be added after the first notification'
            USING ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER review_recipient_before_telling BEFORE INSERT ON holdfast.review_recipient
FOR EACH ROW EXECUTE FUNCTION holdfast.review_not_told_yet();
CREATE TRIGGER finding_before_telling BEFORE INSERT ON holdfast.finding
FOR EACH ROW EXECUTE FUNCTION holdfast.review_not_told_yet();

DO $$
DECLARE
    tenanted text;
BEGIN
    FOREACH tenanted IN ARRAY ARRAY[
        'changelist', 'review', 'finding', 'review_recipient', 'review_part',
        'review_seal'] LOOP
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
        EXECUTE format(
            'GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.%I TO holdfast_engine', tenanted);
    END LOOP;
END $$;

-- A tenant's own code sees how its reviews stand, and no address.
GRANT SELECT ON holdfast.changelist, holdfast.review, holdfast.finding TO holdfast_tenant;
REVOKE ALL ON FUNCTION holdfast.changelist_follows_review,
    holdfast.review_succeeded_when_told, holdfast.review_above_succeeded, holdfast.review_not_told_yet FROM PUBLIC;
