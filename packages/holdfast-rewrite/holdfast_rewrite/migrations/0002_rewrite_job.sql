-- A rewrite job as its contract describes it, and all that is on record of it: one row a request
-- that was enqueued, even when the job's own row is pruned. No text. The tables of the view job are
-- joined, because SQLite reads every job for a LEFT JOIN of that view.
CREATE VIEW holdfast.rewrite_job AS
SELECT
    request.org_id,
    request.job_id,
    request.rewrite_request_id,
    'complaint_rewrite' AS task,
    request.surface,
    request.rewrite_strength,
    {json_object}('from', request.source_locale, 'to', request.target_locale)
        AS language_pair,
    request.org_id AS home_id,
    request.sender_user_id,
    request.recipient_user_id,
    request.recipient_snapshot_id,
    request.recipient_preference_snapshot_id,
    request.source_locale,
    request.target_locale,
    request.lane,
    request.status,
    request.failure_code,
    request.request_id,
    request.correlation_id,
    -- A job is enqueued with its request: its time is known when its row is pruned.
    coalesce(job.created_at, request.enqueued_at) AS created_at,
    coalesce(ended.finished_at, running.claimed_at, submitted.submitted_at, attempt.ended_at,
             job.created_at, request.updated_at) AS updated_at,
    waiting.not_before_at,
    running.claimed_at,
    running.claimed_by,
    coalesce(ended.attempt_count, attempt.attempt_count, CASE WHEN job.id IS NOT NULL THEN 0 END) AS attempt_count,
    -- The number of the execution that runs, or comes next, or was the last: the first is 1.
    coalesce(ended.attempt_count, attempt.attempt_count, CASE WHEN job.id IS NOT NULL THEN 0 END)
        + CASE WHEN request.status = 'failed' THEN 0 ELSE 1 END AS attempt,
    coalesce(ended.attempt_count, attempt.attempt_count, CASE WHEN job.id IS NOT NULL THEN 0 END)
        + CASE WHEN request.status = 'completed' THEN 1 ELSE 0 END AS attempts,
    coalesce(attempt.max_attempts, job.max_attempts) AS max_attempts,
    coalesce(ended.last_error, attempt.last_error) AS last_error,
    CASE WHEN ended.last_error IS NOT NULL THEN ended.finished_at
         ELSE attempt.last_error_at END AS last_error_at,
    CASE WHEN ended.state = 'failed' THEN 'q:deadletter'
         ELSE coalesce(running.queue, waiting.queue, submitted.queue, job.origin_queue)
         END AS queue,
    job.origin_queue,
    coalesce(attempt.provider_batch_id, submitted.provider_batch_id, ended.provider_batch_id)
        AS provider_batch_id,
    coalesce(job.routing_decision, request.routing_decision) AS routing_decision,
    {field(request.routing_decision, provider)} AS provider,
    {field(request.routing_decision, adapter_kind)} AS adapter_kind,
    {field(request.routing_decision, base_url)} AS base_url,
    {field(request.routing_decision, model)} AS model,
    {field(request.routing_decision, prompt_version)} AS prompt_version,
    request.policy_version,
    {field(request.routing_decision, execution_mode)} AS execution_mode,
    request.classifier_version,
    request.context_pack_version,
    {field(request.classifier_result, detected_language)} AS detected_language,
    coalesce({field(request.classifier_result, confidence.language_confidence)}, 'low')
        AS language_confidence,
    -- The last of its places in batches; the first batch of all is provider_batch_id.
    item.group_key AS batch_group_key,
    item.batch_id,
    item.batch_item_index,
    output.lexicon_version,
    output.eval_result,
    request.created_at AS received_at,
    request.queued_at,
    request.classified_at,
    request.context_built_at,
    request.routed_at,
    request.enqueued_at,
    coalesce(
        (SELECT min(earlier.claimed_at) FROM holdfast.job_attempt AS earlier
         WHERE earlier.org_id = request.org_id AND earlier.job_id = request.job_id),
        ended.claimed_at, running.claimed_at, submitted.claimed_at,
        (SELECT min(CAST({field(past.value, at)} AS {instant}))
         FROM holdfast.job_remainder AS gone
         CROSS JOIN {elements(gone.events) AS past}
         WHERE gone.org_id = request.org_id AND gone.job_id = request.job_id
           AND {field(past.value, name)} = 'job.started')) AS started_at,
    (SELECT min(event.at) FROM holdfast.audit_event AS event
     WHERE event.jobs IS NULL AND event.job_id = request.job_id
       AND event.org_id = request.org_id AND event.name = 'job.submitted') AS submitted_at,
    request.rewrite_completed_at,
    request.sender_reveal_at,
    request.revealed_at,
    request.failed_at,
    request.canceled_at,
    request.erased_at
FROM holdfast.rewrite_request AS request
LEFT JOIN holdfast.job_envelope AS job
  ON job.org_id = request.org_id AND job.id = request.job_id
LEFT JOIN holdfast.job_outcome AS ended
  ON ended.org_id = job.org_id AND ended.job_id = job.id
LEFT JOIN holdfast.job_running AS running
  ON running.org_id = job.org_id AND running.job_id = job.id
LEFT JOIN holdfast.job_waiting AS waiting
  ON waiting.org_id = job.org_id AND waiting.job_id = job.id
LEFT JOIN holdfast.job_submitted AS submitted
  ON submitted.org_id = job.org_id AND submitted.job_id = job.id
{last_attempt attempt: job.org_id, job.id}
LEFT JOIN holdfast.rewrite_output AS output
  ON output.org_id = request.org_id AND output.rewrite_request_id = request.rewrite_request_id
LEFT JOIN holdfast.batch_item AS item
  ON item.org_id = request.org_id AND item.job_id = request.job_id
 AND NOT EXISTS (SELECT 1 FROM holdfast.batch_item AS later
                 WHERE later.org_id = item.org_id AND later.job_id = item.job_id
                   AND (later.lease_token, later.batch_id) > (item.lease_token, item.batch_id))
WHERE request.job_id IS NOT NULL;

-- What retention has still to take.
CREATE INDEX rewrite_message_kept ON holdfast.rewrite_message (created_at) WHERE erased_at IS NULL;
CREATE INDEX rewrite_output_kept ON holdfast.rewrite_output (created_at) WHERE erased_at IS NULL;
