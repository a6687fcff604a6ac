-- Statements of the work: inputs and outputs of jobs.

-- load_requests :many — crosses tenants: a page of jobs with their requests, in one read
SELECT job.id AS job_id, job.state AS status, job.attempt_count, job.max_attempts,
       job.provider_batch_id, job.routing_decision AS job_decision,
       request.rewrite_request_id, request.org_id AS home_id, request.sender_user_id,
       request.recipient_user_id, request.recipient_snapshot_id,
       request.recipient_preference_snapshot_id, request.surface, request.rewrite_strength,
       request.source_locale, request.target_locale, request.lane, request.routing_decision,
       request.rewrite_request, request.request_hash, request.erased_at
FROM {rows items: org_id uuid, job_id uuid}
JOIN holdfast.job AS job ON job.org_id = items.org_id AND job.id = items.job_id
JOIN holdfast.rewrite_request AS request
  ON request.org_id = items.org_id AND request.job_id = items.job_id;

-- find_reusable :many — crosses tenants: outputs of identical requests, oldest first
-- The whole decision is compared: another model, prompt or version is another request.
SELECT items.job_id, earlier.rewrite_request_id, output.rewritten_text, output.output_language,
       draft.findings
FROM {rows items: org_id uuid, job_id uuid}
JOIN holdfast.rewrite_request AS request
  ON request.org_id = items.org_id AND request.job_id = items.job_id
JOIN holdfast.rewrite_request AS earlier
  ON earlier.org_id = request.org_id AND earlier.content_hash = request.content_hash
 AND earlier.status = 'completed' AND earlier.sender_user_id = request.sender_user_id
 AND earlier.recipient_user_id = request.recipient_user_id
 AND earlier.routing_decision = request.routing_decision
JOIN holdfast.rewrite_output AS output
  ON output.org_id = earlier.org_id AND output.rewrite_request_id = earlier.rewrite_request_id
 AND output.recipient_user_id = request.recipient_user_id AND output.erased_at IS NULL
LEFT JOIN holdfast.rewrite_draft AS draft
  ON draft.org_id = earlier.org_id AND draft.rewrite_request_id = earlier.rewrite_request_id
 AND draft.decision IS NULL
ORDER BY earlier.rewrite_request_id;

-- insert_outputs :affected — crosses tenants: outputs, in the transaction that completes the jobs
INSERT INTO holdfast.rewrite_output
    (org_id, rewrite_request_id, recipient_user_id, rewritten_text, output_language, target_locale,
     provider, model, prompt_version, policy_version, lexicon_version, eval_result, created_at)
SELECT outputs.org_id, outputs.rewrite_request_id, outputs.recipient_user_id,
       outputs.rewritten_text, outputs.output_language, outputs.target_locale, outputs.provider,
       outputs.model, outputs.prompt_version, outputs.policy_version, outputs.lexicon_version,
       outputs.eval_result, {now}
FROM {rows outputs: org_id uuid, rewrite_request_id uuid, recipient_user_id uuid,
      rewritten_text text, output_language text, target_locale text, provider text, model text,
      prompt_version text, policy_version text, lexicon_version text, eval_result json};
