-- Replays and notes leave with their item, and never before it.
CREATE TRIGGER dead_letter_replay_never_leaves BEFORE DELETE ON holdfast_dead_letter_replay
WHEN EXISTS (SELECT 1 FROM holdfast_dead_letter
             WHERE org_id = OLD.org_id AND job_id = OLD.job_id)
BEGIN
    SELECT RAISE(ABORT, 'dead_letter_replay_never_leaves: a replay leaves with its dead letter');
END;
CREATE TRIGGER dead_letter_note_never_leaves BEFORE DELETE ON holdfast_dead_letter_note
WHEN EXISTS (SELECT 1 FROM holdfast_dead_letter
             WHERE org_id = OLD.org_id AND job_id = OLD.job_id)
BEGIN
    SELECT RAISE(ABORT, 'dead_letter_note_never_leaves: a note leaves with its dead letter');
END;

-- A key or a unit is taken as long as its job is kept, in history too.
DROP TRIGGER job_not_in_history;
CREATE TRIGGER job_not_in_history AFTER INSERT ON holdfast_job BEGIN
    SELECT RAISE(ABORT, 'job_once_per_key: the job of this key is in history')
    WHERE EXISTS (SELECT 1 FROM holdfast_job_history WHERE idempotency_key = NEW.idempotency_key);
    SELECT RAISE(ABORT, 'job_once_per_unit: the job of this unit is in history')
    WHERE NEW.unit_key IS NOT NULL AND NEW.replay_of IS NULL AND EXISTS (
        SELECT 1 FROM holdfast_job_history
        WHERE org_id = NEW.org_id AND job_type = NEW.job_type AND unit_key = NEW.unit_key
          AND replay_of IS NULL);
END;
