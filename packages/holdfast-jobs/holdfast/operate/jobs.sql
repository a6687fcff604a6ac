-- Listings pick the keys of a page first, and read the record of each: SQLite keeps the order of a
-- CROSS JOIN. PostgreSQL would read all jobs for an EXISTS, to hash them.

-- columns :fragment — the columns of a listing
SELECT job.id, job.org_id, job.project_id, job.job_type, job.category, job.state, job.queue,
       job.origin_queue, job.stage, job.priority, job.attempt_count, job.max_attempts,
       job.not_before_at, job.created_at, job.updated_at, job.finished_at, job.last_error,
       job.error_class

-- filters :fragment — the filters of a listing, on the row asked
AND (CAST(:job_type AS text) IS NULL OR asked.job_type = :job_type)
AND (CAST(:queue AS text) IS NULL
     OR :queue IN (asked.origin_queue, asked.queue, 'q:deadletter'))
AND (coalesce(CAST(:state AS text), '') NOT IN ('completed', 'canceled') OR :state = (
     SELECT outcome.state FROM holdfast.job_outcome AS outcome
     WHERE outcome.org_id = asked.org_id AND outcome.job_id = asked.id))
AND ((CAST(:state AS text) IS NULL AND CAST(:queue AS text) IS NULL
      AND CAST(:error_class AS text) IS NULL)
     OR (
         SELECT 1 FROM holdfast.job AS job
         WHERE job.org_id = asked.org_id AND job.id = asked.id
           AND (CAST(:state AS text) IS NULL OR job.state = :state)
           AND (CAST(:queue AS text) IS NULL OR job.queue = :queue)
           AND (CAST(:error_class AS text) IS NULL OR job.error_class = :error_class)
           LIMIT 1) IS NOT NULL)

-- list_jobs :many — the jobs of a tenant, newest first, page by page
{use columns}
FROM (SELECT asked.org_id, asked.id
      FROM holdfast.job_envelope AS asked
      WHERE asked.org_id = :org_id AND asked.id < :before
        {use filters}
      ORDER BY asked.org_id DESC, asked.id DESC
      LIMIT :limit) AS page
CROSS JOIN holdfast.job AS job
WHERE job.org_id = page.org_id AND job.id = page.id
ORDER BY page.id DESC;

-- list_all_jobs :many — crosses tenants: the same for an operator of all tenants
-- Jobs have no index by id alone: the newest of each tenant are read. Without a filter, a page of
-- :limit jobs is of the :tenants with the newest ones.
WITH RECURSIVE tenants (org_id) AS (
    SELECT (SELECT job.org_id FROM holdfast.job_envelope AS job ORDER BY job.org_id LIMIT 1)
    UNION ALL
    SELECT (SELECT job.org_id FROM holdfast.job_envelope AS job
            WHERE job.org_id > tenants.org_id
            ORDER BY job.org_id LIMIT 1)
    FROM tenants
    WHERE tenants.org_id IS NOT NULL
),
heads AS MATERIALIZED (
    SELECT tenants.org_id,
           (SELECT job.id FROM holdfast.job_envelope AS job
            WHERE job.org_id = tenants.org_id AND job.id < :before
            ORDER BY job.org_id DESC, job.id DESC LIMIT 1) AS id
    FROM tenants
    WHERE tenants.org_id IS NOT NULL
),
newest AS MATERIALIZED (
    SELECT heads.org_id FROM heads WHERE heads.id IS NOT NULL ORDER BY heads.id DESC LIMIT :tenants
),
page AS MATERIALIZED (
    SELECT found.org_id, found.id
    FROM newest
    {lateral found: holdfast.job_envelope (org_id, id)}
        SELECT asked.org_id, asked.id FROM holdfast.job_envelope AS asked
        WHERE asked.org_id = newest.org_id AND asked.id < :before
          {use filters}
        ORDER BY asked.org_id DESC, asked.id DESC
        LIMIT :limit
    {end}
    ORDER BY found.id DESC
    LIMIT :limit
)
{use columns}
FROM page
CROSS JOIN holdfast.job AS job
WHERE job.org_id = page.org_id AND job.id = page.id
ORDER BY page.id DESC;

-- count_placed :one — crosses tenants: the jobs in one of these states, counted up to :bound
SELECT CASE CAST(:state AS text)
    WHEN 'queued' THEN
        (SELECT count(*) FROM (
            SELECT 1 FROM holdfast.job_ready AS job
            ORDER BY job.queue, job.limit_key, job.org_id, job.turn LIMIT :bound) AS ready)
        + (SELECT count(*) FROM (
            SELECT 1 FROM holdfast.job_waiting AS job
            ORDER BY job.org_id, job.job_id LIMIT :bound) AS waiting)
    WHEN 'processing' THEN
        (SELECT count(*) FROM (
            SELECT 1 FROM holdfast.job_running AS job
            ORDER BY job.org_id, job.job_id LIMIT :bound) AS running)
    WHEN 'batch_submitted' THEN
        (SELECT count(*) FROM (
            SELECT 1 FROM holdfast.job_submitted AS job
            ORDER BY job.org_id, job.job_id LIMIT :bound) AS submitted)
    WHEN 'failed' THEN
        (SELECT count(*) FROM (
            SELECT 1 FROM holdfast.job_outcome AS job
            WHERE job.state = 'failed' ORDER BY job.finished_at LIMIT :bound) AS failed)
    END AS jobs;

-- list_placed_jobs :many — crosses tenants unless :org_id is given: list_jobs for a state that few jobs are in
-- Reads the keys of all jobs in that state, which are fewer than :bound.
WITH place AS (
    SELECT * FROM (
        SELECT job.org_id, job.job_id AS id FROM holdfast.job_ready AS job
        WHERE CAST(:state AS text) = 'queued'
        ORDER BY job.queue, job.limit_key, job.org_id, job.turn LIMIT :bound) AS ready
    UNION ALL
    SELECT * FROM (
        SELECT job.org_id, job.job_id FROM holdfast.job_waiting AS job
        WHERE CAST(:state AS text) = 'queued'
        ORDER BY job.org_id, job.job_id LIMIT :bound) AS waiting
    UNION ALL
    SELECT * FROM (
        SELECT job.org_id, job.job_id FROM holdfast.job_running AS job
        WHERE CAST(:state AS text) = 'processing'
        ORDER BY job.org_id, job.job_id LIMIT :bound) AS running
    UNION ALL
    SELECT * FROM (
        SELECT job.org_id, job.job_id FROM holdfast.job_submitted AS job
        WHERE CAST(:state AS text) = 'batch_submitted'
        ORDER BY job.org_id, job.job_id LIMIT :bound) AS submitted
    UNION ALL
    SELECT * FROM (
        SELECT job.org_id, job.job_id FROM holdfast.job_outcome AS job
        WHERE CAST(:state AS text) = 'failed' AND job.state = 'failed'
        ORDER BY job.finished_at LIMIT :bound) AS failed
),
page AS MATERIALIZED (
    SELECT place.org_id, place.id FROM place
    WHERE (CAST(:org_id AS {uuid}) IS NULL OR place.org_id = :org_id) AND place.id < :before
      AND ((CAST(:job_type AS text) IS NULL AND CAST(:queue AS text) IS NULL
            AND CAST(:error_class AS text) IS NULL)
           OR (
               SELECT 1 FROM holdfast.job AS job
               WHERE job.org_id = place.org_id AND job.id = place.id
                 AND (CAST(:job_type AS text) IS NULL OR job.job_type = :job_type)
                 AND (CAST(:queue AS text) IS NULL OR job.queue = :queue)
                 AND (CAST(:error_class AS text) IS NULL OR job.error_class = :error_class)
                 LIMIT 1) IS NOT NULL)
    ORDER BY place.id DESC
    LIMIT :limit
)
{use columns}
FROM page
CROSS JOIN holdfast.job AS job
WHERE job.org_id = page.org_id AND job.id = page.id
ORDER BY page.id DESC;

-- count_jobs :many — the jobs of a tenant, by state and queue
SELECT counted.state, counted.queue, CAST(sum(counted.jobs) AS bigint) AS jobs
FROM (SELECT 'queued' AS state, job.queue, count(*) AS jobs
      FROM holdfast.job_ready AS job
      WHERE job.org_id = :org_id
      GROUP BY job.queue
      UNION ALL
      SELECT 'queued', job.queue, count(*) FROM holdfast.job_waiting AS job
      WHERE job.org_id = :org_id
      GROUP BY job.queue
      UNION ALL
      SELECT 'processing', job.queue, count(*) FROM holdfast.job_running AS job
      WHERE job.org_id = :org_id
      GROUP BY job.queue
      UNION ALL
      SELECT 'batch_submitted', job.queue, count(*) FROM holdfast.job_submitted AS job
      WHERE job.org_id = :org_id
      GROUP BY job.queue
      UNION ALL
      SELECT outcome.state, asked.origin_queue, count(*)
      FROM holdfast.job_outcome AS outcome
      JOIN holdfast.job_envelope AS asked
        ON asked.org_id = outcome.org_id AND asked.id = outcome.job_id
      WHERE outcome.state <> 'failed' AND outcome.org_id = :org_id
      GROUP BY outcome.state, asked.origin_queue
      UNION ALL
      SELECT 'failed', 'q:deadletter', count(*) FROM holdfast.job_outcome AS outcome
      WHERE outcome.state = 'failed' AND outcome.org_id = :org_id) AS counted
WHERE counted.jobs > 0
GROUP BY counted.state, counted.queue
ORDER BY counted.state, counted.queue;

-- count_all_jobs :many — crosses tenants: jobs by state and queue
SELECT counted.state, counted.queue, CAST(sum(counted.jobs) AS bigint) AS jobs
FROM (SELECT 'queued' AS state, job.queue, count(*) AS jobs
      FROM holdfast.job_ready AS job
      GROUP BY job.queue
      UNION ALL
      SELECT 'queued', job.queue, count(*) FROM holdfast.job_waiting AS job
      GROUP BY job.queue
      UNION ALL
      SELECT 'processing', job.queue, count(*) FROM holdfast.job_running AS job
      GROUP BY job.queue
      UNION ALL
      SELECT 'batch_submitted', job.queue, count(*) FROM holdfast.job_submitted AS job
      GROUP BY job.queue
      UNION ALL
      SELECT outcome.state, asked.origin_queue, count(*)
      FROM holdfast.job_outcome AS outcome
      JOIN holdfast.job_envelope AS asked
        ON asked.org_id = outcome.org_id AND asked.id = outcome.job_id
      WHERE outcome.state <> 'failed'
      GROUP BY outcome.state, asked.origin_queue
      UNION ALL
      SELECT 'failed', 'q:deadletter', count(*) FROM holdfast.job_outcome AS outcome
      WHERE outcome.state = 'failed') AS counted
WHERE counted.jobs > 0
GROUP BY counted.state, counted.queue
ORDER BY counted.state, counted.queue;

-- count_problems :one — crosses tenants unless :org_id is given: failed jobs that need an operator
-- One whose replay is in progress or has completed needs none, and a replay has no dead letter.
SELECT count(*) AS jobs
FROM holdfast.dead_letter
WHERE ended_at IS NULL AND state NOT IN ('replaying', 'replayed')
  AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id);
