-- Maintenance of the tables of batch processing.

-- find_maintenance :one — crosses tenants: 1 for every step that has work
SELECT
    (SELECT 1 FROM holdfast.job_running AS job
     WHERE job.lease_expires_at < {now} AND job.limit_key = '~batch'
       AND NOT EXISTS (
           SELECT 1 FROM holdfast.batch_item AS item
           WHERE item.org_id = job.org_id AND item.job_id = job.job_id AND item.is_open = 1
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
SELECT job.id, job.org_id, job.project_id, job.job_type, job.category, job.actor_type,
       job.actor_id, job.request_id, job.correlation_id, job.idempotency_key, job.payload,
       job.priority, job.unit_key, job.scheduled_for, job.traceparent, job.routing_decision,
       job.replay_of, job.created_at, job.queue, job.stage, job.pipeline_version,
       job.attempt_count, job.max_attempts, job.lease_token, job.claimed_at, job.claimed_by,
       job.cancel_requested_at, job.first_failed_at, job.turn, job.limit_key, NULL AS releases
FROM holdfast.job_running AS running
JOIN holdfast.job AS job ON job.org_id = running.org_id AND job.id = running.job_id
WHERE running.lease_expires_at < {now} AND running.limit_key = '~batch'
  AND CAST(:dead_worker_id AS text) IS NULL
  AND NOT EXISTS (
      SELECT 1 FROM holdfast.batch_item AS item
      WHERE item.org_id = running.org_id AND item.job_id = running.job_id AND item.is_open = 1
        AND item.execution_mode = 'batch')
  AND (job.unit_key IS NULL OR {unit_free(CAST(job.org_id AS text) || job.job_type || job.unit_key)})
ORDER BY running.lease_expires_at
LIMIT :limit
{skip_held(running)};

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
