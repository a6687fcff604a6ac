-- The transitions of jobs. Inserting a fact (an envelope, a claim, an attempt, a submission, an
-- outcome) moves its job: the trigger deletes the row of the place that the job leaves, and raises if
-- it is not there. So no client can record an outcome of a job that is not running under that lease,
-- and a job is in one place.

CREATE TRIGGER job_enqueued AFTER INSERT ON holdfast_job_envelope BEGIN
    INSERT INTO holdfast_job_ready
        (queue, limit_key, org_id, turn, job_id, created_at, lease_token, unit)
    SELECT coalesce(NEW.queue, NEW.origin_queue), NEW.limit_key, NEW.org_id,
           coalesce(NEW.turn, NEW.id), NEW.id, NEW.created_at, 0,
           coalesce(NEW.job_type || NEW.unit_key, '')
    WHERE NEW.not_before_at IS NULL;
    INSERT INTO holdfast_job_waiting
        (org_id, job_id, queue, limit_key, turn, created_at, not_before_at, lease_token, unit)
    SELECT NEW.org_id, NEW.id, coalesce(NEW.queue, NEW.origin_queue), NEW.limit_key,
           coalesce(NEW.turn, NEW.id), NEW.created_at, NEW.not_before_at, 0,
           coalesce(NEW.job_type || NEW.unit_key, '')
    WHERE NEW.not_before_at IS NOT NULL;
    INSERT INTO holdfast_audit_event
        (id, org_id, name, attempt, actor_type, actor_id, at, jobs, digest)
    VALUES
        (NEW.event_id, NEW.org_id, 'job.enqueued', 1, NEW.actor_type, NEW.actor_id, NEW.created_at,
         '["' || NEW.id || '"]', {digest enqueue NEW} || ':' || NEW.max_attempts || ':' || NEW.stage
             || ':' || NEW.pipeline_version);
END;

CREATE TRIGGER job_started AFTER INSERT ON holdfast_job_running BEGIN
    DELETE FROM holdfast_job_ready
    WHERE queue = NEW.queue AND limit_key = NEW.limit_key AND org_id = NEW.org_id
      AND turn = NEW.turn AND job_id = NEW.job_id AND lease_token = NEW.lease_token - 1;
    SELECT RAISE(ABORT, 'job_moved: a job that is not waiting cannot be claimed; it was claimed or has ended')
    WHERE changes() = 0 AND NOT EXISTS (
        SELECT 1 FROM holdfast_job_waiting
        WHERE org_id = NEW.org_id AND job_id = NEW.job_id AND queue = NEW.queue
          AND limit_key = NEW.limit_key AND turn = NEW.turn AND lease_token = NEW.lease_token - 1);
    DELETE FROM holdfast_job_waiting WHERE org_id = NEW.org_id AND job_id = NEW.job_id;
    SELECT RAISE(ABORT, 'job_attempts: a claim continues with the stage and the attempts of its job')
    WHERE NEW.started_attempt <> NEW.attempt_count + 1 OR CASE WHEN NEW.lease_token = 1
        THEN NEW.attempt_count <> 0 OR NOT EXISTS (
            SELECT 1 FROM holdfast_job_envelope
            WHERE org_id = NEW.org_id AND id = NEW.job_id
              AND max_attempts = NEW.max_attempts AND stage = NEW.stage)
        ELSE (NEW.attempt_count, NEW.max_attempts, NEW.stage) IS NOT (
            SELECT attempt_count, max_attempts, stage FROM holdfast_job_attempt
            WHERE org_id = NEW.org_id AND job_id = NEW.job_id ORDER BY number DESC LIMIT 1) END;
    INSERT INTO holdfast_audit_event
        (id, org_id, name, attempt, actor_type, actor_id, at, jobs)
    VALUES
        (NEW.started_event_id, NEW.org_id, 'job.started', NEW.started_attempt, 'system',
         NEW.claimed_by, NEW.claimed_at, '["' || NEW.job_id || '"]');
END;

-- BEFORE, because an INSERT OR REPLACE would delete the old row first.
CREATE TRIGGER job_attempt_follows BEFORE INSERT ON holdfast_job_attempt
WHEN NEW.number <> 1 + (SELECT coalesce(max(number), 0) FROM holdfast_job_attempt
                        WHERE org_id = NEW.org_id AND job_id = NEW.job_id)
BEGIN
    SELECT RAISE(ABORT, 'job_attempts: attempts are numbered without gaps');
END;
CREATE TRIGGER job_attempt_ended AFTER INSERT ON holdfast_job_attempt BEGIN
    SELECT RAISE(ABORT, 'job_moved: an attempt of a job that is not running under this lease')
    WHERE NOT EXISTS (
            SELECT 1 FROM holdfast_job_running
            WHERE org_id = NEW.org_id AND job_id = NEW.job_id AND lease_token = NEW.lease_token
              AND (NEW.keeps_lease
                   OR (started_event_id, claimed_at, claimed_by, started_attempt)
                      = (NEW.started_event_id, NEW.claimed_at, NEW.claimed_by, NEW.started_attempt)))
      AND (NEW.keeps_lease OR NOT EXISTS (
            SELECT 1 FROM holdfast_job_submitted
            WHERE org_id = NEW.org_id AND job_id = NEW.job_id AND lease_token = NEW.lease_token
              AND (started_event_id, claimed_at, claimed_by, started_attempt)
                  = (NEW.started_event_id, NEW.claimed_at, NEW.claimed_by, NEW.started_attempt)));
    SELECT RAISE(ABORT, 'job_attempts: attempt_count grows by one and resets only at the next stage')
    FROM holdfast_job_running
    WHERE org_id = NEW.org_id AND job_id = NEW.job_id
      AND NOT CASE WHEN NEW.keeps_lease AND NEW.stage <> stage THEN NEW.attempt_count = 0
                   ELSE stage IN (NEW.stage, '') AND NEW.max_attempts = max_attempts
                        AND NEW.attempt_count - attempt_count IN (0, 1) END;
    SELECT RAISE(ABORT, 'job_attempts: attempt_count grows by one and resets only at the next stage')
    FROM holdfast_job_submitted AS held
    JOIN holdfast_job_envelope AS job ON job.org_id = held.org_id AND job.id = held.job_id
    LEFT JOIN holdfast_job_attempt AS earlier
      ON earlier.org_id = held.org_id AND earlier.job_id = held.job_id
     AND earlier.number = NEW.number - 1
    WHERE held.org_id = NEW.org_id AND held.job_id = NEW.job_id
      AND NOT (held.stage IN (NEW.stage, '')
               AND NEW.max_attempts = coalesce(earlier.max_attempts, job.max_attempts)
               AND NEW.attempt_count - coalesce(earlier.attempt_count, 0) IN (0, 1));
    UPDATE holdfast_job_running
    SET stage = NEW.stage, attempt_count = NEW.attempt_count, max_attempts = NEW.max_attempts
    WHERE NEW.keeps_lease AND org_id = NEW.org_id AND job_id = NEW.job_id;
    DELETE FROM holdfast_job_running
    WHERE NOT NEW.keeps_lease AND org_id = NEW.org_id AND job_id = NEW.job_id;
    DELETE FROM holdfast_job_submitted
    WHERE NOT NEW.keeps_lease AND org_id = NEW.org_id AND job_id = NEW.job_id;
    INSERT INTO holdfast_job_ready
        (queue, limit_key, org_id, turn, job_id, created_at, lease_token, unit)
    SELECT job.origin_queue, job.limit_key, job.org_id, coalesce(job.turn, job.id), job.id,
           job.created_at, NEW.lease_token, coalesce(job.job_type || job.unit_key, '')
    FROM holdfast_job_envelope AS job
    WHERE NOT NEW.keeps_lease AND NEW.not_before_at IS NULL
      AND job.org_id = NEW.org_id AND job.id = NEW.job_id;
    INSERT INTO holdfast_job_waiting
        (org_id, job_id, queue, limit_key, turn, created_at, not_before_at, lease_token, unit)
    SELECT job.org_id, job.id, job.origin_queue, job.limit_key, coalesce(job.turn, job.id),
           job.created_at, NEW.not_before_at, NEW.lease_token,
           coalesce(job.job_type || job.unit_key, '')
    FROM holdfast_job_envelope AS job
    WHERE NOT NEW.keeps_lease AND NEW.not_before_at IS NOT NULL
      AND job.org_id = NEW.org_id AND job.id = NEW.job_id;
END;

CREATE TRIGGER job_submitted_once AFTER INSERT ON holdfast_job_submitted BEGIN
    SELECT RAISE(ABORT, 'job_moved: a job that is not running under this lease cannot be submitted')
    WHERE NOT EXISTS (
        SELECT 1 FROM holdfast_job_running
        WHERE org_id = NEW.org_id AND job_id = NEW.job_id AND lease_token = NEW.lease_token
          AND (started_event_id, claimed_at, claimed_by, started_attempt)
              = (NEW.started_event_id, NEW.claimed_at, NEW.claimed_by, NEW.started_attempt)
          AND queue = NEW.queue AND stage IN (NEW.stage, ''));
    DELETE FROM holdfast_job_running WHERE org_id = NEW.org_id AND job_id = NEW.job_id;
END;

CREATE TRIGGER job_ended AFTER INSERT ON holdfast_job_outcome WHEN NEW.state <> 'canceled' BEGIN
    -- A job whose count was below zero can be dead-lettered.
    DELETE FROM holdfast_job_running
    WHERE org_id = NEW.org_id AND job_id = NEW.job_id AND lease_token = NEW.lease_token
      AND started_event_id = NEW.started_event_id AND claimed_at = NEW.claimed_at
      AND claimed_by = NEW.claimed_by AND started_attempt = NEW.started_attempt
      AND NEW.attempt_count = max(attempt_count, 0) + (NEW.state = 'failed');
    SELECT CASE WHEN EXISTS (
            SELECT 1 FROM holdfast_job_running
            WHERE org_id = NEW.org_id AND job_id = NEW.job_id AND lease_token = NEW.lease_token
              AND started_event_id = NEW.started_event_id)
        THEN RAISE(ABORT, 'job_attempts: attempt_count grows by one with a failure, and with no other outcome')
        ELSE RAISE(ABORT, 'job_moved: an outcome of a job that is not running under this lease') END
    WHERE changes() = 0 AND NOT EXISTS (
        SELECT 1 FROM holdfast_job_submitted AS held
        WHERE held.org_id = NEW.org_id AND held.job_id = NEW.job_id
          AND held.lease_token = NEW.lease_token
          AND (held.started_event_id, held.claimed_at, held.claimed_by, held.started_attempt)
              = (NEW.started_event_id, NEW.claimed_at, NEW.claimed_by, NEW.started_attempt)
          AND NEW.attempt_count = (NEW.state = 'failed') + coalesce((
              SELECT attempt_count FROM holdfast_job_attempt
              WHERE org_id = NEW.org_id AND job_id = NEW.job_id ORDER BY number DESC LIMIT 1), 0));
    DELETE FROM holdfast_job_submitted WHERE org_id = NEW.org_id AND job_id = NEW.job_id;
END;
-- A trigger of its own: with INSERT SELECT in the other one, an outcome took a microsecond longer.
CREATE TRIGGER job_succeeded AFTER INSERT ON holdfast_job_outcome WHEN NEW.event_id IS NOT NULL BEGIN
    INSERT INTO holdfast_audit_event
        (id, org_id, name, attempt, actor_type, actor_id, at, jobs, digest)
    VALUES
        (NEW.event_id, NEW.org_id, 'job.succeeded', NEW.attempt_count + 1, 'system',
         NEW.settled_by, NEW.finished_at, '["' || NEW.job_id || '"]', {digest outcome NEW});
END;
-- A cancel also ends a job that waits. There it names no claim: a worker that has lost its lease must
-- not cancel the job.
CREATE TRIGGER job_canceled AFTER INSERT ON holdfast_job_outcome WHEN NEW.state = 'canceled' BEGIN
    SELECT RAISE(ABORT, 'job_moved: an outcome of a job that is in no place under this lease')
    WHERE NOT EXISTS (
            SELECT 1 FROM holdfast_job_running
            WHERE org_id = NEW.org_id AND job_id = NEW.job_id AND lease_token = NEW.lease_token
              AND (started_event_id, claimed_at, claimed_by, started_attempt)
                  = (NEW.started_event_id, NEW.claimed_at, NEW.claimed_by, NEW.started_attempt))
      AND NOT EXISTS (
            SELECT 1 FROM holdfast_job_submitted
            WHERE org_id = NEW.org_id AND job_id = NEW.job_id AND lease_token = NEW.lease_token
              AND (started_event_id, claimed_at, claimed_by, started_attempt)
                  = (NEW.started_event_id, NEW.claimed_at, NEW.claimed_by, NEW.started_attempt))
      AND (NEW.started_event_id IS NOT NULL OR (NOT EXISTS (
            SELECT 1 FROM holdfast_job_waiting
            WHERE org_id = NEW.org_id AND job_id = NEW.job_id AND lease_token = NEW.lease_token)
      AND NOT EXISTS (
            SELECT 1 FROM holdfast_job_envelope AS job
            JOIN holdfast_job_ready AS ready
              ON ready.queue IN (job.origin_queue, job.queue) AND ready.limit_key = job.limit_key
             AND ready.org_id = job.org_id AND ready.turn = coalesce(job.turn, job.id)
            WHERE job.org_id = NEW.org_id AND job.id = NEW.job_id
              AND ready.job_id = job.id AND ready.lease_token = NEW.lease_token)));
    SELECT RAISE(ABORT, 'job_attempts: attempt_count grows by one with a failure, and with no other outcome')
    WHERE NEW.attempt_count <> coalesce(
        (SELECT max(attempt_count, 0) FROM holdfast_job_running
         WHERE org_id = NEW.org_id AND job_id = NEW.job_id),
        (SELECT attempt_count FROM holdfast_job_attempt
         WHERE org_id = NEW.org_id AND job_id = NEW.job_id ORDER BY number DESC LIMIT 1), 0);
    DELETE FROM holdfast_job_running WHERE org_id = NEW.org_id AND job_id = NEW.job_id;
    DELETE FROM holdfast_job_submitted WHERE org_id = NEW.org_id AND job_id = NEW.job_id;
    DELETE FROM holdfast_job_waiting WHERE org_id = NEW.org_id AND job_id = NEW.job_id;
    DELETE FROM holdfast_job_ready
    WHERE (queue, limit_key, org_id, turn) IN (
        SELECT place.queue, job.limit_key, job.org_id, coalesce(job.turn, job.id)
        FROM holdfast_job_envelope AS job
        JOIN (SELECT origin_queue AS queue FROM holdfast_job_envelope
              WHERE org_id = NEW.org_id AND id = NEW.job_id
              UNION SELECT queue FROM holdfast_job_envelope
              WHERE org_id = NEW.org_id AND id = NEW.job_id) AS place
        WHERE job.org_id = NEW.org_id AND job.id = NEW.job_id);
END;

CREATE TRIGGER job_promoted AFTER UPDATE OF not_before_at ON holdfast_job_waiting
WHEN NEW.not_before_at IS NULL BEGIN
    INSERT INTO holdfast_job_ready
        (queue, limit_key, org_id, turn, job_id, created_at, lease_token, unit)
    VALUES (NEW.queue, NEW.limit_key, NEW.org_id, NEW.turn, NEW.job_id, NEW.created_at,
            NEW.lease_token, NEW.unit);
    DELETE FROM holdfast_job_waiting WHERE org_id = NEW.org_id AND job_id = NEW.job_id;
END;

-- A place changes only by these triggers. SQLite does not tell a trigger who fired it, so a row may
-- enter a place only if the job is in no other, and leave it only if the job is in another or has
-- ended.
CREATE TRIGGER job_ready_follows BEFORE INSERT ON holdfast_job_ready
WHEN EXISTS (SELECT 1 FROM holdfast_job_running WHERE org_id = NEW.org_id AND job_id = NEW.job_id)
  OR EXISTS (SELECT 1 FROM holdfast_job_outcome WHERE org_id = NEW.org_id AND job_id = NEW.job_id)
  OR EXISTS (SELECT 1 FROM holdfast_job_submitted WHERE org_id = NEW.org_id AND job_id = NEW.job_id)
  OR EXISTS (SELECT 1 FROM holdfast_job_waiting WHERE org_id = NEW.org_id AND job_id = NEW.job_id
             AND not_before_at IS NOT NULL)
  OR NOT EXISTS (SELECT 1 FROM holdfast_job_envelope AS job
                 WHERE job.org_id = NEW.org_id AND job.id = NEW.job_id
                   AND job.limit_key = NEW.limit_key AND coalesce(job.turn, job.id) = NEW.turn
                   AND NEW.queue IN (job.origin_queue, job.queue)
                   AND (job.queue IS NULL OR NOT EXISTS (
                       SELECT 1 FROM holdfast_job_ready AS ready
                       WHERE ready.queue IN (job.origin_queue, job.queue)
                         AND ready.limit_key = NEW.limit_key AND ready.org_id = NEW.org_id
                         AND ready.turn = NEW.turn)))
  OR EXISTS (SELECT 1 FROM holdfast_job_ready
             WHERE queue = NEW.queue AND limit_key = NEW.limit_key AND org_id = NEW.org_id
               AND turn = NEW.turn) BEGIN
    SELECT RAISE(ABORT, 'job_ready_follows: a job moves when its attempt or outcome is recorded');
END;
CREATE TRIGGER job_ready_write_once BEFORE UPDATE ON holdfast_job_ready BEGIN
    SELECT RAISE(ABORT, 'job_ready_write_once: a job moves when its attempt or outcome is recorded');
END;
CREATE TRIGGER job_ready_leaves BEFORE DELETE ON holdfast_job_ready
WHEN NOT EXISTS (SELECT 1 FROM holdfast_job_running WHERE org_id = OLD.org_id AND job_id = OLD.job_id)
 AND NOT EXISTS (SELECT 1 FROM holdfast_job_outcome WHERE org_id = OLD.org_id AND job_id = OLD.job_id)
BEGIN
    SELECT RAISE(ABORT, 'job_ready_leaves: a job moves when its attempt or outcome is recorded');
END;
CREATE TRIGGER job_waiting_follows BEFORE INSERT ON holdfast_job_waiting
WHEN NEW.not_before_at IS NULL
  OR EXISTS (SELECT 1 FROM holdfast_job_waiting WHERE org_id = NEW.org_id AND job_id = NEW.job_id)
  OR EXISTS (SELECT 1 FROM holdfast_job_running WHERE org_id = NEW.org_id AND job_id = NEW.job_id)
  OR EXISTS (SELECT 1 FROM holdfast_job_outcome WHERE org_id = NEW.org_id AND job_id = NEW.job_id)
  OR EXISTS (SELECT 1 FROM holdfast_job_submitted WHERE org_id = NEW.org_id AND job_id = NEW.job_id)
  OR NOT EXISTS (SELECT 1 FROM holdfast_job_envelope AS job
                 WHERE job.org_id = NEW.org_id AND job.id = NEW.job_id
                   AND job.limit_key = NEW.limit_key AND coalesce(job.turn, job.id) = NEW.turn
                   AND NEW.queue IN (job.origin_queue, job.queue)
                   AND NOT EXISTS (
                       SELECT 1 FROM holdfast_job_ready AS ready
                       WHERE ready.queue IN (job.origin_queue, job.queue)
                         AND ready.limit_key = NEW.limit_key AND ready.org_id = NEW.org_id
                         AND ready.turn = NEW.turn))
BEGIN
    SELECT RAISE(ABORT, 'job_waiting_follows: a job moves when its attempt or outcome is recorded');
END;
CREATE TRIGGER job_waiting_leaves BEFORE DELETE ON holdfast_job_waiting
WHEN OLD.not_before_at IS NOT NULL
 AND NOT EXISTS (SELECT 1 FROM holdfast_job_running WHERE org_id = OLD.org_id AND job_id = OLD.job_id)
 AND NOT EXISTS (SELECT 1 FROM holdfast_job_outcome WHERE org_id = OLD.org_id AND job_id = OLD.job_id)
BEGIN
    SELECT RAISE(ABORT, 'job_waiting_leaves: a job moves when its attempt or outcome is recorded');
END;
CREATE TRIGGER job_waiting_keeps_its_queues BEFORE UPDATE OF queue ON holdfast_job_waiting
WHEN NEW.queue <> OLD.queue
 AND NOT EXISTS (SELECT 1 FROM holdfast_job_envelope AS job
                 WHERE job.org_id = NEW.org_id AND job.id = NEW.job_id
                   AND NEW.queue IN (job.origin_queue, job.queue))
BEGIN
    SELECT RAISE(ABORT, 'job_waiting_follows: a job waits in a queue that its enqueue named');
END;
CREATE TRIGGER job_waiting_write_once BEFORE UPDATE OF org_id, job_id, limit_key, turn, created_at,
    lease_token, unit
ON holdfast_job_waiting BEGIN
    SELECT RAISE(ABORT, 'job_waiting_write_once: a job moves when its attempt or outcome is recorded');
END;
CREATE TRIGGER job_running_write_once BEFORE UPDATE OF org_id, job_id, turn, started_event_id,
    started_attempt, claimed_at, claimed_by, lease_token, queue, limit_key
ON holdfast_job_running BEGIN
    SELECT RAISE(ABORT, 'job_running_write_once: a job moves when its attempt or outcome is recorded');
END;
CREATE TRIGGER job_running_follows BEFORE UPDATE OF attempt_count, max_attempts, stage
ON holdfast_job_running
WHEN NOT EXISTS (SELECT 1 FROM holdfast_job_attempt
                 WHERE org_id = NEW.org_id AND job_id = NEW.job_id
                   AND lease_token = NEW.lease_token AND keeps_lease AND stage = NEW.stage
                   AND attempt_count = NEW.attempt_count AND max_attempts = NEW.max_attempts)
BEGIN
    SELECT RAISE(ABORT, 'job_running_follows: a job moves when its attempt or outcome is recorded');
END;
CREATE TRIGGER job_running_leaves BEFORE DELETE ON holdfast_job_running
WHEN NOT EXISTS (SELECT 1 FROM holdfast_job_outcome WHERE org_id = OLD.org_id AND job_id = OLD.job_id)
 AND NOT EXISTS (SELECT 1 FROM holdfast_job_attempt WHERE org_id = OLD.org_id AND job_id = OLD.job_id
                 AND lease_token = OLD.lease_token AND NOT keeps_lease)
 AND NOT EXISTS (SELECT 1 FROM holdfast_job_submitted WHERE org_id = OLD.org_id AND job_id = OLD.job_id)
BEGIN
    SELECT RAISE(ABORT, 'job_running_leaves: a job moves when its attempt or outcome is recorded');
END;
CREATE TRIGGER job_submitted_write_once BEFORE UPDATE ON holdfast_job_submitted BEGIN
    SELECT RAISE(ABORT, 'job_submitted_write_once: a job moves when its attempt or outcome is recorded');
END;
CREATE TRIGGER job_submitted_leaves BEFORE DELETE ON holdfast_job_submitted
WHEN NOT EXISTS (SELECT 1 FROM holdfast_job_outcome WHERE org_id = OLD.org_id AND job_id = OLD.job_id)
 AND NOT EXISTS (SELECT 1 FROM holdfast_job_attempt WHERE org_id = OLD.org_id AND job_id = OLD.job_id
                 AND lease_token = OLD.lease_token AND NOT keeps_lease)
BEGIN
    SELECT RAISE(ABORT, 'job_submitted_leaves: a job moves when its attempt or outcome is recorded');
END;

-- INSERT OR REPLACE deletes the rows in its way, on most connections without their DELETE triggers.
-- These refuse it where no other trigger does: a claim, a submission or an outcome that exists already
-- is of a job that is not in the place that the new row deletes, and a job that exists already is in a
-- place or has ended.
CREATE TRIGGER job_event_never_replaced BEFORE INSERT ON holdfast_audit_event
-- An id that is not given reads as -1 here.
WHEN NEW.id <> -1
 AND (NEW.id < 1 OR EXISTS (SELECT 1 FROM holdfast_audit_event WHERE id = NEW.id))
BEGIN
    SELECT RAISE(ABORT, 'job_event_never_leaves: the audit is append-only');
END;
CREATE TRIGGER job_remainder_never_replaced BEFORE INSERT ON holdfast_job_remainder
WHEN EXISTS (SELECT 1 FROM holdfast_job_remainder WHERE org_id = NEW.org_id AND job_id = NEW.job_id)
BEGIN
    SELECT RAISE(ABORT, 'job_remainder_never_leaves: the audit is append-only');
END;
CREATE TRIGGER job_cancel_never_replaced BEFORE INSERT ON holdfast_job_cancel
WHEN EXISTS (SELECT 1 FROM holdfast_job_cancel WHERE org_id = NEW.org_id AND job_id = NEW.job_id)
BEGIN
    SELECT RAISE(ABORT, 'job_cancel_never_changes: a cancel request is recorded once');
END;
CREATE TRIGGER job_envelope_never_replaced BEFORE INSERT ON holdfast_job_envelope
WHEN NEW.idempotency_key IS NOT NULL OR NEW.unit_key IS NOT NULL BEGIN
    SELECT RAISE(ABORT, 'job_once_per_key: an idempotency key belongs to one job')
    WHERE EXISTS (
        SELECT 1 FROM holdfast_job_envelope
        WHERE org_id = NEW.org_id AND idempotency_key = NEW.idempotency_key);
    SELECT RAISE(ABORT, 'job_once_per_unit: an execution unit belongs to one job')
    WHERE NEW.replay_of IS NULL AND EXISTS (
        SELECT 1 FROM holdfast_job_envelope
        WHERE org_id = NEW.org_id AND job_type = NEW.job_type AND unit_key = NEW.unit_key
          AND replay_of IS NULL);
END;

-- A job is deleted after it has ended, with its facts; the audit says so.
CREATE TRIGGER job_leaves_only_when_ended BEFORE DELETE ON holdfast_job_envelope
WHEN NOT EXISTS (SELECT 1 FROM holdfast_job_outcome WHERE org_id = OLD.org_id AND job_id = OLD.id)
BEGIN
    SELECT RAISE(ABORT, 'job_leaves_only_when_ended: a job that has not ended cannot be deleted');
END;
CREATE TRIGGER job_facts_leave AFTER DELETE ON holdfast_job_envelope BEGIN
    DELETE FROM holdfast_job_outcome WHERE org_id = OLD.org_id AND job_id = OLD.id;
    DELETE FROM holdfast_job_attempt WHERE org_id = OLD.org_id AND job_id = OLD.id;
    DELETE FROM holdfast_job_cancel WHERE org_id = OLD.org_id AND job_id = OLD.id;
    DELETE FROM holdfast_job_key_seen WHERE org_id = OLD.org_id AND job_id = OLD.id;
END;
CREATE TRIGGER job_outcome_stays BEFORE DELETE ON holdfast_job_outcome
WHEN EXISTS (SELECT 1 FROM holdfast_job_envelope WHERE org_id = OLD.org_id AND id = OLD.job_id)
BEGIN
    SELECT RAISE(ABORT, 'job_outcome_stays: the outcome of a job is deleted only with the job');
END;
CREATE TRIGGER job_attempt_stays BEFORE DELETE ON holdfast_job_attempt
WHEN EXISTS (SELECT 1 FROM holdfast_job_envelope WHERE org_id = OLD.org_id AND id = OLD.job_id)
BEGIN
    SELECT RAISE(ABORT, 'job_attempt_stays: an attempt is deleted only with its job');
END;
CREATE TRIGGER job_cancel_stays BEFORE DELETE ON holdfast_job_cancel
WHEN EXISTS (SELECT 1 FROM holdfast_job_envelope WHERE org_id = OLD.org_id AND id = OLD.job_id)
BEGIN
    SELECT RAISE(ABORT, 'job_cancel_stays: a cancel request is deleted only with its job');
END;
