CREATE TRIGGER changelist_follows_review AFTER UPDATE OF status ON holdfast_review
WHEN NEW.status = 'completed' AND OLD.status <> 'completed'
BEGIN
    UPDATE holdfast_changelist SET succeeded_version = NEW.review_version
    WHERE org_id = NEW.org_id AND changelist_id = NEW.changelist_id
      AND (succeeded_version IS NULL OR succeeded_version < NEW.review_version);
END;

-- Done means that everybody who must be told has been told.
CREATE TRIGGER review_succeeded_when_told BEFORE UPDATE OF status ON holdfast_review
WHEN NEW.status = 'completed' AND OLD.status <> 'completed' AND (
    NEW.intended_at IS NULL
    OR EXISTS (
        SELECT 1 FROM holdfast_review_recipient AS recipient
        WHERE recipient.org_id = NEW.org_id AND recipient.review_id = NEW.review_id
          AND recipient.is_required = 1
          AND NOT EXISTS (
              SELECT 1 FROM holdfast_delivery AS delivery
              WHERE delivery.org_id = NEW.org_id
                AND delivery.subject = 'changelist:' || NEW.changelist_id
                AND delivery.recipient = recipient.recipient
                AND delivery.version = NEW.review_version
                AND delivery.notified_at IS NOT NULL)))
BEGIN
    SELECT RAISE(ABORT, 'review_succeeded_when_told: a required recipient has not been notified');
END;

-- A higher version than the one that succeeded, and only if that was said.
CREATE TRIGGER review_above_succeeded BEFORE INSERT ON holdfast_review
WHEN EXISTS (
    SELECT 1 FROM holdfast_changelist AS changelist
    WHERE changelist.org_id = NEW.org_id AND changelist.changelist_id = NEW.changelist_id
      AND changelist.succeeded_version IS NOT NULL
      AND (NEW.is_rerun = 0 OR NEW.review_version <= changelist.succeeded_version))
BEGIN
    SELECT RAISE(ABORT, 'review_above_succeeded: a rerun requires a higher version');
END;

CREATE TRIGGER review_recipient_before_telling BEFORE INSERT ON holdfast_review_recipient
WHEN EXISTS (
    SELECT 1 FROM holdfast_review AS review
    WHERE review.org_id = NEW.org_id AND review.review_id = NEW.review_id
      AND (review.intended_at IS NOT NULL OR review.erased_at IS NOT NULL))
BEGIN
    SELECT RAISE(ABORT, 'review_recipient_before_telling: recipients cannot be added after the first notification');
END;

-- What was told is what was found.
CREATE TRIGGER finding_before_telling BEFORE INSERT ON holdfast_finding
WHEN EXISTS (
    SELECT 1 FROM holdfast_review AS review
    WHERE review.org_id = NEW.org_id AND review.review_id = NEW.review_id
      AND (review.intended_at IS NOT NULL OR review.erased_at IS NOT NULL))
BEGIN
    SELECT RAISE(ABORT, 'finding_before_telling: findings cannot be added after the first notification');
END;
