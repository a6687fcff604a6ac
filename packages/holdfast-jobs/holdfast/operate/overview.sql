-- The state of the system for operators. Each statement is bounded: it costs the same with a million
-- jobs as with ten. Counts stop at :bound, which means "at least this many".

-- group_letters :many — crosses tenants unless :org_id is given: open dead letters by cause
SELECT letters.job_type, letters.error_class, letters.state, letters.kind, count(*) AS letters,
       count(DISTINCT letters.org_id) AS tenants, min(letters.created_at) AS oldest_at,
       max(letters.last_failure_at) AS newest_at, count(letters.escalated_at) AS escalated
FROM (SELECT letter.org_id, letter.job_type, letter.error_class, letter.state, letter.kind,
             letter.created_at, letter.last_failure_at, letter.escalated_at
      FROM holdfast.dead_letter AS letter
      WHERE letter.ended_at IS NULL
        AND (CAST(:org_id AS {uuid}) IS NULL OR letter.org_id = :org_id)
      ORDER BY letter.created_at DESC, letter.job_id DESC
      LIMIT :bound) AS letters
GROUP BY letters.job_type, letters.error_class, letters.state, letters.kind
ORDER BY count(*) DESC, letters.job_type, letters.error_class, letters.state;

-- group_held :many — crosses tenants unless :org_id is given: held deliveries by channel and reason
SELECT held.channel, held.reason, count(*) AS deliveries, min(held.updated_at) AS oldest_at
FROM (SELECT delivery.channel, delivery.reason, delivery.updated_at
      FROM holdfast.delivery AS delivery
      WHERE delivery.state = 'held'
        AND (CAST(:org_id AS {uuid}) IS NULL OR delivery.org_id = :org_id)
      ORDER BY delivery.updated_at
      LIMIT :bound) AS held
GROUP BY held.channel, held.reason
ORDER BY count(*) DESC, held.channel, held.reason;

-- list_backlogs :many — crosses tenants unless :org_id is given: ready jobs by queue and tenant
-- Each step of the recursion is one index lookup, so a flood of one tenant does not hide others. The
-- wait is that of the job that is claimed next. Backlogs share :budget, so that many tenants with
-- many jobs cost no more than one; each is counted to 100 at least and to :bound at most.
WITH RECURSIVE limits (queue, limit_key, depth) AS (
    SELECT queues.name,
           (SELECT job.limit_key FROM holdfast.job_ready AS job WHERE job.queue = queues.name
            ORDER BY job.queue, job.limit_key LIMIT 1), 1
    FROM {rows queues: name text}
    UNION ALL
    SELECT limits.queue,
           (SELECT job.limit_key FROM holdfast.job_ready AS job
            WHERE job.queue = limits.queue AND job.limit_key > limits.limit_key
            ORDER BY job.queue, job.limit_key LIMIT 1), limits.depth + 1
    FROM limits
    WHERE limits.limit_key IS NOT NULL AND limits.depth < :deepest
),
tenants (queue, limit_key, org_id, depth) AS (
    SELECT limits.queue, limits.limit_key,
           (SELECT job.org_id FROM holdfast.job_ready AS job
            WHERE job.queue = limits.queue AND job.limit_key = limits.limit_key
            ORDER BY job.queue, job.limit_key, job.org_id LIMIT 1), 1
    FROM limits
    WHERE limits.limit_key IS NOT NULL
    UNION ALL
    SELECT tenants.queue, tenants.limit_key,
           (SELECT job.org_id FROM holdfast.job_ready AS job
            WHERE job.queue = tenants.queue AND job.limit_key = tenants.limit_key
              AND job.org_id > tenants.org_id
            ORDER BY job.queue, job.limit_key, job.org_id LIMIT 1), tenants.depth + 1
    FROM tenants
    WHERE tenants.org_id IS NOT NULL AND tenants.depth < :deepest
),
share (bound) AS (
    SELECT CASE WHEN count(tenants.org_id) * :bound <= :budget THEN :bound
                WHEN count(tenants.org_id) * 100 >= :budget THEN 100
                ELSE :budget / count(tenants.org_id) END
    FROM tenants
)
SELECT tenants.queue, tenants.limit_key, tenants.org_id,
       (SELECT count(*) FROM (
           SELECT 1 FROM holdfast.job_ready AS job
           WHERE job.queue = tenants.queue AND job.limit_key = tenants.limit_key
             AND job.org_id = tenants.org_id
           ORDER BY job.queue, job.limit_key, job.org_id, job.turn
           LIMIT (SELECT share.bound FROM share)) AS head) AS jobs,
       (SELECT share.bound FROM share) AS bound,
       (SELECT coalesce(
            CASE WHEN next.lease_token > 0 THEN (
                SELECT coalesce(attempt.not_before_at, attempt.ended_at)
                FROM holdfast.job_attempt AS attempt
                WHERE attempt.org_id = next.org_id AND attempt.job_id = next.job_id
                ORDER BY attempt.number DESC LIMIT 1) END,
            (SELECT coalesce(asked.not_before_at, asked.created_at)
             FROM holdfast.job_envelope AS asked
             WHERE asked.org_id = next.org_id AND asked.id = next.job_id))
        FROM (SELECT job.org_id, job.job_id, job.lease_token FROM holdfast.job_ready AS job
              WHERE job.queue = tenants.queue AND job.limit_key = tenants.limit_key
                AND job.org_id = tenants.org_id
              ORDER BY job.queue, job.limit_key, job.org_id, job.turn LIMIT 1) AS next)
       AS ready_at
FROM tenants
WHERE tenants.org_id IS NOT NULL
  AND (CAST(:org_id AS {uuid}) IS NULL OR tenants.org_id = :org_id);

-- count_deferred :many — crosses tenants: jobs of each queue that wait for their time
SELECT queues.name AS queue,
       (SELECT count(*) FROM (
           SELECT 1 FROM holdfast.job_waiting AS job
           WHERE job.queue = queues.name
           ORDER BY job.queue, job.not_before_at
           LIMIT :bound) AS head) AS jobs
FROM {rows queues: name text};

-- count_running :many — crosses tenants unless :org_id is given: running jobs by queue and tenant
SELECT leased.queue, leased.org_id, count(*) AS jobs
FROM (SELECT job.queue, job.org_id FROM holdfast.job_running AS job LIMIT :bound) AS leased
WHERE CAST(:org_id AS {uuid}) IS NULL OR leased.org_id = :org_id
GROUP BY leased.queue, leased.org_id;

-- count_outcomes :many — crosses tenants unless :org_id is given: outcomes by minute, newest first
SELECT recent.name, CAST({ms_since(recent.at)} AS bigint) / 60000 AS minutes_ago,
       sum(recent.events) AS events
FROM (SELECT event.name, event.at, event.org_id, event.events FROM holdfast.audit_event AS event
      ORDER BY event.id DESC
      LIMIT :bound) AS recent
WHERE recent.at > {later(-3600000)} AND recent.at <= {now}
  AND recent.name IN ('job.succeeded', 'job.retried', 'job.deadlettered')
  AND (CAST(:org_id AS {uuid}) IS NULL OR recent.org_id = :org_id)
GROUP BY recent.name, CAST({ms_since(recent.at)} AS bigint) / 60000;

-- find_reach :maybe — crosses tenants: the time of the oldest event that count_outcomes reads
SELECT event.at FROM holdfast.audit_event AS event ORDER BY event.id DESC LIMIT 1 OFFSET :bound;

-- search_jobs :many — the newest jobs of a tenant before a job, filtered; reads :reach of them
SELECT job.id, job.org_id, job.project_id, job.job_type, job.category, job.state, job.queue,
       job.origin_queue, job.stage, job.priority, job.attempt_count, job.max_attempts,
       job.not_before_at, job.created_at, job.updated_at, job.finished_at, job.last_error,
       job.error_class,
       job.id AS place
FROM (SELECT asked.org_id, asked.id FROM holdfast.job_envelope AS asked
      WHERE asked.org_id = :org_id AND asked.id < :before
      ORDER BY asked.org_id DESC, asked.id DESC
      LIMIT :reach) AS newest
CROSS JOIN holdfast.job AS job
WHERE job.org_id = newest.org_id AND job.id = newest.id
  AND (CAST(:state AS text) IS NULL OR job.state = :state)
  AND (CAST(:job_type AS text) IS NULL OR job.job_type = :job_type)
  AND (CAST(:queue AS text) IS NULL OR job.queue = :queue OR job.origin_queue = :queue)
  AND (CAST(:error_class AS text) IS NULL OR job.error_class = :error_class)
ORDER BY newest.id DESC
LIMIT :limit;

-- find_search_end :maybe — the last of the jobs that search_jobs reads, if there are more
SELECT asked.id AS place FROM holdfast.job_envelope AS asked
WHERE asked.org_id = :org_id AND asked.id < :before
  AND EXISTS (SELECT 1 FROM holdfast.job_envelope AS further
              WHERE further.org_id = :org_id AND further.id < asked.id)
ORDER BY asked.org_id DESC, asked.id DESC
LIMIT 1 OFFSET :reach - 1;

-- find_search_rows :one — crosses tenants: the rows of the audit that one page of search_all_jobs reads
-- Jobs have no index by id alone; the audit has one. A row is the enqueue of one or more jobs. At
-- least one row is read, and further ones until they are of :reach jobs.
SELECT span.first, span.last,
       (SELECT 1 FROM holdfast.audit_event AS event
        WHERE event.id < span.first ORDER BY event.id DESC LIMIT 1) AS has_more
FROM (SELECT min(page.first) AS first, max(page.id) AS last
      FROM (SELECT newest.id, newest.id - newest.events + 1 AS first, newest.cost,
                   sum(newest.cost) OVER (ORDER BY newest.id DESC) AS costs
            FROM (SELECT event.id, event.events,
                         CASE WHEN event.name = 'job.enqueued' THEN event.events ELSE 1 END AS cost
                  FROM holdfast.audit_event AS event
                  WHERE event.id <= coalesce(
                      (SELECT next.id FROM holdfast.audit_event AS next
                       WHERE next.id >= :before ORDER BY next.id LIMIT 1), :before)
                  ORDER BY event.id DESC
                  LIMIT :reach) AS newest) AS page
      WHERE page.costs - page.cost < :reach) AS span;

-- search_all_jobs :many — crosses tenants: the jobs that these rows of the audit enqueued, filtered
SELECT job.id, job.org_id, job.project_id, job.job_type, job.category, job.state, job.queue,
       job.origin_queue, job.stage, job.priority, job.attempt_count, job.max_attempts,
       job.not_before_at, job.created_at, job.updated_at, job.finished_at, job.last_error,
       job.error_class,
       newest.id AS place
FROM (SELECT event.id, event.org_id, event.job_id FROM holdfast.audit_entry AS event
      WHERE event.row_id BETWEEN :first AND :last AND event.name = 'job.enqueued'
        AND event.id < :before) AS newest
CROSS JOIN holdfast.job AS job
WHERE job.org_id = newest.org_id AND job.id = newest.job_id
  AND (CAST(:state AS text) IS NULL OR job.state = :state)
  AND (CAST(:job_type AS text) IS NULL OR job.job_type = :job_type)
  AND (CAST(:queue AS text) IS NULL OR job.queue = :queue OR job.origin_queue = :queue)
  AND (CAST(:error_class AS text) IS NULL OR job.error_class = :error_class)
ORDER BY newest.id DESC
LIMIT :limit;

-- list_stages :many — the stages of one job, without their results
SELECT stage.stage, stage.attempts, stage.progress, stage.updated_at, stage.finished_at
FROM holdfast.job_stage AS stage
WHERE stage.org_id = :org_id AND stage.job_id = :job_id
ORDER BY stage.updated_at, stage.stage;
