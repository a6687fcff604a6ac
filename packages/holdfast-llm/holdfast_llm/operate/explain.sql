-- Explanations of batch jobs.

-- find_place :maybe — its place in an open batch at a provider
SELECT item.batch_item_index, batch.id AS batch_id, batch.state, batch.provider, batch.model,
       batch.items, batch.provider_batch_id, batch.provider_status, batch.error_code,
       batch.next_at, batch.deadline_at, batch.submitted_at, batch.updated_at, batch.lease_owner,
       batch.lease_expires_at
FROM holdfast.batch_item AS item
JOIN holdfast.provider_batch AS batch ON batch.id = item.batch_id
WHERE item.org_id = :org_id AND item.job_id = :id AND item.is_open = 1
  AND item.execution_mode = 'batch';

-- find_circuit :maybe — crosses tenants: whether the circuit of the account is open
SELECT provider, error_code, times, opened_at, open_until
FROM holdfast.provider_account
WHERE provider = :provider AND closed_at IS NULL AND open_until > {now}
ORDER BY open_until DESC
LIMIT 1;

-- find_next_run :one — crosses tenants: the next start of the run with this name
SELECT min(schedule.next_fire_at) AS next_fire_at
FROM holdfast.schedule AS schedule
WHERE schedule.run_name = :name AND schedule.paused_at IS NULL;
