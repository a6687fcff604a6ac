-- Every statement the engine runs. A worker serves every tenant of its queue, so the statements of
-- the way of a job cross tenants and say so; each of them names the tenant of every row it writes.

-- insert_jobs :many — a key that exists already comes back empty
INSERT INTO holdfast.job
    (id, org_id, project_id, job_type, category, actor_type, actor_id, request_id, correlation_id,
     idempotency_key, payload, payload_hash, priority, unit_key, scheduled_for, traceparent,
     routing_decision, replay_of, origin_queue, queue, stage, pipeline_version, max_attempts,
     not_before_at, created_at, updated_at, key_last_seen_at)
SELECT jobs.id, frames.org_id, frames.project_id, frames.job_type, frames.category,
       frames.actor_type, frames.actor_id, coalesce(frames.request_id, CAST(jobs.id AS text)),
       coalesce(frames.correlation_id, frames.request_id, CAST(jobs.id AS text)),
       jobs.idempotency_key, jobs.payload, jobs.payload_hash, frames.priority, jobs.unit_key,
       frames.scheduled_for, frames.traceparent, frames.routing_decision, frames.replay_of,
       frames.queue, frames.queue, frames.stage, frames.pipeline_version, frames.max_attempts,
       frames.not_before_at, {now}, {now}, {now}
FROM {rows jobs: frame integer, id uuid, idempotency_key text, payload json, payload_hash text,
      unit_key text}
JOIN {rows frames: frame integer, org_id uuid, project_id uuid, job_type text, category text,
      actor_type text, actor_id text, request_id text, correlation_id text, priority smallint,
      scheduled_for instant, traceparent text, routing_decision json, replay_of uuid, queue text,
      stage text, pipeline_version text, max_attempts integer, not_before_at instant}
  ON frames.frame = jobs.frame
WHERE TRUE
ON CONFLICT (idempotency_key) DO NOTHING
RETURNING id, created_at;

-- find_duplicates :many — the jobs that hold these keys already; they were asked for again
UPDATE holdfast.job AS job
SET key_last_seen_at = {now}
FROM {rows keys: org_id uuid, idempotency_key text}
WHERE job.org_id = keys.org_id AND job.idempotency_key = keys.idempotency_key
RETURNING job.id, job.org_id, job.job_type, job.idempotency_key, job.payload_hash, job.created_at,
          job.attempt_count;

-- claim_jobs :many — crosses tenants: takes the due jobs of one queue under a lease
-- MATERIALIZED keeps PostgreSQL from running the LIMIT again under a nested loop and claiming more
-- rows than asked.
WITH claimable AS MATERIALIZED (
    SELECT due.org_id, due.id
    FROM (
        SELECT fresh.org_id, fresh.id, fresh.priority, fresh.due_at FROM (
            SELECT org_id, id, priority, created_at AS due_at
            FROM holdfast.job
            WHERE state = 'queued' AND queue = :queue AND not_before_at IS NULL
              AND (unit_key IS NULL OR {unit_free(CAST(org_id AS text) || job_type || unit_key)})
            ORDER BY priority, created_at, id
            LIMIT :limit
            {skip_locked}
        ) AS fresh
        UNION ALL
        SELECT deferred.org_id, deferred.id, deferred.priority, deferred.due_at FROM (
            SELECT org_id, id, priority, not_before_at AS due_at
            FROM holdfast.job
            WHERE state = 'queued' AND queue = :queue AND not_before_at <= {now}
              AND (unit_key IS NULL OR {unit_free(CAST(org_id AS text) || job_type || unit_key)})
            ORDER BY not_before_at
            LIMIT :limit
            {skip_locked}
        ) AS deferred
    ) AS due
    ORDER BY due.priority, due.due_at, due.id
    LIMIT :limit
)
UPDATE holdfast.job AS job
SET state = 'processing', lease_token = lease_token + 1, claimed_at = {now},
    claimed_by = :worker_id, lease_expires_at = {later(:lease_ms)}, updated_at = {now}
FROM claimable
WHERE job.org_id = claimable.org_id AND job.id = claimable.id
RETURNING job.id, job.org_id, job.project_id, job.job_type, job.category, job.actor_type,
          job.actor_id, job.request_id, job.correlation_id, job.idempotency_key, job.payload,
          job.priority, job.unit_key, job.scheduled_for, job.traceparent, job.routing_decision,
          job.replay_of, job.created_at, job.queue, job.stage, job.pipeline_version,
          job.attempt_count, job.max_attempts, job.lease_token, job.claimed_at, job.claimed_by,
          job.cancel_requested_at, job.first_failed_at;

-- list_due :many — crosses tenants: what a claim would look at, row by row
SELECT org_id, id
FROM holdfast.job
WHERE state = 'queued' AND queue = :queue AND (not_before_at IS NULL OR not_before_at <= {now})
ORDER BY priority, created_at, id
LIMIT :limit;

-- claim_job :many — crosses tenants: claim_jobs for one row, when another one breaks a rule
UPDATE holdfast.job AS job
SET state = 'processing', lease_token = lease_token + 1, claimed_at = {now},
    claimed_by = :worker_id, lease_expires_at = {later(:lease_ms)}, updated_at = {now}
WHERE job.org_id = :org_id AND job.id = :id AND job.state = 'queued'
  AND (job.not_before_at IS NULL OR job.not_before_at <= {now})
  AND (job.unit_key IS NULL
       OR {unit_free(CAST(job.org_id AS text) || job.job_type || job.unit_key)})
RETURNING job.id, job.org_id, job.project_id, job.job_type, job.category, job.actor_type,
          job.actor_id, job.request_id, job.correlation_id, job.idempotency_key, job.payload,
          job.priority, job.unit_key, job.scheduled_for, job.traceparent, job.routing_decision,
          job.replay_of, job.created_at, job.queue, job.stage, job.pipeline_version,
          job.attempt_count, job.max_attempts, job.lease_token, job.claimed_at, job.claimed_by,
          job.cancel_requested_at, job.first_failed_at;

-- repair_job :affected — crosses tenants: a row that breaks a rule, made fit to be buried
UPDATE holdfast.job
SET max_attempts = CASE WHEN attempt_count >= max_attempts THEN attempt_count + 1
                        ELSE max_attempts END,
    result = NULL, updated_at = {now}
WHERE org_id = :org_id AND id = :id AND state IN ('queued', 'processing');

-- renew_leases :many — crosses tenants: only leases that are still ours; the others are lost
UPDATE holdfast.job AS job
SET lease_expires_at = {later(:lease_ms)}
FROM {rows held: org_id uuid, id uuid, lease_token bigint}
WHERE job.org_id = held.org_id AND job.id = held.id AND job.lease_token = held.lease_token
  AND job.state = 'processing'
RETURNING job.id, job.cancel_requested_at;

-- check_lease :maybe — holds the row until the caller's transaction ends, so no rescue gets between
UPDATE holdfast.job
SET updated_at = {now}
WHERE org_id = :org_id AND id = :id AND lease_token = :lease_token AND state = 'processing'
RETURNING id, cancel_requested_at;

-- read_clock :one — crosses tenants: what time it is for the store
SELECT {now} AS now;

-- find_canceled :many — crosses tenants: of the jobs we hold, those that somebody wants stopped
SELECT job.id
FROM {rows held: org_id uuid, id uuid}
JOIN holdfast.job AS job ON job.org_id = held.org_id AND job.id = held.id
WHERE job.cancel_requested_at IS NOT NULL;

-- find_stale :many — crosses tenants: claims whose lease ran out, or whose worker is known to be dead
SELECT id, org_id, project_id, job_type, category, actor_type, actor_id, request_id,
       correlation_id, idempotency_key, payload, priority, unit_key, scheduled_for, traceparent,
       routing_decision, replay_of, created_at, queue, stage, pipeline_version, attempt_count,
       max_attempts, lease_token, claimed_at, claimed_by, cancel_requested_at, first_failed_at
FROM holdfast.job
WHERE state = 'processing'
  AND (lease_expires_at < {now} OR claimed_by = CAST(:dead_worker_id AS text))
ORDER BY lease_expires_at
LIMIT :limit
{skip_locked};

-- settle_jobs :many — crosses tenants: the one door. A lease that is no longer ours changes nothing
UPDATE holdfast.job AS job
SET state = changes.state,
    queue = coalesce(changes.queue, job.queue),
    stage = coalesce(changes.stage, job.stage),
    pipeline_version = coalesce(changes.pipeline_version, job.pipeline_version),
    attempt_count = changes.attempt_count,
    max_attempts = coalesce(changes.max_attempts, job.max_attempts),
    not_before_at = CASE WHEN changes.delay_ms IS NULL THEN job.not_before_at
                         ELSE {later(changes.delay_ms)} END,
    lease_expires_at = CASE WHEN changes.state = 'processing' THEN job.lease_expires_at END,
    claimed_at = CASE WHEN changes.state = 'processing' THEN job.claimed_at END,
    claimed_by = CASE WHEN changes.state = 'processing' THEN job.claimed_by END,
    provider_batch_id = coalesce(job.provider_batch_id, changes.provider_batch_id),
    error_class = coalesce(changes.error_class, job.error_class),
    last_error = coalesce(changes.last_error, job.last_error),
    last_error_at = CASE WHEN changes.last_error IS NULL THEN job.last_error_at ELSE {now} END,
    first_failed_at = CASE WHEN changes.last_error IS NULL THEN job.first_failed_at
                           ELSE coalesce(job.first_failed_at, {now}) END,
    result = changes.result,
    finished_at = CASE WHEN changes.key_ttl_ms IS NOT NULL THEN {now} END,
    key_expires_at = CASE WHEN changes.key_ttl_ms IS NOT NULL THEN {later(changes.key_ttl_ms)} END,
    updated_at = {now}
FROM {rows changes: org_id uuid, id uuid, lease_token bigint, state text, queue text, stage text,
      pipeline_version text, attempt_count integer, max_attempts integer, delay_ms bigint,
      provider_batch_id text, error_class text, last_error text, result json, key_ttl_ms bigint}
WHERE job.org_id = changes.org_id AND job.id = changes.id
  AND job.lease_token = changes.lease_token AND job.state = 'processing'
RETURNING job.id, job.cancel_requested_at;

-- find_ended :many — crosses tenants: jobs that ended under this very claim, in this very state
SELECT job.id
FROM {rows changes: org_id uuid, id uuid, lease_token bigint, state text}
JOIN holdfast.job AS job ON job.org_id = changes.org_id AND job.id = changes.id
WHERE job.lease_token = changes.lease_token AND job.state = changes.state
  AND job.finished_at IS NOT NULL;

-- insert_events :affected — crosses tenants: what did not change is taken from the job itself
INSERT INTO holdfast.job_event
    (org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
     correlation_id, at, detail)
SELECT job.org_id, job.project_id, job.id, job.job_type, events.name, events.attempt, :actor_type,
       :actor_id, job.request_id, job.correlation_id, {now}, events.detail
FROM {rows events: org_id uuid, id uuid, name text, attempt integer, detail json}
JOIN holdfast.job AS job ON job.org_id = events.org_id AND job.id = events.id
WHERE TRUE;

-- insert_dead_letters :affected — crosses tenants: each carries the tenant of its job
INSERT INTO holdfast.dead_letter
    (org_id, job_id, job_type, queue, stage, error_class, last_error, last_stack,
     sanitized_context, attempts, first_failure_at, last_failure_at, created_at)
SELECT job.org_id, job.id, job.job_type, job.origin_queue, job.stage, job.error_class,
       job.last_error, letters.last_stack, letters.sanitized_context, letters.attempts,
       job.first_failed_at, job.last_error_at, {now}
FROM {rows letters: org_id uuid, id uuid, last_stack text, sanitized_context json, attempts integer}
JOIN holdfast.job AS job ON job.org_id = letters.org_id AND job.id = letters.id
WHERE TRUE
ON CONFLICT DO NOTHING;

-- finish_stages :affected — crosses tenants: a finished stage keeps its result for ever
INSERT INTO holdfast.job_stage AS mine
    (org_id, job_id, stage, attempts, output, updated_at, finished_at)
SELECT stages.org_id, stages.job_id, stages.stage, stages.attempts, stages.output, {now}, {now}
FROM {rows stages: org_id uuid, job_id uuid, stage text, attempts integer, output json}
WHERE TRUE
ON CONFLICT (org_id, job_id, stage) DO UPDATE
SET attempts = excluded.attempts, output = excluded.output, updated_at = excluded.updated_at,
    finished_at = excluded.finished_at
WHERE mine.finished_at IS NULL;

-- save_stage :affected — a checkpoint or progress of the stage that runs now
INSERT INTO holdfast.job_stage AS mine (org_id, job_id, stage, checkpoint, progress, updated_at)
SELECT stages.org_id, stages.job_id, stages.stage, stages.checkpoint, stages.progress, {now}
FROM {rows stages: org_id uuid, job_id uuid, stage text, checkpoint json, progress json}
WHERE TRUE
ON CONFLICT (org_id, job_id, stage) DO UPDATE
SET checkpoint = coalesce(excluded.checkpoint, mine.checkpoint),
    progress = coalesce(excluded.progress, mine.progress),
    updated_at = excluded.updated_at;

-- list_stages :many — what the stages of these jobs stored; crosses tenants
SELECT stage.org_id, stage.job_id, stage.stage, stage.attempts, stage.output, stage.checkpoint,
       stage.progress, stage.finished_at
FROM {rows jobs: org_id uuid, id uuid}
JOIN holdfast.job_stage AS stage ON stage.org_id = jobs.org_id AND stage.job_id = jobs.id;

-- request_cancel :maybe — a queued job ends at once, a running one is asked to stop
UPDATE holdfast.job
SET cancel_requested_at = coalesce(cancel_requested_at, {now}),
    state = CASE WHEN state = 'processing' THEN state ELSE 'canceled' END,
    finished_at = CASE WHEN state = 'processing' THEN NULL ELSE {now} END,
    key_expires_at = CASE WHEN state = 'processing' THEN NULL ELSE {later(:key_ttl_ms)} END,
    updated_at = {now}
WHERE org_id = :org_id AND id = :id AND finished_at IS NULL
RETURNING state;

-- find_job :maybe — one job of one tenant
SELECT * FROM holdfast.job WHERE org_id = :org_id AND id = :id;

-- find_org :maybe — crosses tenants: whose job is it? For operators, who have only an id
SELECT org_id FROM holdfast.job_event WHERE job_id = :id LIMIT 1;

-- list_jobs :many — newest first; a tenant's own, page by page
SELECT id, org_id, project_id, job_type, category, state, queue, origin_queue, stage, priority,
       attempt_count, max_attempts, not_before_at, created_at, updated_at, finished_at, last_error,
       error_class
FROM holdfast.job
WHERE org_id = :org_id AND id < :before
  AND (CAST(:state AS text) IS NULL OR state = :state)
  AND (CAST(:job_type AS text) IS NULL OR job_type = :job_type)
ORDER BY id DESC
LIMIT :limit;

-- list_all_jobs :many — crosses tenants: the same for an operator
SELECT id, org_id, project_id, job_type, category, state, queue, origin_queue, stage, priority,
       attempt_count, max_attempts, not_before_at, created_at, updated_at, finished_at, last_error,
       error_class
FROM holdfast.job
WHERE id < :before
  AND (CAST(:state AS text) IS NULL OR state = :state)
  AND (CAST(:job_type AS text) IS NULL OR job_type = :job_type)
ORDER BY id DESC
LIMIT :limit;

-- count_jobs :many — crosses tenants: how many jobs stand where
SELECT state, queue, count(*) AS jobs FROM holdfast.job GROUP BY state, queue ORDER BY state, queue;

-- list_events :many — the timeline of one job
SELECT id, org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
       correlation_id, at, detail
FROM holdfast.job_event
WHERE org_id = :org_id AND job_id = :job_id
ORDER BY id;

-- find_dead_letter :maybe — the dead letter of one job
SELECT * FROM holdfast.dead_letter WHERE org_id = :org_id AND job_id = :job_id;

-- find_key :maybe — the idempotency record of one key while it lasts
SELECT * FROM holdfast.idempotency_key
WHERE org_id = :org_id AND idempotency_key = :idempotency_key
  AND (expires_at IS NULL OR expires_at > {now});

-- prune_jobs :affected — crosses tenants: ended jobs past their retention and their key's TTL
DELETE FROM holdfast.job
WHERE (org_id, id) IN (
    SELECT org_id, id FROM holdfast.job
    WHERE finished_at < {later(-CAST(:keep_ms AS bigint))} AND key_expires_at < {now}
    ORDER BY finished_at
    LIMIT :limit
);
