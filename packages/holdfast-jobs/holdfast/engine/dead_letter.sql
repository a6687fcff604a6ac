-- Dead letters in the transaction that settles their jobs.

-- end_replays :many — crosses tenants: record the outcomes of replays that ended
UPDATE holdfast.dead_letter_replay AS replay
SET outcome = done.became, error_class = done.failure_class, ended_at = done.finished_at
FROM (
    SELECT job.org_id AS tenant, job.id AS replay_id, job.replay_of AS letter_id,
           job.state AS became, job.finished_at,
           CASE WHEN job.state = 'failed' THEN job.error_class END AS failure_class
    FROM {rows ended: org_id uuid, id uuid}
    JOIN holdfast.job AS job ON job.org_id = ended.org_id AND job.id = ended.id
    WHERE job.finished_at IS NOT NULL
) AS done
WHERE replay.org_id = done.tenant AND replay.job_id = done.letter_id
  AND replay.replay_job_id = done.replay_id AND replay.ended_at IS NULL
RETURNING org_id, job_id, replay_job_id;

-- end_replaying :many — crosses tenants: update dead letters after their replays
-- A completed replay closes the dead letter. Any other outcome reopens it; the audit has its
-- earlier states. A permanent failure with the same error escalates. A clock that was set back
-- never puts a failure before the first one.
UPDATE holdfast.dead_letter AS letter
SET state = CASE WHEN done.outcome = 'completed' THEN 'replayed' ELSE 'open' END,
    version = letter.version + 1,
    kind = CASE WHEN done.outcome = 'completed' THEN letter.kind END,
    checklist = CASE WHEN done.outcome = 'completed' THEN letter.checklist END,
    evidence_ref = CASE WHEN done.outcome = 'completed' THEN letter.evidence_ref END,
    is_safe_to_repeat = CASE WHEN done.outcome = 'completed' THEN letter.is_safe_to_repeat END,
    stage = coalesce(done.at_stage, letter.stage),
    error_class = coalesce(done.failure_class, letter.error_class),
    last_error = coalesce(done.failure, letter.last_error),
    last_failure_at = CASE WHEN done.failed_at IS NULL THEN letter.last_failure_at
                           WHEN done.failed_at < letter.first_failure_at
                           THEN letter.first_failure_at ELSE done.failed_at END,
    failed_replay_id = coalesce(done.failed_id, letter.failed_replay_id),
    last_stack = coalesce(done.stack, letter.last_stack),
    sanitized_context = coalesce(done.context, letter.sanitized_context),
    attempts = coalesce(done.tries, letter.attempts),
    escalated_at = CASE WHEN done.is_permanent = 1 AND done.failure_class = letter.error_class
                        THEN CASE WHEN done.finished_at < letter.first_failure_at
                                  THEN letter.first_failure_at ELSE done.finished_at END
                        ELSE letter.escalated_at END,
    updated_at = CASE WHEN done.finished_at < letter.first_failure_at
                      THEN letter.first_failure_at ELSE done.finished_at END
FROM (
    SELECT job.org_id AS tenant, replay.job_id AS letter_id, replay.number, job.state AS outcome,
           job.finished_at, ended.stack, ended.context, ended.tries, ended.is_permanent,
           CASE WHEN job.state = 'failed' THEN job.id END AS failed_id,
           CASE WHEN job.state = 'failed' THEN job.stage END AS at_stage,
           CASE WHEN job.state = 'failed' THEN job.error_class END AS failure_class,
           CASE WHEN job.state = 'failed' THEN job.last_error END AS failure,
           CASE WHEN job.state = 'failed' THEN job.last_error_at END AS failed_at
    FROM {rows ended: org_id uuid, id uuid, stack text, context json, tries integer,
          is_permanent integer}
    JOIN holdfast.job AS job ON job.org_id = ended.org_id AND job.id = ended.id
    JOIN holdfast.dead_letter_replay AS replay
      ON replay.org_id = job.org_id AND replay.replay_job_id = job.id
    WHERE job.finished_at IS NOT NULL
) AS done
WHERE letter.org_id = done.tenant AND letter.job_id = done.letter_id
  AND letter.state = 'replaying' AND letter.replay_count = done.number
RETURNING org_id, job_id, state, attempts, replay_count, error_class, escalated_at, updated_at;

-- insert_dead_letter_events :affected — crosses tenants: insert_events for changes of a dead letter
-- The digest of the job is followed by one of the dead letter with its replays and notes; for a
-- replay, also by one of the inherited stages.
INSERT INTO holdfast.audit_event
    (org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
     correlation_id, at, detail, digest)
SELECT job.org_id, job.project_id, job.id, job.job_type, events.name, events.attempt, :actor_type,
       :actor_id, job.request_id, job.correlation_id, {now},
       {with_fields(events.detail): 'not_before_at', {stamp(job.not_before_at)}},
       {digest state job} || coalesce((
               SELECT ':' || {hash({digest letter letter} || coalesce((
                   SELECT {joined(replays.digest)} FROM (
                       SELECT {digest replay replay} AS digest
                       FROM holdfast.dead_letter_replay AS replay
                       WHERE replay.org_id = letter.org_id AND replay.job_id = letter.job_id
                       ORDER BY replay.number) AS replays), '') || coalesce((
                   SELECT {joined(notes.digest)} FROM (
                       SELECT {digest note note} AS digest
                       FROM holdfast.dead_letter_note AS note
                       WHERE note.org_id = letter.org_id AND note.job_id = letter.job_id
                       ORDER BY note.id) AS notes), ''))}
               FROM holdfast.dead_letter AS letter
               WHERE letter.org_id = job.org_id AND letter.job_id = job.id), '')
           || CASE WHEN events.name = 'dead_letter.replay_requested' THEN (
               SELECT ':' || {hash(coalesce({joined(stages.digest)}, ''))} FROM (
                   SELECT {digest stage stage} AS digest
                   FROM holdfast.job_stage AS stage
                   WHERE stage.org_id = job.org_id AND stage.finished_at IS NOT NULL
                     AND stage.job_id = CAST({field(events.detail, replay_job_id)} AS {uuid})
                   ORDER BY stage.stage) AS stages) ELSE '' END
FROM {rows events: place integer, org_id uuid, id uuid, name text, attempt integer, detail json}
JOIN holdfast.job AS job ON job.org_id = events.org_id AND job.id = events.id
WHERE {numbered}
ORDER BY events.place;
