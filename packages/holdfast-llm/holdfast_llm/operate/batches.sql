-- Operator access to provider batches. A batch serves many tenants, so every statement crosses
-- tenants, and only an operator for all tenants has access.

-- list_batches :many — crosses tenants: newest first, page by page
SELECT id, account, provider, adapter_kind, model, execution_mode, group_key, state, items, bytes,
       input_tokens, create_attempt, rounds, polls, provider_batch_id, provider_status, error_class,
       error_code, next_at, deadline_at, cancel_requested_at, created_at, submitted_at, ended_at,
       collected_at, files_deleted_at
FROM holdfast.provider_batch
WHERE id < :before
  AND (CAST(:state AS text) IS NULL OR state = :state)
  AND (CAST(:mode AS text) IS NULL OR execution_mode = :mode)
  AND (:with_ended = 1 OR CAST(:state AS text) IS NOT NULL
       OR state NOT IN ('collected', 'released'))
ORDER BY id DESC
LIMIT :limit;

-- find_batch :maybe — crosses tenants: one batch
SELECT id, account, provider, adapter_kind, model, execution_mode, group_key, state, items, bytes,
       input_tokens, create_attempt, rounds, polls, provider_batch_id, provider_status, error_class,
       error_code, next_at, deadline_at, cancel_requested_at, created_at, submitted_at, ended_at,
       collected_at, files_deleted_at
FROM holdfast.provider_batch
WHERE id = :id;

-- count_items :many — crosses tenants: item counts of a batch by outcome
SELECT state, count(*) AS items FROM holdfast.batch_item
WHERE batch_id = :id
GROUP BY state
ORDER BY state;

-- list_items :many — crosses tenants: the items of a batch, open ones first
SELECT batch_item_index, org_id, job_id, job_type, attempt, custom_id, state, error_class,
       error_code, provider_request_id, submitted_at, finished_at, recorded_at
FROM holdfast.batch_item
WHERE batch_id = :id AND batch_item_index > :after
ORDER BY batch_item_index
LIMIT :limit;

-- request_cancel :affected — crosses tenants: the next collector cancels it at the provider
UPDATE holdfast.provider_batch
SET cancel_requested_at = coalesce(cancel_requested_at, {now}), next_at = {now}, updated_at = {now}
WHERE id = :id AND execution_mode = 'batch' AND state = 'submitted';

-- find_ids :many — crosses tenants: ids of batches in a range
SELECT id FROM holdfast.provider_batch
WHERE id >= :low AND id <= :high
ORDER BY id
LIMIT :limit;

-- find_ids_beside :many — crosses tenants: the next smaller and the next larger id of each
SELECT ids.id,
       (SELECT batch.id FROM holdfast.provider_batch AS batch WHERE batch.id < ids.id
        ORDER BY batch.id DESC LIMIT 1) AS below,
       (SELECT batch.id FROM holdfast.provider_batch AS batch WHERE batch.id > ids.id
        ORDER BY batch.id LIMIT 1) AS above
FROM {rows ids: id uuid};
