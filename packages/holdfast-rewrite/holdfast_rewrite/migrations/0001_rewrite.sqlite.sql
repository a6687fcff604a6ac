-- Written behind the completion of its job, in the same transaction.
CREATE TRIGGER rewrite_output_of_completed BEFORE INSERT ON holdfast_rewrite_output
WHEN NOT EXISTS (
    SELECT 1 FROM holdfast_rewrite_request AS request
    WHERE request.org_id = NEW.org_id AND request.rewrite_request_id = NEW.rewrite_request_id
      AND request.recipient_user_id = NEW.recipient_user_id AND request.status = 'completed'
      AND request.erased_at IS NULL AND request.target_locale = NEW.target_locale
      AND request.policy_version = NEW.policy_version)
BEGIN
    SELECT RAISE(ABORT, 'rewrite_output_of_completed: an output belongs to a completed request');
END;

-- Erasing a person sets the mark on the request first.
CREATE TRIGGER preference_snapshot_stays_until_erased
BEFORE DELETE ON holdfast_recipient_preference_snapshot
WHEN NOT EXISTS (
    SELECT 1 FROM holdfast_rewrite_request AS request
    WHERE request.org_id = OLD.org_id AND request.rewrite_request_id = OLD.rewrite_request_id
      AND request.preferences_erased_at IS NOT NULL)
BEGIN
    SELECT RAISE(ABORT, 'preference_snapshot_stays_until_erased: a preference snapshot is deleted only with the data of its person');
END;
