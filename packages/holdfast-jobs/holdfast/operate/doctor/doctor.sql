-- Queries of the doctor: first the database itself, then Holdfast's tables. If a feature does not
-- exist in a database, its statement returns no rows. Ages of PostgreSQL's own records use the
-- server's clock; ages of Holdfast's records use {now}.

-- list_migrations :many — crosses tenants: the applied migrations
SELECT component, version, name FROM holdfast.migration ORDER BY component, version;

-- list_waiting :many — crosses tenants: queues with waiting jobs, and the age of the oldest
-- Jobs that wait for batch processing do not wait for a worker.
WITH RECURSIVE queues (name) AS (
    SELECT (SELECT job.queue FROM holdfast.job_ready AS job
            ORDER BY job.queue, job.limit_key LIMIT 1)
    UNION ALL
    SELECT (SELECT job.queue FROM holdfast.job_ready AS job WHERE job.queue > queues.name
            ORDER BY job.queue, job.limit_key LIMIT 1)
    FROM queues
    WHERE queues.name IS NOT NULL
),
found AS (
    SELECT queues.name,
           (SELECT job.created_at FROM holdfast.job_ready AS job
            WHERE job.queue = queues.name AND job.lease_token >= 0 AND job.limit_key <> '~batch'
            ORDER BY job.queue, job.created_at, job.job_id LIMIT 1) AS since
    FROM queues
    WHERE queues.name IS NOT NULL
    UNION ALL
    SELECT queue.name,
           (SELECT job.not_before_at FROM holdfast.job_waiting AS job
            WHERE job.queue = queue.name AND job.not_before_at <= {now}
              AND job.limit_key <> '~batch'
            ORDER BY job.queue, job.not_before_at LIMIT 1)
    FROM holdfast.queue AS queue
)
SELECT found.name, max({ms_since(found.since)}) AS waits_ms
FROM found
WHERE found.since IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM holdfast.queue AS queue
                  WHERE queue.name = found.name AND queue.paused_at IS NOT NULL)
GROUP BY found.name
ORDER BY found.name;

-- list_run_times :many — crosses tenants: the run times of the newest successful jobs
SELECT asked.job_type, {ms_since(ended.claimed_at)} - {ms_since(ended.finished_at)} AS ran_ms
FROM (SELECT newest.org_id, newest.job_id
      FROM holdfast.audit_entry AS newest
      WHERE newest.row_id IN (SELECT page.id FROM holdfast.audit_event AS page
                              ORDER BY page.id DESC LIMIT :events)
        AND newest.name = 'job.succeeded'
      ORDER BY newest.id DESC
      LIMIT :events) AS done
JOIN holdfast.job_outcome AS ended ON ended.org_id = done.org_id AND ended.job_id = done.job_id
JOIN holdfast.job_envelope AS asked ON asked.org_id = ended.org_id AND asked.id = ended.job_id
WHERE ended.claimed_at IS NOT NULL;

-- count_stale :one — crosses tenants: expired leases that were not rescued, counted up to :limit
SELECT count(*) AS jobs, max({ms_since(stale.lease_expires_at)}) AS late_ms
FROM (SELECT job.lease_expires_at FROM holdfast.job_running AS job
      WHERE job.lease_expires_at < {later(-CAST(:grace_ms AS bigint))}
        AND job.limit_key <> '~batch'
      LIMIT :limit) AS stale;

-- count_letters :one — crosses tenants: dead letters that need an operator, counted up to :limit
-- One whose replay is in progress or has completed needs none.
SELECT count(*) AS letters, min(open.created_at) AS oldest_at,
       sum(CASE WHEN open.created_at < {later(-CAST(:age_ms AS bigint))} THEN 1 ELSE 0 END) AS old,
       count(DISTINCT open.error_class) AS classes, min(open.error_class) AS error_class
FROM (SELECT created_at, error_class FROM holdfast.dead_letter
      WHERE ended_at IS NULL AND state NOT IN ('replaying', 'replayed')
      ORDER BY created_at, job_id
      LIMIT :limit) AS open;

-- list_paused :many — crosses tenants: queues that have been paused for long
SELECT name, paused_at, paused_by, pause_reason FROM holdfast.queue
WHERE paused_at < {later(-CAST(:age_ms AS bigint))}
ORDER BY paused_at;

-- list_late :many — crosses tenants: schedules with an overdue tick
SELECT schedule.name, schedule.next_fire_at, {ms_since(schedule.next_fire_at)} AS late_ms,
       tick.detail
FROM holdfast.schedule AS schedule
LEFT JOIN holdfast.schedule_tick AS tick
  ON tick.schedule = schedule.name AND tick.fire_at = schedule.next_fire_at
  AND tick.outcome = 'held'
WHERE schedule.paused_at IS NULL AND schedule.next_fire_at < {later(-CAST(:late_ms AS bigint))}
ORDER BY schedule.next_fire_at
LIMIT :limit;

-- find_last_runs :many — crosses tenants: the last start of the runs of these names
SELECT runs.name, (SELECT max(run.started_at) FROM holdfast.worker_run AS run
                   WHERE run.name = runs.name AND run.outcome IS DISTINCT FROM 'skipped')
           AS started_at
FROM {rows runs: name text};


-- count_held :many — crosses tenants: deliveries that wait for an operator, by channel
SELECT held.channel, count(*) AS deliveries, min(held.updated_at) AS since
FROM (SELECT delivery.channel, delivery.updated_at FROM holdfast.delivery AS delivery
      WHERE delivery.state = 'held'
      ORDER BY delivery.updated_at
      LIMIT :limit) AS held
GROUP BY held.channel
ORDER BY held.channel;

-- count_undelivered :many — crosses tenants: due deliveries that are not being processed
SELECT late.channel, count(*) AS deliveries,
       sum(CASE WHEN late.attempts > 0 THEN 1 ELSE 0 END) AS tried,
       max({ms_since(late.since)}) AS waits_ms
FROM (SELECT delivery.channel, delivery.attempts,
             coalesce(delivery.not_before_at, delivery.created_at) AS since
      FROM holdfast.delivery AS delivery
      WHERE delivery.state = 'pending'
        AND coalesce(delivery.not_before_at, delivery.created_at)
            < {later(-CAST(:age_ms AS bigint))}
        AND (delivery.lease_expires_at IS NULL
             OR delivery.lease_expires_at < {later(-CAST(:age_ms AS bigint))})
      LIMIT :limit) AS late
GROUP BY late.channel
ORDER BY late.channel;

-- list_channels :many — crosses tenants: the channels with pending deliveries
SELECT waiting.channel, count(*) AS deliveries
FROM (SELECT delivery.channel FROM holdfast.delivery AS delivery
      WHERE delivery.state = 'pending'
      LIMIT :limit) AS waiting
GROUP BY waiting.channel
ORDER BY waiting.channel;

-- list_channel_circuits :many — crosses tenants: channels with an open circuit, and their pending deliveries
SELECT circuit.channel, circuit.kind, min(circuit.code) AS code, count(*) AS circuits,
       sum(CASE WHEN circuit.endpoint = '' THEN 1 ELSE 0 END) AS whole,
       min(circuit.opened_at) AS opened_at, min(circuit.open_until) AS open_until,
       (SELECT count(*) FROM (
           SELECT 1 FROM holdfast.delivery AS delivery
           WHERE delivery.state = 'pending' AND delivery.reason = 'circuit_open'
             AND delivery.channel = circuit.channel
           LIMIT :limit) AS waiting) AS deliveries
FROM holdfast.channel_circuit AS circuit
GROUP BY circuit.channel, circuit.kind
ORDER BY circuit.channel, circuit.kind;
