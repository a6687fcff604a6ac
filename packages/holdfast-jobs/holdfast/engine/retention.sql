-- Archiving and pruning. The statements serve every tenant: retention depends on the kind of a job,
-- never on its tenant.

-- find_archivable :many — crosses tenants: completed and canceled jobs, oldest first
SELECT org_id, id
FROM holdfast.job
WHERE state IN ('completed', 'canceled')
  AND finished_at <= {later(-CAST(:after_ms AS bigint))}
ORDER BY finished_at
LIMIT :limit
{skip_locked};

-- archive_jobs :many — a job whose key is already in history is not moved and blocks no other
INSERT INTO holdfast.job_history
    (id, org_id, project_id, job_type, category, actor_type, actor_id, request_id, correlation_id,
     idempotency_key, payload, payload_hash, priority, unit_key, scheduled_for, traceparent,
     routing_decision, replay_of, origin_queue, created_at, state, queue, stage, pipeline_version,
     attempt_count, max_attempts, not_before_at, lease_token, lease_expires_at, claimed_at,
     claimed_by, cancel_requested_at, provider_batch_id, first_failed_at, last_error,
     last_error_at, error_class, result, updated_at, finished_at, key_last_seen_at,
     key_expires_at, turn, limit_key)
SELECT job.id, job.org_id, job.project_id, job.job_type, job.category, job.actor_type,
       job.actor_id, job.request_id, job.correlation_id, job.idempotency_key, job.payload,
       job.payload_hash, job.priority, job.unit_key, job.scheduled_for, job.traceparent,
       job.routing_decision, job.replay_of, job.origin_queue, job.created_at, job.state,
       job.queue, job.stage, job.pipeline_version, job.attempt_count, job.max_attempts,
       job.not_before_at, job.lease_token, job.lease_expires_at, job.claimed_at, job.claimed_by,
       job.cancel_requested_at, job.provider_batch_id, job.first_failed_at, job.last_error,
       job.last_error_at, job.error_class, job.result, job.updated_at, job.finished_at,
       job.key_last_seen_at, job.key_expires_at, job.turn, job.limit_key
FROM {rows ended: org_id uuid, id uuid}
JOIN holdfast.job AS job ON job.org_id = ended.org_id AND job.id = ended.id
WHERE TRUE
ON CONFLICT DO NOTHING
RETURNING org_id, id;

-- archive_stages :affected — move the stage results with their jobs
INSERT INTO holdfast.job_stage_history
    (org_id, job_id, stage, attempts, output, checkpoint, progress, updated_at, finished_at)
SELECT stage.org_id, stage.job_id, stage.stage, stage.attempts, stage.output, stage.checkpoint,
       stage.progress, stage.updated_at, stage.finished_at
FROM {rows ended: org_id uuid, id uuid}
JOIN holdfast.job_stage AS stage ON stage.org_id = ended.org_id AND stage.job_id = ended.id
WHERE TRUE;

-- delete_jobs :affected — delete finished jobs that are archived or past their retention
DELETE FROM holdfast.job
WHERE (org_id, id) IN (
    SELECT ended.org_id, ended.id FROM {rows ended: org_id uuid, id uuid});

-- list_archived_kinds :many — crosses tenants: the kinds of jobs in history, one lookup for each
-- Each step asks the index for the next kind: a million jobs of one kind cost one step.
WITH RECURSIVE categories (category) AS (
    SELECT min(category) FROM holdfast.job_history
    UNION ALL
    SELECT (SELECT min(job.category) FROM holdfast.job_history AS job
            WHERE job.category > categories.category)
    FROM categories
    WHERE categories.category IS NOT NULL
),
kinds (category, job_type) AS (
    SELECT categories.category, (SELECT min(job.job_type) FROM holdfast.job_history AS job
                                 WHERE job.category = categories.category)
    FROM categories
    UNION ALL
    SELECT kinds.category, (SELECT min(job.job_type) FROM holdfast.job_history AS job
                            WHERE job.category = kinds.category AND job.job_type > kinds.job_type)
    FROM kinds
    WHERE kinds.job_type IS NOT NULL
)
SELECT category, job_type FROM kinds WHERE job_type IS NOT NULL;

-- list_failed_kinds :many — crosses tenants: the kinds of failed jobs
WITH RECURSIVE categories (category) AS (
    SELECT min(category) FROM holdfast.job WHERE state = 'failed'
    UNION ALL
    SELECT (SELECT min(job.category) FROM holdfast.job AS job
            WHERE job.state = 'failed' AND job.category > categories.category)
    FROM categories
    WHERE categories.category IS NOT NULL
),
kinds (category, job_type) AS (
    SELECT categories.category, (SELECT min(job.job_type) FROM holdfast.job AS job
                                 WHERE job.state = 'failed'
                                   AND job.category = categories.category)
    FROM categories
    UNION ALL
    SELECT kinds.category, (SELECT min(job.job_type) FROM holdfast.job AS job
                            WHERE job.state = 'failed' AND job.category = kinds.category
                              AND job.job_type > kinds.job_type)
    FROM kinds
    WHERE kinds.job_type IS NOT NULL
)
SELECT category, job_type FROM kinds WHERE job_type IS NOT NULL;

-- record_pruned :affected — crosses tenants: record that jobs are deleted
-- Verify requires it for a job that is in the audit but in no table. The digest is that of the last
-- change, so it cannot be written without the row.
INSERT INTO holdfast.job_event
    (org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
     correlation_id, at, detail, digest)
SELECT job.org_id, job.project_id, job.id, job.job_type, 'job.pruned', job.attempt_count + 1,
       :actor_type, :actor_id, job.request_id, job.correlation_id, {now},
       {json_object}(
           'state', job.state, 'finished_at', {stamp(job.finished_at)}),
       {digest state job}
FROM {rows ended: org_id uuid, id uuid}
JOIN holdfast.job_record AS job ON job.org_id = ended.org_id AND job.id = ended.id
WHERE {numbered};

-- prune_history :affected — delete archived jobs past their retention, with their stage results
DELETE FROM holdfast.job_history
WHERE (org_id, id) IN (
    SELECT ended.org_id, ended.id FROM {rows ended: org_id uuid, id uuid});

-- prune_deliveries :many — crosses tenants: deliveries past their retention
-- Deliveries of jobs that may be replayed are kept.
DELETE FROM holdfast.delivery
WHERE (org_id, id) IN (
    SELECT told.org_id, told.id
    FROM holdfast.delivery AS told
    WHERE told.ended_at < {later(-CAST(:keep_ms AS bigint))}
      AND NOT EXISTS (
          SELECT 1 FROM holdfast.job AS job
          WHERE job.org_id = told.org_id AND job.id = told.job_id)
    ORDER BY told.ended_at
    LIMIT :limit)
RETURNING org_id, id, request_id, correlation_id;

-- record_removed :affected — crosses tenants: record the deletion of deliveries
INSERT INTO holdfast.job_event
    (org_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id, correlation_id, at,
     detail)
SELECT removed.org_id, removed.id, 'delivery', 'delivery.removed', 1, :actor_type, :actor_id,
       removed.request_id, removed.correlation_id, {now}, CAST(:detail AS {json})
FROM {rows removed: org_id uuid, id uuid, request_id text, correlation_id text}
WHERE {numbered};

-- prune_in_app :affected — crosses tenants: delete notices of feeds past their retention
DELETE FROM holdfast.in_app_notification
WHERE (org_id, id) IN (
    SELECT notice.org_id, notice.id
    FROM holdfast.in_app_notification AS notice
    WHERE notice.created_at < {later(-CAST(:keep_ms AS bigint))}
    ORDER BY notice.created_at
    LIMIT :limit);
