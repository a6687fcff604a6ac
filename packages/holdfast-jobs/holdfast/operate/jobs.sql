-- list_jobs :many — the jobs of a tenant, newest first, page by page
SELECT id, org_id, project_id, job_type, category, state, queue, origin_queue, stage, priority,
       attempt_count, max_attempts, not_before_at, created_at, updated_at, finished_at, last_error,
       error_class
FROM holdfast.job_record
WHERE org_id = :org_id AND id < :before
  AND (CAST(:state AS text) IS NULL OR state = :state)
  AND (CAST(:job_type AS text) IS NULL OR job_type = :job_type)
  AND (CAST(:queue AS text) IS NULL OR queue = :queue)
  AND (CAST(:error_class AS text) IS NULL OR error_class = :error_class)
ORDER BY id DESC
LIMIT :limit;

-- list_all_jobs :many — crosses tenants: the same for an operator of all tenants
SELECT id, org_id, project_id, job_type, category, state, queue, origin_queue, stage, priority,
       attempt_count, max_attempts, not_before_at, created_at, updated_at, finished_at, last_error,
       error_class
FROM holdfast.job_record
WHERE id < :before
  AND (CAST(:state AS text) IS NULL OR state = :state)
  AND (CAST(:job_type AS text) IS NULL OR job_type = :job_type)
  AND (CAST(:queue AS text) IS NULL OR queue = :queue)
  AND (CAST(:error_class AS text) IS NULL OR error_class = :error_class)
ORDER BY id DESC
LIMIT :limit;

-- count_jobs :many — the jobs of a tenant, by state and queue
SELECT state, queue, count(*) AS jobs
FROM holdfast.job_record
WHERE org_id = :org_id
GROUP BY state, queue
ORDER BY state, queue;

-- count_all_jobs :many — crosses tenants: jobs by state and queue
SELECT state, queue, count(*) AS jobs
FROM holdfast.job_record
GROUP BY state, queue
ORDER BY state, queue;

-- count_problems :one — crosses tenants unless :org_id is given: failed jobs that need an operator
-- One whose replay is in progress or has completed needs none, and a replay has no dead letter.
SELECT count(*) AS jobs
FROM holdfast.dead_letter
WHERE ended_at IS NULL AND state NOT IN ('replaying', 'replayed')
  AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id);
