-- A rewrite job as its contract describes it, and all that is on record of it: one row a request
-- that was enqueued, wherever its job is kept, and even when the job's own row is pruned. No text.
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
    coalesce(job.updated_at, request.updated_at) AS updated_at,
    job.not_before_at,
    job.claimed_at,
    job.claimed_by,
    job.attempt_count,
    -- The number of the execution that runs, or comes next, or was the last: the first is 1.
    job.attempt_count + CASE WHEN request.status = 'failed' THEN 0 ELSE 1 END AS attempt,
    job.attempt_count + CASE WHEN request.status = 'completed' THEN 1 ELSE 0 END AS attempts,
    job.max_attempts,
    job.last_error,
    job.last_error_at,
    job.queue,
    job.origin_queue,
    job.provider_batch_id,
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
    -- SQLite and PostgreSQL have different words for a path into JSON.
    coalesce(
        {only sqlite}json_extract(request.classifier_result, '$.confidence.language_confidence'){end}
        {only postgres}(request.classifier_result #>> '{confidence,language_confidence}'){end},
        'low') AS language_confidence,
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
    (SELECT min(event.at) FROM holdfast.job_event AS event
     WHERE event.job_id = request.job_id AND event.org_id = request.org_id
       AND event.name = 'job.started') AS started_at,
    (SELECT min(event.at) FROM holdfast.job_event AS event
     WHERE event.job_id = request.job_id AND event.org_id = request.org_id
       AND event.name = 'job.submitted') AS submitted_at,
    request.rewrite_completed_at,
    request.sender_reveal_at,
    request.revealed_at,
    request.failed_at,
    request.canceled_at,
    request.erased_at
FROM holdfast.rewrite_request AS request
LEFT JOIN holdfast.job_record AS job ON job.org_id = request.org_id AND job.id = request.job_id
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
