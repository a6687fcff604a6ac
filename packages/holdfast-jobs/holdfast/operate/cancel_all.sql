-- Jobs that a bulk cancel counts and cancels.

-- backlogs :fragment — the queues and limit keys of job_ready, walked by its index
WITH RECURSIVE queues (name) AS (
    SELECT (SELECT job.queue FROM holdfast.job_ready AS job
            WHERE job.queue >= coalesce(CAST(:queue AS text), '')
            ORDER BY job.queue, job.limit_key LIMIT 1)
    UNION ALL
    SELECT (SELECT job.queue FROM holdfast.job_ready AS job
            WHERE job.queue > queues.name AND CAST(:queue AS text) IS NULL
            ORDER BY job.queue, job.limit_key LIMIT 1)
    FROM queues
    WHERE queues.name IS NOT NULL
),
lanes (queue, limit_key) AS (
    SELECT queues.name,
           (SELECT job.limit_key FROM holdfast.job_ready AS job WHERE job.queue = queues.name
            ORDER BY job.queue, job.limit_key LIMIT 1)
    FROM queues
    WHERE queues.name = coalesce(CAST(:queue AS text), queues.name)
    UNION ALL
    SELECT lanes.queue,
           (SELECT job.limit_key FROM holdfast.job_ready AS job
            WHERE job.queue = lanes.queue AND job.limit_key > lanes.limit_key
            ORDER BY job.queue, job.limit_key LIMIT 1)
    FROM lanes
    WHERE lanes.limit_key IS NOT NULL
)

-- counts :fragment — the jobs of each part of a place that a cancel would reach
SELECT place.part, count(*) AS seen,
       coalesce(sum(CASE WHEN (CAST(:job_type AS text) IS NULL OR asked.job_type = :job_type)
             AND (CAST(:error_class AS text) IS NULL OR :error_class = (
                  SELECT attempt.error_class FROM holdfast.job_attempt AS attempt
                  WHERE attempt.org_id = place.org_id AND attempt.job_id = place.job_id
                  ORDER BY attempt.number DESC LIMIT 1))
             AND NOT EXISTS (SELECT 1 FROM holdfast.job_cancel AS cancel
                             WHERE cancel.org_id = place.org_id AND cancel.job_id = place.job_id)
           THEN 1 ELSE 0 END), 0) AS jobs

-- count_unfinished_of :many — waiting and running jobs of a tenant, filtered; reads :reach of each part
{use backlogs}
{use counts}
FROM (SELECT * FROM (
          SELECT 'ready' AS part, job.org_id, job.job_id
          FROM lanes
          JOIN holdfast.job_ready AS job
            ON job.queue = lanes.queue AND job.limit_key = lanes.limit_key AND job.org_id = :org_id
          WHERE lanes.limit_key IS NOT NULL
            AND (CAST(:state AS text) IS NULL OR :state = 'queued')
          LIMIT :reach) AS ready
      UNION ALL
      SELECT * FROM (
          SELECT 'waiting' AS part, job.org_id, job.job_id
          FROM holdfast.job_waiting AS job
          WHERE job.org_id = :org_id AND (CAST(:state AS text) IS NULL OR :state = 'queued')
            AND (CAST(:queue AS text) IS NULL OR job.queue = :queue)
          LIMIT :reach) AS waiting
      UNION ALL
      SELECT * FROM (
          SELECT 'running' AS part, job.org_id, job.job_id
          FROM holdfast.job_running AS job
          WHERE job.org_id = :org_id AND (CAST(:state AS text) IS NULL OR :state = 'processing')
            AND (CAST(:queue AS text) IS NULL OR job.queue = :queue)
          LIMIT :reach) AS running
      UNION ALL
      SELECT * FROM (
          SELECT 'submitted' AS part, job.org_id, job.job_id
          FROM holdfast.job_submitted AS job
          WHERE job.org_id = :org_id AND (CAST(:state AS text) IS NULL OR :state = 'batch_submitted')
            AND (CAST(:queue AS text) IS NULL OR job.queue = :queue)
          LIMIT :reach) AS submitted) AS place
JOIN holdfast.job_envelope AS asked ON asked.org_id = place.org_id AND asked.id = place.job_id
GROUP BY place.part;

-- count_unfinished :many — crosses tenants: waiting and running jobs, filtered; reads :reach of each part
{use backlogs}
{use counts}
FROM (SELECT * FROM (
          SELECT 'ready' AS part, job.org_id, job.job_id
          FROM lanes
          JOIN holdfast.job_ready AS job
            ON job.queue = lanes.queue AND job.limit_key = lanes.limit_key
          WHERE lanes.limit_key IS NOT NULL
            AND (CAST(:state AS text) IS NULL OR :state = 'queued')
          LIMIT :reach) AS ready
      UNION ALL
      SELECT * FROM (
          SELECT 'waiting' AS part, job.org_id, job.job_id
          FROM holdfast.job_waiting AS job
          WHERE (CAST(:state AS text) IS NULL OR :state = 'queued')
            AND (CAST(:queue AS text) IS NULL OR job.queue = :queue)
          LIMIT :reach) AS waiting
      UNION ALL
      SELECT * FROM (
          SELECT 'running' AS part, job.org_id, job.job_id
          FROM holdfast.job_running AS job
          WHERE (CAST(:state AS text) IS NULL OR :state = 'processing')
            AND (CAST(:queue AS text) IS NULL OR job.queue = :queue)
          LIMIT :reach) AS running
      UNION ALL
      SELECT * FROM (
          SELECT 'submitted' AS part, job.org_id, job.job_id
          FROM holdfast.job_submitted AS job
          WHERE (CAST(:state AS text) IS NULL OR :state = 'batch_submitted')
            AND (CAST(:queue AS text) IS NULL OR job.queue = :queue)
          LIMIT :reach) AS submitted) AS place
JOIN holdfast.job_envelope AS asked ON asked.org_id = place.org_id AND asked.id = place.job_id
GROUP BY place.part;

-- find_end :one — crosses tenants: the time of the store; later jobs are not canceled
SELECT {now} AS now;

-- page_jobs :many — crosses tenants up to :last_org: the next unfinished jobs in the order of their keys
-- Finds them among the next :reach jobs.
WITH keys AS MATERIALIZED (
    SELECT job.org_id, job.id
    FROM holdfast.job_envelope AS job
    WHERE (job.org_id, job.id) > (CAST(:after_org AS {uuid}), CAST(:after_id AS {uuid}))
      AND job.org_id <= CAST(:last_org AS {uuid})
    ORDER BY job.org_id, job.id
    LIMIT :reach
),
unfinished AS MATERIALIZED (
    SELECT keys.org_id, keys.id
    FROM keys
    WHERE NOT EXISTS (SELECT 1 FROM holdfast.job_outcome AS outcome
                      WHERE outcome.org_id = keys.org_id AND outcome.job_id = keys.id)
    ORDER BY keys.org_id, keys.id
    LIMIT :limit
)
SELECT job.org_id, job.id, job.job_type, job.state, job.queue, job.error_class, job.finished_at,
       job.cancel_requested_at,
       CASE WHEN job.created_at <= CAST(:until AS {instant}) THEN 1 ELSE 0 END AS is_earlier
FROM unfinished
JOIN holdfast.job AS job ON job.org_id = unfinished.org_id AND job.id = unfinished.id
ORDER BY job.org_id, job.id;

-- find_page_end :maybe — crosses tenants up to :last_org: the last of the jobs that page_jobs reads, if there are :reach
SELECT job.org_id, job.id
FROM holdfast.job_envelope AS job
WHERE (job.org_id, job.id) > (CAST(:after_org AS {uuid}), CAST(:after_id AS {uuid}))
  AND job.org_id <= CAST(:last_org AS {uuid})
ORDER BY job.org_id, job.id
LIMIT 1 OFFSET :reach - 1;
