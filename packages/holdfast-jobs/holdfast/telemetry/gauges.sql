-- Database gauges. No row names a tenant or a job, and each statement is bounded: a scrape costs
-- the same with a million waiting jobs as with ten.

-- count_waiting :many — crosses tenants: waiting jobs by queue, and the age of the oldest
-- Of the ready jobs, those created first are read. A job that was deferred is ready since the time
-- it was deferred to, so the oldest is not always the one that waits longest. Undeclared queues with waiting
-- jobs are found with one index lookup each. Jobs that wait for the batch service are counted
-- separately: no worker claims them.
WITH RECURSIVE waiting (queue) AS (
    SELECT (SELECT job.queue FROM holdfast.job_ready AS job
            ORDER BY job.queue, job.limit_key LIMIT 1)
    UNION ALL
    SELECT (SELECT job.queue FROM holdfast.job_ready AS job
            WHERE job.queue > waiting.queue
            ORDER BY job.queue, job.limit_key LIMIT 1)
    FROM waiting
    WHERE waiting.queue IS NOT NULL
),
names AS (
    SELECT queues.name FROM {rows queues: name text}
    UNION
    SELECT queue.name FROM holdfast.queue AS queue
    UNION
    SELECT waiting.queue FROM waiting WHERE waiting.queue IS NOT NULL
),
found AS (
    SELECT names.name AS queue,
           (SELECT count(*) FROM (
               SELECT 1 FROM holdfast.job_ready AS job
               WHERE job.queue = names.name AND job.limit_key < '~batch'
               ORDER BY job.queue, job.limit_key, job.org_id, job.turn
               LIMIT :bound) AS head)
           + (SELECT count(*) FROM (
               SELECT 1 FROM holdfast.job_ready AS job
               WHERE job.queue = names.name AND job.limit_key > '~batch'
               ORDER BY job.queue, job.limit_key, job.org_id, job.turn
               LIMIT :bound) AS head) AS ready,
           (SELECT count(*) FROM (
               SELECT 1 FROM holdfast.job_ready AS job
               WHERE job.queue = names.name AND job.limit_key = '~batch'
               ORDER BY job.queue, job.limit_key, job.org_id, job.turn
               LIMIT :bound) AS head) AS batched,
           (SELECT count(*) FROM (
               SELECT job.limit_key FROM holdfast.job_waiting AS job
               WHERE job.queue = names.name AND job.not_before_at <= {now}
               ORDER BY job.queue, job.not_before_at
               LIMIT :bound) AS head
            WHERE head.limit_key <> '~batch') AS due,
           (SELECT count(*) FROM (
               SELECT 1 FROM holdfast.job_waiting AS job
               WHERE job.queue = names.name AND job.not_before_at > {now}
               ORDER BY job.queue, job.not_before_at
               LIMIT :bound) AS head) AS delayed,
           (SELECT min(coalesce(
                   CASE WHEN head.lease_token > 0 THEN (
                       SELECT coalesce(attempt.not_before_at, attempt.ended_at)
                       FROM holdfast.job_attempt AS attempt
                       WHERE attempt.org_id = head.org_id AND attempt.job_id = head.job_id
                       ORDER BY attempt.number DESC LIMIT 1) END,
                   (SELECT coalesce(asked.not_before_at, asked.created_at)
                    FROM holdfast.job_envelope AS asked
                    WHERE asked.org_id = head.org_id AND asked.id = head.job_id)))
            FROM (
               SELECT job.org_id, job.job_id, job.limit_key, job.lease_token
               FROM holdfast.job_ready AS job
               WHERE job.queue = names.name AND job.lease_token >= 0
               ORDER BY job.queue, job.created_at, job.job_id
               LIMIT :oldest) AS head
            WHERE head.limit_key <> '~batch') AS ready_at,
           (SELECT min(head.not_before_at) FROM (
               SELECT job.not_before_at, job.limit_key FROM holdfast.job_waiting AS job
               WHERE job.queue = names.name AND job.not_before_at <= {now}
               ORDER BY job.queue, job.not_before_at
               LIMIT :oldest) AS head
            WHERE head.limit_key <> '~batch') AS due_at,
           (SELECT CASE WHEN queue.paused_at IS NULL THEN 0 ELSE 1 END
            FROM holdfast.queue AS queue WHERE queue.name = names.name) AS is_paused
    FROM names
)
SELECT found.queue, found.ready, found.batched, found.due, found.delayed, found.is_paused,
       {ms_since(found.ready_at)} AS ready_ms, {ms_since(found.due_at)} AS due_ms
FROM found;

-- count_running :many — crosses tenants: running jobs by queue
SELECT leased.queue, count(*) AS jobs
FROM (SELECT job.queue FROM holdfast.job_running AS job LIMIT :bound) AS leased
GROUP BY leased.queue;

-- count_letters :many — crosses tenants: open dead letters by job type
SELECT letters.job_type, count(*) AS open, count(letters.escalated_at) AS escalated
FROM (SELECT letter.job_type, letter.escalated_at FROM holdfast.dead_letter AS letter
      WHERE letter.ended_at IS NULL
      ORDER BY letter.created_at, letter.job_id
      LIMIT :bound) AS letters
GROUP BY letters.job_type;

-- read_schedules :one — crosses tenants: the age of the oldest due tick
SELECT {ms_since(due.next_fire_at)} AS lag_ms
FROM (SELECT min(schedule.next_fire_at) AS next_fire_at FROM holdfast.schedule AS schedule
      WHERE schedule.paused_at IS NULL AND schedule.next_fire_at <= {now}) AS due;

-- count_deliveries :many — crosses tenants: unfinished deliveries, and the age of the oldest
-- A delivery that is not due yet does not wait.
SELECT live.state, count(*) AS deliveries, max({ms_since(live.since)}) AS age_ms
FROM (SELECT CASE WHEN pending.attempts > 0 THEN 'tried' ELSE 'waiting' END AS state,
             coalesce(pending.not_before_at, pending.created_at) AS since
      FROM (SELECT delivery.attempts, delivery.not_before_at, delivery.created_at
            FROM holdfast.delivery AS delivery
            WHERE delivery.state = 'pending'
            ORDER BY delivery.not_before_at
            LIMIT :bound) AS pending
      UNION ALL
      SELECT 'held', held.updated_at
      FROM (SELECT delivery.updated_at FROM holdfast.delivery AS delivery
            WHERE delivery.state = 'held'
            ORDER BY delivery.updated_at
            LIMIT :bound) AS held) AS live
GROUP BY live.state;
