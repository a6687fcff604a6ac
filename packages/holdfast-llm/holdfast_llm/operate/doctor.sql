-- Doctor checks of batch processing.

-- list_stuck :many — crosses tenants: overdue batches by state
SELECT stuck.state, count(*) AS batches, sum(stuck.items) AS items,
       max({ms_since(stuck.next_at)}) AS late_ms
FROM (SELECT batch.state, batch.items, batch.next_at FROM holdfast.provider_batch AS batch
      WHERE batch.state IN ('prepared', 'uploaded', 'creating', 'submitted', 'ended')
        AND batch.next_at < {later(-CAST(:late_ms AS bigint))}
      ORDER BY batch.next_at
      LIMIT :limit) AS stuck
GROUP BY stuck.state
ORDER BY stuck.state;

-- list_quarantined :many — crosses tenants: batches that wait for an operator, oldest first
SELECT batch.id, batch.provider, batch.items, batch.error_code, batch.updated_at
FROM holdfast.provider_batch AS batch
WHERE batch.state = 'quarantined'
ORDER BY batch.created_at
LIMIT :limit;

-- count_undeleted :one — crosses tenants: ended batches whose files could not be deleted
SELECT count(*) AS batches, min(old.updated_at) AS since
FROM (SELECT batch.updated_at FROM holdfast.provider_batch AS batch
      WHERE batch.state IN ('collected', 'released') AND batch.files_deleted_at IS NULL
        AND batch.execution_mode = 'batch'
        AND batch.updated_at < {later(-CAST(:age_ms AS bigint))}
      LIMIT :limit) AS old;

-- find_unsubmitted :many — crosses tenants: the age of the oldest job that waits for a submitter
WITH RECURSIVE queues (name) AS (
    SELECT (SELECT job.queue FROM holdfast.job_ready AS job
            ORDER BY job.queue, job.limit_key LIMIT 1)
    UNION ALL
    SELECT (SELECT job.queue FROM holdfast.job_ready AS job WHERE job.queue > queues.name
            ORDER BY job.queue, job.limit_key LIMIT 1)
    FROM queues
    WHERE queues.name IS NOT NULL
)
SELECT max({ms_since(found.since)}) AS waits_ms
FROM (SELECT (SELECT min(head.created_at) FROM (
                  SELECT job.created_at FROM holdfast.job_ready AS job
                  WHERE job.queue = queues.name AND job.limit_key = '~batch'
                  ORDER BY job.queue, job.limit_key, job.org_id, job.turn
                  LIMIT :limit) AS head) AS since
      FROM queues
      WHERE queues.name IS NOT NULL) AS found
WHERE found.since IS NOT NULL;

-- list_routes :many — crosses tenants: the routes of waiting batch jobs
SELECT waiting.routing_decision, count(*) AS jobs
FROM (SELECT CAST(job.routing_decision AS text) AS routing_decision
      FROM (SELECT org_id, job_id FROM holdfast.job_ready WHERE limit_key = '~batch'
            UNION ALL
            SELECT org_id, job_id FROM holdfast.job_waiting WHERE limit_key = '~batch') AS queued
      JOIN holdfast.job_envelope AS job ON job.org_id = queued.org_id AND job.id = queued.job_id
      LIMIT :limit) AS waiting
WHERE waiting.routing_decision IS NOT NULL
GROUP BY waiting.routing_decision
ORDER BY waiting.routing_decision;

-- list_unreached :many — crosses tenants: batches whose account no collector has
SELECT batch.account, count(*) AS batches, sum(batch.items) AS items,
       min(batch.submitted_at) AS since
FROM holdfast.provider_batch AS batch
WHERE batch.state IN ('submitted', 'ended') AND batch.error_code = :error_code
GROUP BY batch.account
ORDER BY batch.account;

-- find_last_runs :many — crosses tenants: the last start of the runs with these names
SELECT runs.name, (SELECT max(run.started_at) FROM holdfast.worker_run AS run
                   WHERE run.name = runs.name AND run.outcome IS DISTINCT FROM 'skipped')
           AS started_at
FROM {rows runs: name text};

-- list_circuits :many — crosses tenants: accounts with an open circuit
SELECT account.account, account.provider, account.error_code, account.times, account.opened_at,
       account.open_until
FROM holdfast.provider_account AS account
WHERE account.closed_at IS NULL
ORDER BY account.opened_at
LIMIT :limit;

-- list_unpriced :many — crosses tenants: used models without a price
SELECT found.provider, found.model, found.execution_mode, count(*) AS calls
FROM (SELECT call.provider, coalesce(call.model_billed, call.model) AS model, call.execution_mode
      FROM holdfast.provider_call AS call
      WHERE call.cost_pico IS NULL AND call.kind <> 'unknown'
        AND call.occurred_at > {later(-CAST(:age_ms AS bigint))}
      ORDER BY call.occurred_at DESC
      LIMIT :limit) AS found
GROUP BY found.provider, found.model, found.execution_mode
ORDER BY found.provider, found.model, found.execution_mode;

-- list_provider_kinds :many — crosses tenants: providers of batches and waiting jobs, and their adapters
SELECT batch.provider, batch.adapter_kind FROM holdfast.provider_batch AS batch
WHERE batch.created_at > {later(-CAST(7776000000 AS bigint))}
UNION
SELECT {field(job.routing_decision, provider)}, {field(job.routing_decision, adapter_kind)}
FROM (SELECT org_id, job_id FROM holdfast.job_ready WHERE limit_key = '~batch'
      UNION ALL
      SELECT org_id, job_id FROM holdfast.job_waiting WHERE limit_key = '~batch') AS queued
JOIN holdfast.job_envelope AS job ON job.org_id = queued.org_id AND job.id = queued.job_id
WHERE job.routing_decision IS NOT NULL;

-- list_used_providers :many — crosses tenants: the providers that were paid within 90 days
SELECT DISTINCT call.provider
FROM holdfast.provider_call AS call
WHERE call.occurred_at > {later(-CAST(7776000000 AS bigint))};

-- count_stale :one — crosses tenants: expired claims that are in no batch, counted up to :limit
SELECT count(*) AS jobs, max({ms_since(stale.lease_expires_at)}) AS late_ms
FROM (SELECT job.lease_expires_at FROM holdfast.job_running AS job
      WHERE lease_expires_at < {later(-CAST(:grace_ms AS bigint))}
        AND limit_key = '~batch'
        AND NOT EXISTS (SELECT 1 FROM holdfast.batch_item AS item
                        WHERE item.org_id = job.org_id AND item.job_id = job.job_id
                          AND item.is_open = 1 AND item.execution_mode = 'batch')
      ORDER BY lease_expires_at
      LIMIT :limit) AS stale;
