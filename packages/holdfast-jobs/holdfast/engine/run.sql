-- Statements of bounded runs and their ledger. A run serves every tenant of its queues.

-- open_run :many — crosses tenants: a tick that was performed already comes back empty
INSERT INTO holdfast.worker_run
    (run_id, name, profile, trigger_kind, actor_type, actor_id, tick, settings, max_jobs_per_run,
     started_at, lost_after, reason)
SELECT runs.run_id, runs.name, runs.profile, runs.trigger_kind, runs.actor_type, runs.actor_id,
       runs.tick, runs.settings, runs.max_jobs_per_run, {now}, {later(runs.lost_ms)}, runs.reason
FROM {rows runs: run_id uuid, name text, profile text, trigger_kind text, actor_type text,
      actor_id text, tick instant, settings json, max_jobs_per_run integer, lost_ms bigint,
      reason text}
WHERE TRUE
ON CONFLICT (name, tick) WHERE tick IS NOT NULL DO NOTHING
RETURNING run_id;

-- close_run :many — crosses tenants: what became of a run; one that was given up for lost stays so
UPDATE holdfast.worker_run AS run
SET finished_at = {now}, outcome = ends.outcome, reason = coalesce(ends.reason, run.reason),
    claimed_count = ends.claimed, succeeded_count = ends.succeeded, failed_count = ends.failed,
    requeued_count = ends.requeued, released_count = ends.released,
    canceled_count = ends.canceled, left_count = ends.remaining,
    submitted_count = ends.submitted,
    rate_limit_errors = ends.rate_limit_errors, capacity_errors = ends.capacity_errors,
    error_counts = ends.error_counts, model_counts = ends.model_counts
FROM {rows ends: run_id uuid, outcome text, reason text, claimed integer, succeeded integer,
      failed integer, requeued integer, released integer, canceled integer, remaining integer,
      submitted integer,
      rate_limit_errors integer, capacity_errors integer, error_counts json, model_counts json}
WHERE run.run_id = ends.run_id AND run.finished_at IS NULL
RETURNING name;

-- close_lost :many — crosses tenants: runs whose process died; their claims come back by their leases
UPDATE holdfast.worker_run
SET finished_at = {now}, outcome = 'lost', reason = 'the process that performed it is gone'
WHERE finished_at IS NULL AND lost_after < {now}
RETURNING *;

-- find_untidy :maybe — crosses tenants: a run that is lost, or past its retention
SELECT run_id FROM holdfast.worker_run
WHERE (finished_at IS NULL AND lost_after < {now})
   OR finished_at < {later(-CAST(:keep_ms AS bigint))}
LIMIT 1;

-- find_run :maybe — crosses tenants: one run
SELECT * FROM holdfast.worker_run WHERE run_id = :run_id;

-- find_tick :maybe — crosses tenants: the run that a tick led to
SELECT * FROM holdfast.worker_run WHERE name = :name AND tick = CAST(:tick AS {instant});

-- list_runs :many — crosses tenants: newest first, page by page
SELECT * FROM holdfast.worker_run
WHERE run_id < :before AND (CAST(:name AS text) IS NULL OR name = :name)
ORDER BY run_id DESC
LIMIT :limit;

-- prune_runs :affected — crosses tenants: ended runs past their retention
DELETE FROM holdfast.worker_run
WHERE run_id IN (
    SELECT run_id FROM holdfast.worker_run
    WHERE finished_at < {later(-CAST(:keep_ms AS bigint))}
    ORDER BY finished_at
    LIMIT :limit
);

-- count_pending :one — crosses tenants: how many jobs of a queue a run would find, up to :most
-- One queue at a time: from a list of queues PostgreSQL guesses a hundred and reads the whole table,
-- 27 ms beside 50,000 waiting jobs instead of 1.
SELECT count(*) AS jobs
FROM (
    SELECT fresh.one FROM (
        SELECT 1 AS one FROM holdfast.job
        WHERE state = 'queued' AND queue = :queue AND not_before_at IS NULL
          AND (limit_key = '~batch') = (:of_batch = 1)
          AND (CAST(:job_types AS text) IS NULL
               OR replace(:job_types, ' ' || job_type || ' ', '') <> :job_types)
        LIMIT :most
    ) AS fresh
    UNION ALL
    SELECT deferred.one FROM (
        SELECT 1 AS one FROM holdfast.job
        WHERE state = 'queued' AND queue = :queue
          AND (limit_key = '~batch') = (:of_batch = 1)
          AND not_before_at <= CASE WHEN :early = 1 THEN {later(3155760000000)} ELSE {now} END
          AND (CAST(:job_types AS text) IS NULL
               OR replace(:job_types, ' ' || job_type || ' ', '') <> :job_types)
        LIMIT :most
    ) AS deferred
    LIMIT :most
) AS pending
WHERE NOT EXISTS (
    SELECT 1 FROM holdfast.queue WHERE name = :queue AND paused_at IS NOT NULL);
