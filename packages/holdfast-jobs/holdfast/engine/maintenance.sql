-- Finds the maintenance steps that have work, in one statement.

-- find_maintenance :one prepared — crosses tenants: 1 for every step that has work
-- Each condition is that of the step's own statement and uses the same index. A step with retention
-- rules is checked with the shortest of them (:prune_ms) and may then find nothing.
WITH RECURSIVE
archived_categories (category) AS (
    SELECT min(category) FROM holdfast.job_history
    UNION ALL
    SELECT (SELECT min(job.category) FROM holdfast.job_history AS job
            WHERE job.category > archived_categories.category)
    FROM archived_categories
    WHERE archived_categories.category IS NOT NULL
),
archived (category, job_type) AS (
    SELECT archived_categories.category,
           (SELECT min(job.job_type) FROM holdfast.job_history AS job
            WHERE job.category = archived_categories.category)
    FROM archived_categories
    UNION ALL
    SELECT archived.category, (SELECT min(job.job_type) FROM holdfast.job_history AS job
                               WHERE job.category = archived.category
                                 AND job.job_type > archived.job_type)
    FROM archived
    WHERE archived.job_type IS NOT NULL
),
failed_categories (category) AS (
    SELECT min(category) FROM holdfast.job WHERE state = 'failed'
    UNION ALL
    SELECT (SELECT min(job.category) FROM holdfast.job AS job
            WHERE job.state = 'failed' AND job.category > failed_categories.category)
    FROM failed_categories
    WHERE failed_categories.category IS NOT NULL
),
failed (category, job_type) AS (
    SELECT failed_categories.category, (SELECT min(job.job_type) FROM holdfast.job AS job
                                        WHERE job.state = 'failed'
                                          AND job.category = failed_categories.category)
    FROM failed_categories
    UNION ALL
    SELECT failed.category, (SELECT min(job.job_type) FROM holdfast.job AS job
                             WHERE job.state = 'failed' AND job.category = failed.category
                               AND job.job_type > failed.job_type)
    FROM failed
    WHERE failed.job_type IS NOT NULL
)
SELECT
    (SELECT 1 FROM holdfast.job_deadline AS deadline
     WHERE deadline.closed_at IS NULL AND deadline.deadline_at <= {now}
     LIMIT 1) AS expire,
    (SELECT 1 FROM holdfast.job AS job
     WHERE job.state = 'processing' AND job.lease_expires_at < {now}
       AND job.limit_key <> '~batch'
     LIMIT 1) AS rescue,
    (SELECT 1 FROM {rows queues: name text}
     WHERE (SELECT 1 FROM holdfast.job AS job
            WHERE job.state = 'queued' AND job.queue = queues.name AND job.not_before_at <= {now}
            ORDER BY job.queue, job.not_before_at LIMIT 1) = 1
     LIMIT 1) AS promote,
    (SELECT 1 FROM holdfast.unique_key AS held
     WHERE held.updated_at < {later(-CAST(:keep_ms AS bigint))}
     LIMIT 1) AS prune_keys,
    (SELECT 1 FROM holdfast.job_deadline AS deadline
     WHERE deadline.closed_at < {later(-CAST(:keep_ms AS bigint))}
     LIMIT 1) AS prune_deadlines,
    (SELECT 1 FROM holdfast.job AS job
     WHERE job.state IN ('completed', 'canceled')
       AND job.finished_at <= {later(-CAST(:archive_ms AS bigint))}
     ORDER BY job.finished_at LIMIT 1) AS archive,
    coalesce(
        (SELECT 1 FROM archived
         WHERE (SELECT 1 FROM holdfast.job_history AS past
                WHERE past.category = archived.category AND past.job_type = archived.job_type
                  AND past.state IN ('completed', 'canceled')
                  AND past.finished_at < {later(-CAST(:prune_ms AS bigint))}
                  AND coalesce(past.key_expires_at, {now}) < {now} AND past.unit_key IS NULL
                LIMIT 1) = 1
         LIMIT 1),
        (SELECT 1 FROM failed
         WHERE (SELECT 1 FROM holdfast.dead_letter AS letter
                JOIN holdfast.job AS past ON past.org_id = letter.org_id AND past.id = letter.job_id
                WHERE letter.job_type = failed.job_type
                  AND letter.ended_at < {later(-CAST(:prune_ms AS bigint))}
                  AND past.state = 'failed' AND past.category = failed.category
                  AND coalesce(past.key_expires_at, {now}) < {now} AND past.unit_key IS NULL
                ORDER BY letter.job_type, letter.ended_at LIMIT 1) = 1
            OR (SELECT 1 FROM holdfast.job AS past
                WHERE past.state = 'failed' AND past.replay_of IS NOT NULL
                  AND past.category = failed.category AND past.job_type = failed.job_type
                  AND past.finished_at < {later(-CAST(:prune_ms AS bigint))}
                ORDER BY past.category, past.job_type, past.finished_at LIMIT 1) = 1
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
             SELECT 1 FROM holdfast.claimable AS job
             WHERE job.queue = queue.name
             ORDER BY job.queue, job.limit_key, job.org_id, job.turn
             LIMIT (SELECT max(limited.small_depth) + 1 FROM holdfast.queue AS limited)) AS head)
     LIMIT 1) AS crowded;
