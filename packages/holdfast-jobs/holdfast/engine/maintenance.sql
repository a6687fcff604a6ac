-- Finds the maintenance steps that have work, in one statement.

-- find_maintenance :one prepared — crosses tenants: 1 for every step that has work
-- Each condition is that of the step's own statement and uses the same index. A step with retention
-- rules is checked with the shortest of them (:prune_ms) and may then find nothing.
SELECT
    (SELECT 1 FROM holdfast.job_deadline AS deadline
     WHERE deadline.closed_at IS NULL AND deadline.deadline_at <= {now}
     LIMIT 1) AS expire,
    (SELECT 1 FROM holdfast.job_running AS running
     WHERE running.lease_expires_at < {now} AND running.limit_key <> '~batch'
     LIMIT 1) AS rescue,
    (SELECT 1 FROM {rows queues: name text}
     WHERE (SELECT 1 FROM holdfast.job_waiting AS job
            WHERE job.queue = queues.name AND job.not_before_at <= {now}
            ORDER BY job.queue, job.not_before_at LIMIT 1) = 1
     LIMIT 1) AS promote,
    (SELECT 1 FROM holdfast.unique_key AS held
     WHERE held.updated_at < {later(-CAST(:keep_ms AS bigint))}
     LIMIT 1) AS prune_keys,
    (SELECT 1 FROM holdfast.job_deadline AS deadline
     WHERE deadline.closed_at < {later(-CAST(:keep_ms AS bigint))}
     LIMIT 1) AS prune_deadlines,
    coalesce(
        (SELECT 1 FROM holdfast.job_outcome AS past
         WHERE past.state <> 'failed'
           AND past.finished_at < {later(-CAST(:prune_ms AS bigint))}
           AND past.key_expires_at < {now}
         ORDER BY past.finished_at LIMIT 1),
        (SELECT 1 FROM holdfast.dead_letter AS letter
         CROSS JOIN holdfast.job_outcome AS past
         WHERE letter.ended_at < {later(-CAST(:prune_ms AS bigint))}
           AND past.org_id = letter.org_id AND past.job_id = letter.job_id
           AND past.key_expires_at < {now}
         LIMIT 1),
        (SELECT 1 FROM holdfast.job_envelope AS replay
         JOIN holdfast.job_outcome AS past
           ON past.org_id = replay.org_id AND past.job_id = replay.id
         WHERE replay.replay_of IS NOT NULL AND past.state = 'failed'
           AND past.finished_at < {later(-CAST(:prune_ms AS bigint))}
         LIMIT 1)) AS prune,
    coalesce(
        (SELECT 1 FROM holdfast.delivery AS told
         WHERE told.ended_at < {later(-CAST(:keep_ms AS bigint))}
           AND NOT EXISTS (SELECT 1 FROM holdfast.job AS job
                           WHERE job.org_id = told.org_id AND job.id = told.job_id)
         ORDER BY told.ended_at LIMIT 1),
        (SELECT 1 FROM holdfast.in_app_notification AS notice
         WHERE notice.created_at < {later(-CAST(:keep_ms AS bigint))}
         ORDER BY notice.created_at LIMIT 1)) AS prune_deliveries,
    coalesce(
        (SELECT 1 FROM holdfast.worker_run AS run
         WHERE run.finished_at IS NULL AND run.lost_after < {now} LIMIT 1),
        (SELECT 1 FROM holdfast.worker_run AS run
         WHERE run.finished_at < {later(-CAST(:runs_ms AS bigint))} LIMIT 1)) AS clean_run_log,
    (SELECT 1 FROM holdfast.schedule_tick AS tick
     WHERE tick.outcome = 'taken' AND tick.recorded_at < {later(-CAST(:patience_ms AS bigint))}
     LIMIT 1) AS close_ticks,
    (SELECT 1 FROM holdfast.schedule_tick AS tick
     WHERE tick.recorded_at < {later(-CAST(:runs_ms AS bigint))} AND tick.outcome <> 'held'
     ORDER BY tick.recorded_at LIMIT 1) AS prune_ticks,
    (SELECT 1 FROM holdfast.queue AS queue
     WHERE queue.small_depth IS NOT NULL AND queue.small_depth < (
         SELECT count(*) FROM (
             SELECT 1 FROM holdfast.job_ready AS job
             WHERE job.queue = queue.name
             ORDER BY job.queue, job.limit_key, job.org_id, job.turn
             LIMIT (SELECT max(limited.small_depth) + 1 FROM holdfast.queue AS limited)) AS head)
     LIMIT 1) AS crowded;
