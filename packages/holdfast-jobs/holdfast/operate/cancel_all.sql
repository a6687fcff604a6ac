-- Jobs that a bulk cancel counts and cancels.

-- count_unfinished_of :many — waiting and running jobs among the newest :reach of a tenant, filtered
SELECT 'newest' AS part, count(*) AS seen,
       coalesce(sum(CASE WHEN job.finished_at IS NULL AND job.cancel_requested_at IS NULL
             AND (CAST(:state AS text) IS NULL OR job.state = :state)
             AND (CAST(:job_type AS text) IS NULL OR job.job_type = :job_type)
             AND (CAST(:queue AS text) IS NULL OR job.queue = :queue)
             AND (CAST(:error_class AS text) IS NULL OR job.error_class = :error_class)
           THEN 1 ELSE 0 END), 0) AS jobs
FROM (SELECT mine.state, mine.job_type, mine.queue, mine.error_class, mine.finished_at,
             mine.cancel_requested_at
      FROM holdfast.job AS mine
      WHERE mine.org_id = :org_id
      ORDER BY mine.id DESC
      LIMIT :reach) AS job;

-- count_unfinished :many — crosses tenants: waiting and running jobs, filtered; reads :reach of each part
-- Jobs that wait for a provider batch have no index by state and are left out.
SELECT job.part, count(*) AS seen,
       coalesce(sum(CASE WHEN job.cancel_requested_at IS NULL
             AND (CAST(:state AS text) IS NULL OR job.state = :state)
             AND (CAST(:job_type AS text) IS NULL OR job.job_type = :job_type)
             AND (CAST(:queue AS text) IS NULL OR job.queue = :queue)
             AND (CAST(:error_class AS text) IS NULL OR job.error_class = :error_class)
           THEN 1 ELSE 0 END), 0) AS jobs
FROM (SELECT * FROM (
          SELECT 'due' AS part, due.state, due.job_type, due.queue, due.error_class,
                 due.cancel_requested_at
          FROM {rows queues: name text}
          JOIN holdfast.job AS due
            ON due.queue = queues.name AND due.state = 'queued' AND due.not_before_at IS NULL
          LIMIT :reach) AS due
      UNION ALL
      SELECT * FROM (
          SELECT 'deferred' AS part, later.state, later.job_type, later.queue, later.error_class,
                 later.cancel_requested_at
          FROM {rows queues: name text}
          JOIN holdfast.job AS later
            ON later.queue = queues.name AND later.state = 'queued'
               AND later.not_before_at IS NOT NULL
          LIMIT :reach) AS deferred
      UNION ALL
      SELECT * FROM (
          SELECT 'running' AS part, held.state, held.job_type, held.queue, held.error_class,
                 held.cancel_requested_at
          FROM holdfast.job AS held
          WHERE held.state = 'processing'
          ORDER BY held.lease_expires_at
          LIMIT :reach) AS running) AS job
GROUP BY job.part;

-- find_end :one — crosses tenants: the time of the store; later jobs are not canceled
SELECT {now} AS now;

-- page_jobs :many — crosses tenants up to :last_org: the next jobs in the order of their keys
SELECT job.org_id, job.id, job.job_type, job.state, job.queue, job.error_class, job.finished_at,
       job.cancel_requested_at,
       CASE WHEN job.created_at <= CAST(:until AS {instant}) THEN 1 ELSE 0 END AS is_earlier
FROM holdfast.job AS job
WHERE (job.org_id, job.id) > (CAST(:after_org AS {uuid}), CAST(:after_id AS {uuid}))
  AND job.org_id <= CAST(:last_org AS {uuid})
ORDER BY job.org_id, job.id
LIMIT :limit;
