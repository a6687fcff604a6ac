-- Replays and notes are deleted with their dead letter, never before it.
CREATE TRIGGER dead_letter_replay_never_leaves BEFORE DELETE ON holdfast_dead_letter_replay
WHEN EXISTS (SELECT 1 FROM holdfast_dead_letter
             WHERE org_id = OLD.org_id AND job_id = OLD.job_id)
BEGIN
    SELECT RAISE(ABORT, 'dead_letter_replay_never_leaves: a replay is deleted only with its dead letter');
END;
CREATE TRIGGER dead_letter_note_never_leaves BEFORE DELETE ON holdfast_dead_letter_note
WHEN EXISTS (SELECT 1 FROM holdfast_dead_letter
             WHERE org_id = OLD.org_id AND job_id = OLD.job_id)
BEGIN
    SELECT RAISE(ABORT, 'dead_letter_note_never_leaves: a note is deleted only with its dead letter');
END;

-- Refuses jobs that only a producer may enqueue. A replay is enqueued by the operator who replays
-- the dead letter, with the unit of the original. AFTER, because BEFORE would also fire for an
-- enqueue with an existing key, which is a no-op.
CREATE TRIGGER job_enqueued_by_producer AFTER INSERT ON holdfast_job_envelope
WHEN EXISTS (
    SELECT 1 FROM holdfast_job_type_rule AS rule
    WHERE rule.job_type = NEW.job_type AND rule.producer IS NOT NULL)
BEGIN
    SELECT RAISE(ABORT, 'job_needs_its_unit: a job of a type with a producer names its execution unit')
    WHERE NEW.unit_key IS NULL;
    SELECT RAISE(ABORT, 'job_enqueued_by_producer: only the producer of this job type enqueues its jobs; the table job_type_rule names the call')
    WHERE NOT EXISTS (
            SELECT 1 FROM holdfast_execution_unit AS unit
            WHERE unit.org_id = NEW.org_id AND unit.job_type = NEW.job_type
              AND unit.unit_key = NEW.unit_key AND unit.job_id = coalesce(NEW.replay_of, NEW.id))
       OR (NEW.replay_of IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM holdfast_dead_letter AS letter
            WHERE letter.org_id = NEW.org_id AND letter.job_id = NEW.replay_of
              AND letter.state = 'replaying'));
END;
CREATE TRIGGER execution_unit_stays BEFORE DELETE ON holdfast_execution_unit
WHEN EXISTS (SELECT 1 FROM holdfast_job_envelope AS job
             WHERE job.org_id = OLD.org_id AND job.id = OLD.job_id)
  OR EXISTS (SELECT 1 FROM holdfast_job_remainder AS gone
             WHERE gone.org_id = OLD.org_id AND gone.job_id = OLD.job_id)
BEGIN
    SELECT RAISE(ABORT, 'execution_unit_stays: the execution unit of an enqueued job cannot be deleted');
END;

-- Refuses replays of job types that are never replayed: job_type_rule has the reason.
CREATE TRIGGER dead_letter_never_replayed BEFORE UPDATE OF state ON holdfast_dead_letter
WHEN NEW.state = 'replaying' AND OLD.state <> 'replaying' AND EXISTS (
    SELECT 1 FROM holdfast_job_type_rule AS rule
    WHERE rule.job_type = NEW.job_type AND rule.replay_refusal IS NOT NULL)
BEGIN
    SELECT RAISE(ABORT, 'dead_letter_never_replayed: jobs of this type are never replayed; see the table job_type_rule');
END;
