-- The invariants of time, I35 and I36, in the shape of letters.sql.

-- find_repeated :many — I35, crosses tenants: duplicate ticks, or jobs of two ticks
SELECT found.org_id, 'tick:' || found.schedule AS subject,
       'the tick is recorded ' || CAST(found.times AS text) || ' times' AS detail
FROM (
    SELECT min(CAST(org_id AS text)) AS org_id, schedule, count(*) AS times
    FROM holdfast.schedule_tick
    WHERE CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id
    GROUP BY schedule, fire_at
    HAVING count(*) > 1
) AS found
UNION ALL
SELECT found.org_id, 'job:' || found.job_id,
       'it is recorded for ' || CAST(found.times AS text) || ' ticks'
FROM (
    SELECT min(CAST(org_id AS text)) AS org_id, CAST(job_id AS text) AS job_id, count(*) AS times
    FROM holdfast.schedule_tick
    WHERE job_id IS NOT NULL AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
    GROUP BY job_id
    HAVING count(*) > 1
) AS found;

-- find_idle :many — I35, crosses tenants: ticks without a result and without a reason
SELECT tick.org_id, 'tick:' || tick.schedule AS subject,
       CASE WHEN tick.outcome = 'enqueued' THEN 'its job was never enqueued'
            WHEN tick.outcome = 'taken' THEN 'it was claimed without an outcome'
            ELSE 'it is ' || tick.outcome || ' without a reason' END AS detail
FROM holdfast.schedule_tick AS tick
LEFT JOIN holdfast.job_envelope AS own ON own.org_id = tick.org_id AND own.id = tick.job_id
-- A tick of a schedule of several tenants belongs to the platform and names the first job.
LEFT JOIN holdfast.job_envelope AS made ON own.id IS NULL AND made.id = tick.job_id
LEFT JOIN holdfast.job_remainder AS gone ON own.id IS NULL AND gone.job_id = tick.job_id
WHERE (CAST(:org_id AS {uuid}) IS NULL OR tick.org_id = :org_id)
  AND ((tick.outcome = 'enqueued'
        AND own.id IS NULL AND made.id IS NULL AND gone.job_id IS NULL)
       OR (tick.outcome IN ('missed', 'skipped', 'held', 'ran')
           AND trim(coalesce(tick.detail, '')) = '')
       OR (tick.outcome = 'taken' AND tick.recorded_at < CAST(:since AS {instant})
           AND NOT EXISTS (SELECT 1 FROM holdfast.worker_run AS run
                           WHERE run.tick = tick.fire_at)));

-- find_runless :many — I35, crosses tenants: ticks whose run is not in the run log
SELECT tick.org_id, 'tick:' || tick.schedule AS subject, 'its run is not in the run log' AS detail
FROM holdfast.schedule_tick AS tick
WHERE tick.run_id IS NOT NULL AND tick.recorded_at > CAST(:kept_since AS {instant})
  AND (CAST(:org_id AS {uuid}) IS NULL OR tick.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.worker_run AS run WHERE run.run_id = tick.run_id);

-- find_ahead :many — I36, crosses tenants: jobs with a timestamp in the future
SELECT found.org_id, found.subject, found.name || ' is in the future' AS detail
FROM (
    SELECT org_id, 'job:' || CAST(id AS text) AS subject, 'created_at' AS name, created_at AS at
    FROM holdfast.job_envelope
    UNION ALL
    SELECT org_id, 'job:' || CAST(job_id AS text), 'claimed_at', claimed_at
    FROM holdfast.job_running
    UNION ALL
    SELECT org_id, 'job:' || CAST(job_id AS text), 'submitted_at', submitted_at
    FROM holdfast.job_submitted
    UNION ALL
    SELECT org_id, 'job:' || CAST(job_id AS text), 'ended_at', ended_at FROM holdfast.job_attempt
    UNION ALL
    SELECT org_id, 'job:' || CAST(job_id AS text), 'first_failed_at', first_failed_at
    FROM holdfast.job_attempt
    UNION ALL
    SELECT org_id, 'job:' || CAST(job_id AS text), 'last_error_at', last_error_at
    FROM holdfast.job_attempt
    UNION ALL
    SELECT org_id, 'job:' || CAST(job_id AS text), 'finished_at', finished_at
    FROM holdfast.job_outcome
    UNION ALL
    SELECT org_id, 'job:' || CAST(job_id AS text), 'cancel_requested_at', requested_at
    FROM holdfast.job_cancel
    UNION ALL
    SELECT org_id, 'job:' || CAST(job_id AS text), 'key_last_seen_at', last_seen_at
    FROM holdfast.job_key_seen
    UNION ALL
    SELECT org_id, 'event:' || CAST(id AS text), 'at', at FROM holdfast.audit_event
) AS found
WHERE found.at > CAST(:ahead AS {instant})
  AND (CAST(:org_id AS {uuid}) IS NULL OR found.org_id = :org_id);

-- find_ahead_beside :many — I36, crosses tenants: other rows with a timestamp in the future
SELECT found.org_id, found.subject, 'one of its timestamps is in the future' AS detail
FROM (
    SELECT org_id, 'stage:' || CAST(job_id AS text) || ':' || stage AS subject, updated_at AS one,
           finished_at AS other
    FROM holdfast.job_stage
    UNION ALL
    SELECT org_id, 'dead_letter:' || CAST(job_id AS text), updated_at, last_failure_at
    FROM holdfast.dead_letter
    UNION ALL
    SELECT org_id, 'dead_letter:' || CAST(job_id AS text), created_at, ended_at
    FROM holdfast.dead_letter
    UNION ALL
    SELECT org_id, 'replay:' || CAST(replay_job_id AS text), requested_at, ended_at
    FROM holdfast.dead_letter_replay
    UNION ALL
    SELECT org_id, 'note:' || CAST(id AS text), created_at, NULL FROM holdfast.dead_letter_note
    UNION ALL
    SELECT org_id, 'audit_note:' || CAST(event_id AS text), created_at, NULL
    FROM holdfast.audit_note
    UNION ALL
    SELECT org_id, 'tick:' || schedule, fire_at, recorded_at FROM holdfast.schedule_tick
    UNION ALL
    SELECT org_id, 'schedule:' || name, updated_at, last_fire_at FROM holdfast.schedule
    UNION ALL
    SELECT org_id, 'delivery:' || CAST(id AS text), updated_at, notified_at FROM holdfast.delivery
    UNION ALL
    SELECT org_id, 'delivery:' || CAST(delivery_id AS text), began_at, ended_at
    FROM holdfast.delivery_attempt
    UNION ALL
    SELECT org_id, 'delivery:' || CAST(delivery_id AS text), at, NULL
    FROM holdfast.delivery_evidence
    UNION ALL
    SELECT CAST('00000000-0000-0000-0000-000000000000' AS {uuid}),
           'run:' || CAST(run_id AS text), started_at, finished_at
    FROM holdfast.worker_run
    UNION ALL
    SELECT CAST('00000000-0000-0000-0000-000000000000' AS {uuid}), 'queue:' || name, updated_at,
           paused_at
    FROM holdfast.queue
) AS found
WHERE (found.one > CAST(:ahead AS {instant}) OR found.other > CAST(:ahead AS {instant}))
  AND (CAST(:org_id AS {uuid}) IS NULL OR found.org_id = :org_id);

-- find_backwards :many — I36, crosses tenants: jobs that ended or were claimed before they were created
SELECT running.org_id, 'job:' || CAST(running.job_id AS text) AS subject,
       'it was claimed before it was created' AS detail
FROM holdfast.job_running AS running
JOIN holdfast.job_envelope AS job ON job.org_id = running.org_id AND job.id = running.job_id
WHERE (CAST(:org_id AS {uuid}) IS NULL OR running.org_id = :org_id)
  AND running.claimed_at < job.created_at
  AND {ms_since(running.claimed_at)} - {ms_since(job.created_at)} > CAST(:tolerance_ms AS bigint)
UNION ALL
SELECT outcome.org_id, 'job:' || CAST(outcome.job_id AS text),
       'it ended before it was created'
FROM holdfast.job_outcome AS outcome
JOIN holdfast.job_envelope AS job ON job.org_id = outcome.org_id AND job.id = outcome.job_id
WHERE (CAST(:org_id AS {uuid}) IS NULL OR outcome.org_id = :org_id)
  AND outcome.finished_at < job.created_at
  AND {ms_since(outcome.finished_at)} - {ms_since(job.created_at)} > CAST(:tolerance_ms AS bigint)
UNION ALL
SELECT attempt.org_id, 'job:' || CAST(attempt.job_id AS text),
       'attempt ' || CAST(attempt.number AS text) || ' ended before the job was created'
FROM holdfast.job_attempt AS attempt
JOIN holdfast.job_envelope AS job ON job.org_id = attempt.org_id AND job.id = attempt.job_id
WHERE (CAST(:org_id AS {uuid}) IS NULL OR attempt.org_id = :org_id)
  AND attempt.ended_at < job.created_at
  AND {ms_since(attempt.ended_at)} - {ms_since(job.created_at)} > CAST(:tolerance_ms AS bigint)
UNION ALL
SELECT attempt.org_id, 'job:' || CAST(attempt.job_id AS text),
       'its last failure is before its first'
FROM holdfast.job_attempt AS attempt
WHERE (CAST(:org_id AS {uuid}) IS NULL OR attempt.org_id = :org_id)
  AND attempt.last_error_at < attempt.first_failed_at
  AND {ms_since(attempt.last_error_at)} - {ms_since(attempt.first_failed_at)}
      > CAST(:tolerance_ms AS bigint)
UNION ALL
SELECT fact.org_id, 'job:' || CAST(fact.job_id AS text), 'the claim ended before it began'
FROM (
    SELECT org_id, job_id, claimed_at, ended_at FROM holdfast.job_attempt
    UNION ALL
    SELECT org_id, job_id, claimed_at, finished_at FROM holdfast.job_outcome
) AS fact
WHERE (CAST(:org_id AS {uuid}) IS NULL OR fact.org_id = :org_id)
  AND fact.ended_at < fact.claimed_at
  AND {ms_since(fact.ended_at)} - {ms_since(fact.claimed_at)} > CAST(:tolerance_ms AS bigint);
