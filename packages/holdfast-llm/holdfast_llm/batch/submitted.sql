-- The jobs of a submitted batch.

-- submit_jobs :affected — crosses tenants: the jobs of a submitted batch, one slice
-- In the order in which a cancel of many jobs locks them.
INSERT INTO holdfast.job_submitted
    (org_id, job_id, started_event_id, started_attempt, claimed_at, claimed_by, submitted_at,
     lease_token, queue, stage, provider_batch_id)
SELECT running.org_id, running.job_id, running.started_event_id, running.started_attempt,
       running.claimed_at, running.claimed_by, {now}, running.lease_token, running.queue,
       running.stage, :provider_batch_id
FROM holdfast.batch_item AS item
JOIN holdfast.job_running AS running
  ON {same(running.org_id, item.org_id)} AND {same(running.job_id, item.job_id)}
 AND running.lease_token = item.lease_token
WHERE item.batch_id = :batch_id AND item.is_open = 1
  AND item.batch_item_index >= :first AND item.batch_item_index < :after
ORDER BY item.org_id, item.job_id;

-- list_submitted :many — crosses tenants: the jobs of the same slice, for extensions that follow them
SELECT item.org_id, item.job_id AS id, item.job_type
FROM holdfast.batch_item AS item
JOIN holdfast.job_submitted AS submitted
  ON {same(submitted.org_id, item.org_id)} AND {same(submitted.job_id, item.job_id)}
 AND submitted.lease_token = item.lease_token
WHERE item.batch_id = :batch_id AND item.is_open = 1
  AND item.batch_item_index >= :first AND item.batch_item_index < :after
  AND (:every_type = 1
       OR item.job_type IN (SELECT types.job_type FROM {rows types: job_type text}));

-- insert_submitted :affected — crosses tenants: the audit of the same slice
-- The digest of the item follows that of the job. The tables of the view job in which a submitted job
-- has no row are not read: 10,000 jobs took 27 microseconds each instead of 49.
INSERT INTO holdfast.audit_event
    (org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
     correlation_id, at, detail, digest)
SELECT job.org_id, job.project_id, job.id, job.job_type, 'job.submitted', item.attempt, :actor_type,
       :actor_id, job.request_id, job.correlation_id, {now},
       {with_fields(:detail): 'lease_token', item.lease_token},
       {digest state job} || ':' || {digest item item}
FROM holdfast.batch_item AS item
JOIN (SELECT asked.org_id, asked.id, asked.project_id, asked.job_type,
             coalesce(asked.request_id, CAST(asked.id AS text)) AS request_id,
             coalesce(asked.correlation_id, asked.request_id, CAST(asked.id AS text))
                 AS correlation_id,
             submitted.lease_token, submitted.stage,
             coalesce(attempt.pipeline_version, asked.pipeline_version) AS pipeline_version,
             coalesce(attempt.attempt_count, 0) AS attempt_count,
             coalesce(attempt.max_attempts, asked.max_attempts) AS max_attempts,
             (SELECT cancel.requested_at FROM holdfast.job_cancel AS cancel
              WHERE cancel.org_id = asked.org_id AND cancel.job_id = asked.id)
                 AS cancel_requested_at,
             coalesce(attempt.provider_batch_id, submitted.provider_batch_id) AS provider_batch_id,
             attempt.first_failed_at, attempt.last_error_at,
             CAST(NULL AS {instant}) AS finished_at, CAST(NULL AS {instant}) AS key_expires_at,
             attempt.error_class, CAST(NULL AS {json}) AS result, attempt.last_error
      FROM holdfast.job_submitted AS submitted
      JOIN holdfast.job_envelope AS asked
        ON asked.org_id = submitted.org_id AND asked.id = submitted.job_id
      {last_attempt attempt: asked.org_id, asked.id}) AS job
  ON {same(job.org_id, item.org_id)} AND {same(job.id, item.job_id)}
 AND job.lease_token = item.lease_token
WHERE item.batch_id = :batch_id AND item.is_open = 1
  AND item.batch_item_index >= :first AND item.batch_item_index < :after;

-- find_stopped :many — crosses tenants: the jobs of the batch that have a cancel request
SELECT job.id, job.org_id, job.project_id, job.job_type, job.category, job.actor_type,
       job.actor_id, job.request_id, job.correlation_id, job.idempotency_key, job.payload,
       job.priority, job.unit_key, job.scheduled_for, job.traceparent, job.routing_decision,
       job.replay_of, job.created_at, job.queue, job.stage, job.pipeline_version,
       job.attempt_count, job.max_attempts, job.lease_token, job.claimed_at, job.claimed_by,
       job.cancel_requested_at, job.first_failed_at, job.turn, job.limit_key
FROM holdfast.batch_item AS item
JOIN holdfast.job_cancel AS cancel ON cancel.org_id = item.org_id AND cancel.job_id = item.job_id
JOIN holdfast.job_submitted AS submitted
  ON {same(submitted.org_id, item.org_id)} AND {same(submitted.job_id, item.job_id)}
 AND submitted.lease_token = item.lease_token
JOIN holdfast.job AS job ON job.org_id = submitted.org_id AND job.id = submitted.job_id
WHERE item.batch_id = :batch_id AND item.is_open = 1;
