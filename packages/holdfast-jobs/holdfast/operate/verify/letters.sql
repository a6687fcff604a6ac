-- The invariants of dead letters, I27 and I28. Each statement selects org_id, subject and detail of
-- violations, of one tenant or, if :org_id is NULL, of all.

-- find_unwritten :many — I27, crosses tenants: failed jobs without a dead letter
-- A replay belongs to the dead letter of its original, as long as there is one.
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       'it failed without a dead letter' AS detail
FROM holdfast.job_outcome AS outcome
JOIN holdfast.job_envelope AS job ON job.org_id = outcome.org_id AND job.id = outcome.job_id
WHERE outcome.state = 'failed' AND (CAST(:org_id AS {uuid}) IS NULL OR outcome.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.dead_letter AS letter
                  WHERE letter.org_id = job.org_id AND letter.job_id = job.id)
  AND (job.replay_of IS NULL
       OR (EXISTS (SELECT 1 FROM holdfast.dead_letter AS letter
                   WHERE letter.org_id = job.org_id AND letter.job_id = job.replay_of)
           AND NOT EXISTS (SELECT 1 FROM holdfast.dead_letter_replay AS replay
                           WHERE replay.org_id = job.org_id AND replay.replay_job_id = job.id)));

-- find_misplaced :many — I27, crosses tenants: dead letters of jobs that did not fail, or of replays
SELECT letter.org_id, 'dead_letter:' || CAST(letter.job_id AS text) AS subject,
       CASE WHEN job.id IS NULL THEN 'its job does not exist'
            WHEN coalesce(outcome.state, '') <> 'failed' THEN 'its job did not fail'
            ELSE 'its job is a replay, whose failures belong to the original''s dead letter' END AS detail
FROM holdfast.dead_letter AS letter
LEFT JOIN holdfast.job_envelope AS job ON job.org_id = letter.org_id AND job.id = letter.job_id
LEFT JOIN holdfast.job_outcome AS outcome
  ON outcome.org_id = letter.org_id AND outcome.job_id = letter.job_id
WHERE (CAST(:org_id AS {uuid}) IS NULL OR letter.org_id = :org_id)
  AND (job.id IS NULL OR coalesce(outcome.state, '') <> 'failed'
       OR EXISTS (SELECT 1 FROM holdfast.dead_letter_replay AS replay
                  WHERE replay.org_id = letter.org_id AND replay.replay_job_id = letter.job_id));

-- find_incomplete :many — I27, crosses tenants: dead letters without the failure, its stage or its time
SELECT found.org_id, 'dead_letter:' || CAST(found.job_id AS text) AS subject, found.detail
FROM (
    SELECT letter.org_id, letter.job_id,
           CASE
               WHEN letter.error_class = '' OR length(letter.error_class) > 64
                   OR trim(letter.error_class, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_') <> ''
                   THEN 'its error class is missing or invalid'
               WHEN letter.stage = '' THEN 'its stage is missing'
               WHEN letter.first_failure_at > letter.last_failure_at
                   OR letter.last_failure_at > letter.updated_at
                   THEN 'its failures are not in order'
               WHEN length(letter.last_error) > :error THEN 'its error is too long'
               WHEN length(letter.last_stack) > :stack THEN 'its stack is too long'
               WHEN length(CAST(letter.sanitized_context AS text)) > :context
                   THEN 'its context is too long'
               WHEN letter.error_class <> coalesce(died.error_class, letter.error_class)
                   OR letter.stage <> coalesce(
                       (SELECT job.stage FROM holdfast.job AS job
                        WHERE job.org_id = died.org_id AND job.id = died.job_id), letter.stage)
                   THEN 'its failure differs from its job''s'
           END AS detail
    FROM holdfast.dead_letter AS letter
    LEFT JOIN holdfast.job_outcome AS died
      ON died.org_id = letter.org_id
      AND died.job_id = coalesce(letter.failed_replay_id, letter.job_id)
    WHERE CAST(:org_id AS {uuid}) IS NULL OR letter.org_id = :org_id
) AS found
WHERE found.detail IS NOT NULL;

-- find_unlinked :many — I28, crosses tenants: replays without a job that repeats the original
-- The job may be pruned; its audit is not.
SELECT replay.org_id, 'dead_letter:' || CAST(replay.job_id AS text) AS subject,
       CASE WHEN job.id IS NULL
            THEN 'the job of replay ' || CAST(replay.number AS text) || ' was never enqueued'
            ELSE 'the job of replay ' || CAST(replay.number AS text) || ' repeats another one'
       END AS detail
FROM holdfast.dead_letter_replay AS replay
LEFT JOIN holdfast.job_envelope AS job
  ON job.org_id = replay.org_id AND job.id = replay.replay_job_id
WHERE (CAST(:org_id AS {uuid}) IS NULL OR replay.org_id = :org_id)
  AND (job.replay_of IS NULL OR job.replay_of <> replay.job_id)
  AND (job.id IS NOT NULL
       OR NOT EXISTS (SELECT 1 FROM holdfast.job_remainder AS gone
                      WHERE gone.org_id = replay.org_id AND gone.job_id = replay.replay_job_id))
UNION ALL
SELECT job.org_id, 'job:' || CAST(job.id AS text),
       'its dead letter does not list this replay'
FROM holdfast.job_envelope AS job
WHERE job.replay_of IS NOT NULL AND (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND EXISTS (SELECT 1 FROM holdfast.dead_letter AS letter
              WHERE letter.org_id = job.org_id AND letter.job_id = job.replay_of)
  AND NOT EXISTS (SELECT 1 FROM holdfast.dead_letter_replay AS replay
                  WHERE replay.org_id = job.org_id AND replay.replay_job_id = job.id);

-- find_unexplained :many — I28, crosses tenants: replays without an actor, a reason or an audit event
SELECT replay.org_id, 'dead_letter:' || CAST(replay.job_id AS text) AS subject,
       'replay ' || CAST(replay.number AS text) || ' has no actor or reason' AS detail
FROM holdfast.dead_letter_replay AS replay
WHERE (CAST(:org_id AS {uuid}) IS NULL OR replay.org_id = :org_id)
  AND (trim(replay.actor_id) = '' OR trim(replay.reason) = ''
       OR NOT EXISTS (SELECT 1 FROM holdfast.audit_event AS event
                      WHERE event.jobs IS NULL AND event.job_id = replay.job_id
                        AND event.org_id = replay.org_id
                        AND event.name = 'dead_letter.replay_requested'
                        AND event.actor_type = replay.actor_type
                        AND event.actor_id = replay.actor_id
                        AND {field(event.detail, replay_job_id)}
                            = CAST(replay.replay_job_id AS text)));

-- find_strayed :many — I28, crosses tenants: replays that did not begin at the failed stage, without a full restart
SELECT replay.org_id, 'dead_letter:' || CAST(replay.job_id AS text) AS subject,
       'replay ' || CAST(replay.number AS text) || ' started at the wrong stage' AS detail
FROM holdfast.dead_letter_replay AS replay
WHERE (CAST(:org_id AS {uuid}) IS NULL OR replay.org_id = :org_id)
  AND ((NOT replay.full_restart AND replay.stage <> replay.failed_stage)
       OR replay.stage <> coalesce(
           (SELECT {field(event.detail, stage)} FROM holdfast.audit_event AS event
            WHERE event.jobs IS NULL AND event.org_id = replay.org_id
              AND event.job_id = replay.replay_job_id AND event.name = 'job.advanced'
            ORDER BY event.id LIMIT 1),
           (SELECT job.stage FROM holdfast.job AS job
            WHERE job.org_id = replay.org_id AND job.id = replay.replay_job_id), replay.stage));

-- find_unended :many — I28, crosses tenants: dead letters or replays without the outcome of their job
SELECT replay.org_id, 'dead_letter:' || CAST(replay.job_id AS text) AS subject,
       'replay ' || CAST(replay.number AS text) || ' is ' || coalesce(replay.outcome, 'running')
           || ', its job is ' || job.state AS detail
FROM holdfast.dead_letter_replay AS replay
JOIN holdfast.job AS job ON job.org_id = replay.org_id AND job.id = replay.replay_job_id
WHERE (CAST(:org_id AS {uuid}) IS NULL OR replay.org_id = :org_id)
  AND coalesce(replay.outcome, '')
      <> CASE WHEN job.state IN ('completed', 'failed', 'canceled') THEN job.state ELSE '' END
UNION ALL
SELECT letter.org_id, 'dead_letter:' || CAST(letter.job_id AS text),
       'it is ' || letter.state || ', and its newest replay is '
           || coalesce(newest.outcome, CASE WHEN newest.number IS NULL THEN 'missing'
                                            ELSE 'running' END)
FROM holdfast.dead_letter AS letter
LEFT JOIN holdfast.dead_letter_replay AS newest
  ON newest.org_id = letter.org_id AND newest.job_id = letter.job_id
  AND newest.number = (SELECT max(replay.number) FROM holdfast.dead_letter_replay AS replay
                       WHERE replay.org_id = letter.org_id AND replay.job_id = letter.job_id)
WHERE (CAST(:org_id AS {uuid}) IS NULL OR letter.org_id = :org_id)
  AND ((letter.state = 'replaying') <> (newest.number IS NOT NULL AND newest.ended_at IS NULL)
       OR (letter.state IN ('replayed', 'resolved')
           AND coalesce(newest.outcome, '') <> 'completed'));
