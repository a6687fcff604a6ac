-- The invariant of totals, I37, in the shape of letters.sql.

-- find_miscounted_replays :many — I37, crosses tenants: dead letters with a wrong number of replays
SELECT letter.org_id, 'dead_letter:' || CAST(letter.job_id AS text) AS subject,
       'it counts ' || CAST(letter.replay_count AS text) || ' replays, there are '
           || CAST(count(replay.number) AS text) AS detail
FROM holdfast.dead_letter AS letter
LEFT JOIN holdfast.dead_letter_replay AS replay
  ON replay.org_id = letter.org_id AND replay.job_id = letter.job_id
WHERE CAST(:org_id AS {uuid}) IS NULL OR letter.org_id = :org_id
GROUP BY letter.org_id, letter.job_id, letter.replay_count
HAVING letter.replay_count <> count(replay.number)
    OR letter.replay_count <> coalesce(max(replay.number), 0);

-- find_miscounted_runs :many — I37, crosses tenants: runs whose counts differ from the audit
-- A run may count less than the audit: a job whose row violates a rule is dead-lettered by the
-- claim itself, and a response of the database may be lost. The counts of a failed run are unknown.
-- A collector handles jobs that a submitter claimed earlier, so it has no claims of its own. An
-- orchestrator handles requests, not jobs.
SELECT CAST('00000000-0000-0000-0000-000000000000' AS {uuid}) AS org_id,
       'run:' || CAST(run.run_id AS text) AS subject,
       'it counts ' || CAST(run.claimed_count AS text) || ' claims with '
           || CAST(run.succeeded_count AS text) || ' successes, the audit '
           || CAST(coalesce(told.started, 0) AS text) || ' with '
           || CAST(coalesce(told.succeeded, 0) AS text) AS detail
FROM holdfast.worker_run AS run
LEFT JOIN (
    SELECT actor_id,
           sum(CASE WHEN name = 'job.started' THEN events ELSE 0 END) AS started,
           sum(CASE WHEN name = 'job.succeeded' THEN events ELSE 0 END) AS succeeded,
           sum(CASE WHEN name = 'job.deadlettered' THEN 1 ELSE 0 END) AS failed,
           sum(CASE WHEN name IN ('job.retried', 'job.snoozed', 'job.released') THEN 1 ELSE 0 END)
               AS requeued,
           sum(CASE WHEN name = 'job.released' THEN 1 ELSE 0 END) AS released,
           sum(CASE WHEN name = 'job.submitted' THEN 1 ELSE 0 END) AS submitted,
           sum(CASE WHEN name = 'job.canceled' THEN 1 ELSE 0 END) AS canceled
    FROM holdfast.audit_event
    WHERE actor_type = 'system'
      AND name IN ('job.started', 'job.succeeded', 'job.deadlettered', 'job.retried',
                   'job.snoozed', 'job.released', 'job.submitted', 'job.canceled')
      AND actor_id IN (SELECT CAST(run_id AS text) FROM holdfast.worker_run)
    GROUP BY actor_id
) AS told ON told.actor_id = CAST(run.run_id AS text)
WHERE run.outcome IN ('done', 'full', 'out_of_time', 'stopped', 'skipped')
  AND CAST(:org_id AS {uuid}) IS NULL AND run.name <> 'rewrite_orchestrator'
  AND (run.succeeded_count <> coalesce(told.succeeded, 0)
       OR run.canceled_count <> coalesce(told.canceled, 0)
       OR run.failed_count > coalesce(told.failed, 0)
       OR run.requeued_count > coalesce(told.requeued, 0)
       OR run.released_count > coalesce(told.released, 0)
       OR run.submitted_count > coalesce(told.submitted, 0)
       OR (run.claimed_count > coalesce(told.started, 0)
           AND run.name NOT IN ('batch_collector', 'rewrite_batch_collector')));
