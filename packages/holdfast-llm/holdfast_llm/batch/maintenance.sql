-- Maintenance of the tables of batch processing.

-- find_maintenance :one — crosses tenants: 1 for every step that has work
SELECT
    (SELECT 1 FROM holdfast.job AS job
     WHERE job.state = 'processing' AND job.lease_expires_at < {now} AND job.limit_key = '~batch'
       AND NOT EXISTS (
           SELECT 1 FROM holdfast.batch_item AS item
           WHERE item.org_id = job.org_id AND item.job_id = job.id AND item.is_open = 1
             AND item.execution_mode = 'batch')
     LIMIT 1) AS rescue,
    coalesce(
        (SELECT 1 FROM holdfast.batch_answer AS answer
         WHERE answer.expires_at <= {now} ORDER BY answer.expires_at LIMIT 1),
        (SELECT 1 FROM holdfast.provider_batch AS batch
         WHERE batch.state IN ('collected', 'released')
           AND batch.updated_at < {later(-CAST(:keep_ms AS bigint))}
         ORDER BY batch.updated_at LIMIT 1)) AS prune;

-- find_stale :many — crosses tenants: expired claims of batch jobs that are in no batch
-- A job that may be in a provider's batch is not stale: only the recovery of that batch may release
-- it, or the request would be paid for twice. This waits for no row lock or execution unit.
SELECT id, org_id, project_id, job_type, category, actor_type, actor_id, request_id,
       correlation_id, idempotency_key, payload, priority, unit_key, scheduled_for, traceparent,
       routing_decision, replay_of, created_at, queue, stage, pipeline_version, attempt_count,
       max_attempts, lease_token, claimed_at, claimed_by, cancel_requested_at, first_failed_at,
       turn, limit_key, NULL AS releases
FROM holdfast.job AS job
WHERE state = 'processing' AND lease_expires_at < {now} AND limit_key = '~batch'
  AND CAST(:dead_worker_id AS text) IS NULL
  AND NOT EXISTS (
      SELECT 1 FROM holdfast.batch_item AS item
      WHERE item.org_id = job.org_id AND item.job_id = job.id AND item.is_open = 1
        AND item.execution_mode = 'batch')
  AND (unit_key IS NULL OR {unit_free(CAST(org_id AS text) || job_type || unit_key)})
ORDER BY lease_expires_at
LIMIT :limit
{skip_held(job)};

-- forget_answers :affected — crosses tenants: kept answers of canceled jobs
DELETE FROM holdfast.batch_answer
WHERE (org_id, job_id) IN (SELECT jobs.org_id, jobs.job_id FROM {rows jobs: org_id uuid, job_id uuid});

-- prune_items :affected — crosses tenants: items of ended batches, in pieces
DELETE FROM holdfast.batch_item
WHERE (batch_id, batch_item_index) IN (
    SELECT item.batch_id, item.batch_item_index
    FROM holdfast.provider_batch AS batch
    JOIN holdfast.batch_item AS item ON item.batch_id = batch.id
    WHERE batch.state IN ('collected', 'released')
      AND (batch.files_deleted_at IS NOT NULL OR batch.execution_mode = 'async')
      AND batch.updated_at < {later(-CAST(:keep_ms AS bigint))} AND item.is_open = 0
    LIMIT :limit);

-- prune_answers :affected — crosses tenants: raw lines of paid answers after their retention
DELETE FROM holdfast.batch_answer
WHERE (batch_id, batch_item_index) IN (
    SELECT batch_id, batch_item_index FROM holdfast.batch_answer
    WHERE expires_at <= {now}
    ORDER BY expires_at
    LIMIT :limit);

-- prune_batches :affected — crosses tenants: ended batches without items
DELETE FROM holdfast.provider_batch AS batch
WHERE batch.state IN ('collected', 'released')
  AND (batch.files_deleted_at IS NOT NULL OR batch.execution_mode = 'async')
  AND batch.updated_at < {later(-CAST(:keep_ms AS bigint))}
  AND NOT EXISTS (SELECT 1 FROM holdfast.batch_item AS item WHERE item.batch_id = batch.id);
