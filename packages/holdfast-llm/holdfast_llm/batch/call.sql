-- Direct calls: an intent before the call, and its end with the job's outcome.

-- find_held :many — crosses tenants: which of these claims are still held, and their cancel requests
SELECT job.job_id AS id, cancel.requested_at AS cancel_requested_at
FROM {rows held: org_id uuid, id uuid, lease_token bigint}
JOIN holdfast.job_running AS job
  ON job.org_id = held.org_id AND job.job_id = held.id AND job.lease_token = held.lease_token
LEFT JOIN holdfast.job_cancel AS cancel
  ON cancel.org_id = job.org_id AND cancel.job_id = job.job_id;

-- add_group :affected — crosses tenants: a group of calls; nothing of it stays at the provider
INSERT INTO holdfast.provider_batch
    (id, account, provider, adapter_kind, model, execution_mode, group_key, state, items, bytes,
     input_tokens, submitted_at, ended_at, files_deleted_at, next_at, created_at, updated_at)
VALUES
    (:id, :account, :provider, :adapter_kind, :model, 'async', :group_key, 'ended', :items, :bytes,
     :input_tokens, {now}, {now}, {now}, {now}, {now}, {now})
ON CONFLICT (id) DO NOTHING;

-- add_items :affected — crosses tenants: the job of each call of a group, before any is made
INSERT INTO holdfast.batch_item
    (batch_id, batch_item_index, org_id, job_id, job_type, execution_mode, unit, attempt,
     lease_token, custom_id, echo, group_key, input_tokens, reserve_pico, submitted_at, created_at)
SELECT items.batch_id, items.batch_item_index, items.org_id, items.job_id, items.job_type, 'async',
       items.unit, items.attempt, items.lease_token, items.custom_id, items.echo, items.group_key,
       items.input_tokens, items.reserve_pico, {now}, {now}
FROM {rows items: batch_id uuid, batch_item_index integer, org_id uuid, job_id uuid, job_type text,
      unit text, attempt integer, lease_token bigint, custom_id text, echo text, group_key text,
      input_tokens bigint, reserve_pico bigint}
WHERE TRUE
ON CONFLICT (org_id, batch_id, batch_item_index) DO NOTHING;

-- list_left :many — crosses tenants: calls that earlier claims of these jobs left open
SELECT item.batch_id, item.batch_item_index, item.org_id, item.job_id, item.job_type, item.attempt,
       item.group_key, item.reserve_pico, batch.account
FROM {rows held: org_id uuid, id uuid, lease_token bigint}
JOIN holdfast.batch_item AS item ON item.org_id = held.org_id AND item.job_id = held.id
JOIN holdfast.provider_batch AS batch ON batch.id = item.batch_id
WHERE item.is_open = 1 AND item.execution_mode = 'async' AND item.lease_token < held.lease_token;

-- list_abandoned :many — crosses tenants: calls whose job is no longer claimed by their worker
SELECT item.batch_id, item.batch_item_index, item.org_id, item.job_id, item.job_type, item.attempt,
       item.group_key, item.reserve_pico, batch.account
FROM holdfast.batch_item AS item
JOIN holdfast.provider_batch AS batch ON batch.id = item.batch_id
WHERE item.is_open = 1 AND item.execution_mode = 'async'
  AND NOT EXISTS (
      SELECT 1 FROM holdfast.job_running AS job
      WHERE job.org_id = item.org_id AND job.job_id = item.job_id
        AND job.lease_token = item.lease_token)
ORDER BY item.batch_id, item.batch_item_index
LIMIT :limit;

-- end_items :many — crosses tenants: outcomes of calls, once each
UPDATE holdfast.batch_item AS item
SET state = ends.state, is_open = 0, error_class = ends.error_class, error_code = ends.error_code,
    provider_request_id = ends.provider_request_id, finished_at = ends.finished_at,
    recorded_at = {now}
FROM {rows ends: group_id uuid, place integer, state text, error_class text,
      error_code text, provider_request_id text, finished_at instant}
WHERE item.batch_id = ends.group_id AND item.batch_item_index = ends.place AND item.is_open = 1
RETURNING batch_id, batch_item_index;

-- close_groups :affected — crosses tenants: groups whose calls have all ended
UPDATE holdfast.provider_batch AS batch
SET state = 'collected', collected_at = {now}, updated_at = {now}
WHERE id IN (SELECT ended.batch_id FROM {rows ended: batch_id uuid})
  AND execution_mode = 'async' AND state = 'ended'
  AND NOT EXISTS (
      SELECT 1 FROM holdfast.batch_item AS item
      WHERE item.batch_id = batch.id AND item.is_open = 1);

-- list_unclosed :many — crosses tenants: groups that two workers finished at the same time
SELECT batch.id AS batch_id FROM holdfast.provider_batch AS batch
WHERE batch.execution_mode = 'async' AND batch.state = 'ended'
  AND NOT EXISTS (
      SELECT 1 FROM holdfast.batch_item AS item
      WHERE item.batch_id = batch.id AND item.is_open = 1)
LIMIT :limit;
