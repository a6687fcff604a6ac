-- The jobs of a submitted batch.

-- submit_jobs :affected — crosses tenants: the jobs of a submitted batch, one slice
UPDATE holdfast.job AS job
SET state = 'batch_submitted',
    provider_batch_id = coalesce(job.provider_batch_id, :provider_batch_id),
    lease_expires_at = NULL, claimed_at = NULL, claimed_by = NULL, updated_at = {now}
WHERE job.state = 'processing' AND (job.org_id, job.id, job.lease_token) IN (
    SELECT item.org_id, item.job_id, item.lease_token FROM holdfast.batch_item AS item
    WHERE item.batch_id = :batch_id AND item.is_open = 1
      AND item.batch_item_index >= :first AND item.batch_item_index < :after);

-- list_submitted :many — crosses tenants: the jobs of the same slice, for extensions that follow them
SELECT job.org_id, job.id, job.job_type
FROM holdfast.batch_item AS item
JOIN holdfast.job AS job
  ON job.org_id = item.org_id AND job.id = item.job_id AND job.lease_token = item.lease_token
WHERE item.batch_id = :batch_id AND item.is_open = 1 AND job.state = 'batch_submitted'
  AND item.batch_item_index >= :first AND item.batch_item_index < :after
  AND (:every_type = 1
       OR item.job_type IN (SELECT types.job_type FROM {rows types: job_type text}));

-- insert_submitted :affected — crosses tenants: the audit of the same slice
-- The digest of the item follows that of the job.
INSERT INTO holdfast.job_event
    (org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
     correlation_id, at, detail, digest)
SELECT job.org_id, job.project_id, job.id, job.job_type, 'job.submitted', item.attempt, :actor_type,
       :actor_id, job.request_id, job.correlation_id, {now},
       {with_fields(:detail): 'not_before_at', {stamp(job.not_before_at)},
           'lease_token', item.lease_token},
       {digest state job} || ':' || {digest item item}
FROM holdfast.batch_item AS item
JOIN holdfast.job AS job
  ON job.org_id = item.org_id AND job.id = item.job_id AND job.lease_token = item.lease_token
WHERE item.batch_id = :batch_id AND item.is_open = 1 AND job.state = 'batch_submitted'
  AND item.batch_item_index >= :first AND item.batch_item_index < :after;

-- stop_submitted :many — crosses tenants: cancel the jobs of the same slice that have a cancel request
UPDATE holdfast.job AS job
SET state = 'canceled', finished_at = {now}, updated_at = {now},
    key_expires_at = {later(coalesce((SELECT category.key_ttl_ms FROM holdfast.category AS category
                                      WHERE category.name = job.category), 2592000000))}
FROM holdfast.batch_item AS item
WHERE item.batch_id = :batch_id AND item.is_open = 1
  AND job.org_id = item.org_id AND job.id = item.job_id
  AND job.lease_token = item.lease_token AND job.state = 'batch_submitted'
  AND job.cancel_requested_at IS NOT NULL
RETURNING job.id, job.org_id, job.project_id, job.job_type, job.category, job.actor_type,
          job.actor_id, job.request_id, job.correlation_id, job.idempotency_key, job.payload,
          job.priority, job.unit_key, job.scheduled_for, job.traceparent, job.routing_decision,
          job.replay_of, job.created_at, job.queue, job.stage, job.pipeline_version,
          job.attempt_count, job.max_attempts, job.lease_token, job.claimed_at, job.claimed_by,
          job.cancel_requested_at, job.first_failed_at, job.turn, job.limit_key;
