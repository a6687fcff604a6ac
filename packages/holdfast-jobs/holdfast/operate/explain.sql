-- Queries that explain a job's state. An operator may explain any tenant's job; of other tenants
-- only counts, rules and workers are read.

-- find_subject :maybe — the job without its private columns, and the current time
SELECT id, org_id, job_type, state, queue, origin_queue, stage, limit_key, turn, attempt_count,
       max_attempts, not_before_at, lease_expires_at, claimed_at, claimed_by, cancel_requested_at,
       provider_batch_id, CAST(routing_decision AS text) AS routing_decision, replay_of, error_class,
       created_at, updated_at, finished_at,
       {now} AS now,
       (SELECT deadline.deadline_at FROM holdfast.job_deadline AS deadline
        WHERE deadline.org_id = job.org_id AND deadline.job_id = job.id) AS deadline_at
FROM holdfast.job AS job
WHERE org_id = :org_id AND id = :id;

-- list_turns :many — the events that made it wait or end, newest first
SELECT name, attempt, actor_type, actor_id, at, detail
FROM holdfast.job_event
WHERE org_id = :org_id AND job_id = :id
  AND name IN ('job.enqueued', 'job.retried', 'job.snoozed', 'job.released', 'job.cancel_requested',
               'job.canceled')
ORDER BY id DESC
LIMIT :limit;

-- find_limits :one — crosses tenants: the rules that apply to it, and their token buckets
SELECT queue.paused_at, queue.paused_by, queue.pause_reason, queue.max_running,
       queue.max_running_per_tenant, queue.rate_count, queue.rate_seconds, queue.tokens,
       {ms_since(queue.refilled_at)} AS refilled_ms,
       tenant.max_running AS max_running_of_tenant,
       limit_key.max_running AS max_running_of_key, limit_key.rate_count AS key_rate_count,
       limit_key.rate_seconds AS key_rate_seconds, limit_key.tokens AS key_tokens,
       {ms_since(limit_key.refilled_at)} AS key_refilled_ms
FROM (SELECT 1 AS one) AS ground
LEFT JOIN holdfast.queue AS queue ON queue.name = :queue
LEFT JOIN holdfast.tenant AS tenant ON tenant.org_id = :org_id
LEFT JOIN holdfast.limit_key AS limit_key ON limit_key.name = (
    SELECT rule.name FROM holdfast.limit_key AS rule
    WHERE rule.name = :limit_key
       OR (substr(rule.name, length(rule.name), 1) = '*' AND :limit_key <> '~batch'
           AND substr(:limit_key, 1, length(rule.name) - 1) || '*' = rule.name)
    ORDER BY CASE WHEN rule.name = :limit_key THEN 0 ELSE 1 END, length(rule.name) DESC
    LIMIT 1);

-- count_running :one — crosses tenants: the live leases, as the caps count them
SELECT coalesce(sum(CASE WHEN queue = :queue THEN 1 ELSE 0 END), 0) AS in_queue,
       coalesce(sum(CASE WHEN queue = :queue AND org_id = :org_id THEN 1 ELSE 0 END), 0)
           AS of_tenant_here,
       coalesce(sum(CASE WHEN org_id = :org_id THEN 1 ELSE 0 END), 0) AS of_tenant,
       coalesce(sum(CASE WHEN limit_key = :limit_key THEN 1 ELSE 0 END), 0) AS of_key
FROM holdfast.job_running
WHERE lease_expires_at >= {now};

-- count_ahead :one — jobs of its tenant and key that are ahead of it, counted up to :limit
SELECT count(*) AS ahead
FROM (SELECT 1 FROM holdfast.job_ready AS job
      WHERE job.queue = :queue AND job.limit_key = :limit_key AND job.org_id = :org_id
        AND job.turn < :turn
      ORDER BY job.queue, job.limit_key, job.org_id, job.turn
      LIMIT :limit) AS head;

-- find_next_runs :many — crosses tenants: when runs of these names are due
SELECT schedule.run_name, min(schedule.next_fire_at) AS next_fire_at
FROM {rows runs: name text}
JOIN holdfast.schedule AS schedule ON schedule.run_name = runs.name
WHERE schedule.paused_at IS NULL
GROUP BY schedule.run_name;

-- find_replay :maybe — the replay of a dead letter that is in progress
SELECT replay_job_id FROM holdfast.dead_letter_replay
WHERE org_id = :org_id AND job_id = :job_id AND ended_at IS NULL;

-- find_posted :maybe — the deliveries of an outbox job: its payload contains only ids
SELECT CAST(payload AS text) AS payload FROM holdfast.job
WHERE org_id = :org_id AND id = :id AND job_type = 'outbox.deliver';

-- count_deliveries :many — the unsent deliveries of a job, by channel and state
-- These are the deliveries that it intended, and those that it was enqueued for. Of the attempted
-- ones, also how many have an attempt with an unknown outcome.
SELECT open.channel, open.state, count(*) AS deliveries,
       sum(CASE WHEN open.attempts > 0 THEN 1 ELSE 0 END) AS tried,
       sum(open.is_unsure) AS unsure,
       sum(CASE WHEN open.reason = 'circuit_open' THEN 1 ELSE 0 END) AS kept,
       (SELECT min(circuit.code) FROM holdfast.channel_circuit AS circuit
        WHERE circuit.channel = open.channel AND circuit.kind = 'refused') AS refusal
FROM (SELECT delivery.channel, delivery.state, delivery.attempts, delivery.reason,
             CASE WHEN EXISTS (SELECT 1 FROM holdfast.delivery_attempt AS attempt
                               WHERE attempt.org_id = delivery.org_id
                                 AND attempt.delivery_id = delivery.id
                                 AND attempt.number = delivery.attempts
                                 AND coalesce(attempt.outcome, attempt.phase, 'unsure')
                                     IN ('unsure', 'committed'))
                  THEN 1 ELSE 0 END AS is_unsure
      FROM (SELECT own.id FROM holdfast.delivery AS own
            WHERE own.org_id = :org_id AND own.job_id = :id
            UNION
            SELECT posted.delivery_id FROM {rows posted: delivery_id uuid}) AS wanted
      JOIN holdfast.delivery AS delivery
        ON delivery.org_id = :org_id AND delivery.id = wanted.id
      WHERE delivery.state IN ('pending', 'held', 'failed')) AS open
GROUP BY open.channel, open.state
ORDER BY open.channel, open.state;
