-- Statements of bounded runs and the run log. A run serves every tenant of its queues.

-- skip_runs :many — crosses tenants: insert skipped runs, except ticks already performed
INSERT INTO holdfast.worker_run
    (run_id, name, profile, trigger_kind, actor_type, actor_id, tick, settings, max_jobs_per_run,
     started_at, lost_after, finished_at, outcome, reason, claimed_count, succeeded_count,
     failed_count, requeued_count, released_count, canceled_count, left_count, submitted_count,
     rate_limit_errors, capacity_errors, error_counts, model_counts)
SELECT runs.run_id, runs.name, runs.profile, runs.trigger_kind, runs.actor_type, runs.actor_id,
       runs.tick, runs.settings, runs.max_jobs_per_run, {now}, {later(runs.lost_ms)}, {now},
       'skipped', runs.reason, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, runs.counts, runs.counts
FROM {rows runs: run_id uuid, name text, profile text, trigger_kind text, actor_type text,
      actor_id text, tick instant, settings json, max_jobs_per_run integer, lost_ms bigint,
      reason text, counts json}
WHERE TRUE
ON CONFLICT (name, tick) WHERE tick IS NOT NULL DO NOTHING
RETURNING *;

-- open_run :many — crosses tenants: returns no row if the tick was already performed
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

-- close_run :many — crosses tenants: record the outcome of a run; a lost run stays lost
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

-- close_lost :many — crosses tenants: runs whose process died; their leases expire
UPDATE holdfast.worker_run
SET finished_at = {now}, outcome = 'lost', reason = 'the process that performed it is gone'
WHERE finished_at IS NULL AND lost_after < {now}
RETURNING *;

-- find_run :maybe — crosses tenants: one run
SELECT * FROM holdfast.worker_run WHERE run_id = :run_id;

-- find_tick :maybe — crosses tenants: the run of a tick
SELECT * FROM holdfast.worker_run WHERE name = :name AND tick = CAST(:tick AS {instant});

-- list_runs :many — crosses tenants: newest first, page by page
SELECT * FROM holdfast.worker_run
WHERE run_id < :before AND (CAST(:name AS text) IS NULL OR name = :name)
ORDER BY run_id DESC
LIMIT :limit;

-- prune_runs :affected — crosses tenants: finished runs past their retention
DELETE FROM holdfast.worker_run
WHERE run_id IN (
    SELECT run_id FROM holdfast.worker_run
    WHERE finished_at < {later(-CAST(:keep_ms AS bigint))}
    ORDER BY finished_at
    LIMIT :limit
);

-- count_pending :one — crosses tenants: jobs that a run would find, up to :most per queue
-- One subquery per queue, with ORDER BY: for a list of queues PostgreSQL would scan the whole
-- table.
SELECT coalesce(sum(
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast.job_ready AS ready
        JOIN holdfast.job_envelope AS asked
          ON asked.org_id = ready.org_id AND asked.id = ready.job_id
        WHERE ready.queue = queues.name
          AND ready.limit_key >= CASE WHEN :of_batch = 1 THEN '~batch' ELSE '' END
          AND (ready.limit_key = '~batch') = (:of_batch = 1)
          AND (CAST(:job_types AS text) IS NULL
               OR replace(:job_types, ' ' || asked.job_type || ' ', '') <> :job_types)
        ORDER BY ready.queue, ready.limit_key, ready.org_id, ready.turn
        LIMIT :most) AS fresh)
    + (SELECT count(*) FROM (
        SELECT 1 FROM holdfast.job_waiting AS waiting
        JOIN holdfast.job_envelope AS asked
          ON asked.org_id = waiting.org_id AND asked.id = waiting.job_id
        WHERE waiting.queue = queues.name
          AND (waiting.limit_key = '~batch') = (:of_batch = 1)
          AND waiting.not_before_at <=
              CASE WHEN :early = 1 THEN {later(3155760000000)} ELSE {now} END
          AND (CAST(:job_types AS text) IS NULL
               OR replace(:job_types, ' ' || asked.job_type || ' ', '') <> :job_types)
        ORDER BY waiting.queue, waiting.not_before_at
        LIMIT :most) AS deferred)), 0) AS jobs
FROM {rows queues: name text}
WHERE NOT EXISTS (
    SELECT 1 FROM holdfast.queue AS paused
    WHERE paused.name = queues.name AND paused.paused_at IS NOT NULL);
