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
WHERE (CAST(:org_id AS {uuid}) IS NULL OR tick.org_id = :org_id)
  AND ((tick.outcome = 'enqueued'
        AND NOT EXISTS (SELECT 1 FROM holdfast.job_event AS event
                        WHERE event.job_id = tick.job_id AND event.name = 'job.enqueued'))
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
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       CASE WHEN job.created_at > CAST(:ahead AS {instant}) THEN 'created_at'
            WHEN job.updated_at > CAST(:ahead AS {instant}) THEN 'updated_at'
            WHEN job.claimed_at > CAST(:ahead AS {instant}) THEN 'claimed_at'
            WHEN job.finished_at > CAST(:ahead AS {instant}) THEN 'finished_at'
            WHEN job.first_failed_at > CAST(:ahead AS {instant}) THEN 'first_failed_at'
            WHEN job.last_error_at > CAST(:ahead AS {instant}) THEN 'last_error_at'
            WHEN job.cancel_requested_at > CAST(:ahead AS {instant}) THEN 'cancel_requested_at'
            ELSE 'key_last_seen_at' END || ' is in the future' AS detail
FROM holdfast.job_record AS job
WHERE (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND (job.created_at > CAST(:ahead AS {instant}) OR job.updated_at > CAST(:ahead AS {instant})
       OR job.claimed_at > CAST(:ahead AS {instant})
       OR job.finished_at > CAST(:ahead AS {instant})
       OR job.first_failed_at > CAST(:ahead AS {instant})
       OR job.last_error_at > CAST(:ahead AS {instant})
       OR job.cancel_requested_at > CAST(:ahead AS {instant})
       OR job.key_last_seen_at > CAST(:ahead AS {instant}))
UNION ALL
SELECT org_id, 'event:' || CAST(id AS text), 'at is in the future'
FROM holdfast.job_event
WHERE at > CAST(:ahead AS {instant}) AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id);

-- find_ahead_beside :many — I36, crosses tenants: other rows with a timestamp in the future
SELECT found.org_id, found.subject, 'one of its timestamps is in the future' AS detail
FROM (
    SELECT org_id, 'stage:' || CAST(job_id AS text) || ':' || stage AS subject, updated_at AS one,
           finished_at AS other
    FROM holdfast.job_stage
    UNION ALL
    SELECT org_id, 'stage:' || CAST(job_id AS text) || ':' || stage, updated_at, finished_at
    FROM holdfast.job_stage_history
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
SELECT found.org_id, found.subject, found.detail
FROM (
    SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
           CASE
               WHEN job.claimed_at < job.created_at
                   AND {ms_since(job.claimed_at)} - {ms_since(job.created_at)}
                       > CAST(:tolerance_ms AS bigint)
                   THEN 'it was claimed before it was created'
               WHEN job.finished_at < job.created_at
                   AND {ms_since(job.finished_at)} - {ms_since(job.created_at)}
                       > CAST(:tolerance_ms AS bigint)
                   THEN 'it ended before it was created'
               WHEN job.last_error_at < job.first_failed_at
                   AND {ms_since(job.last_error_at)} - {ms_since(job.first_failed_at)}
                       > CAST(:tolerance_ms AS bigint)
                   THEN 'its last failure is before its first'
           END AS detail
    FROM holdfast.job_record AS job
    WHERE CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id
) AS found
WHERE found.detail IS NOT NULL
UNION ALL
SELECT ended.org_id, 'event:' || CAST(ended.id AS text), 'the attempt ended before it began'
FROM holdfast.job_event AS ended
CROSS JOIN holdfast.job_event AS started
WHERE ended.name IN ('job.succeeded', 'job.failed', 'job.snoozed', 'job.released', 'job.advanced')
  AND (CAST(:org_id AS {uuid}) IS NULL OR ended.org_id = :org_id)
  AND started.job_id = ended.job_id AND started.id < ended.id AND started.name = 'job.started'
  AND started.at > ended.at
  AND {ms_since(ended.at)} - {ms_since(started.at)} > CAST(:tolerance_ms AS bigint);
