-- Statements of the views. All but the operator's filter by home and person.

-- find_sent :maybe — the status of a sender's rewrite; its text once revealed
SELECT status.rewrite_request_id, status.status, status.created_at, status.completed_at,
       status.sender_reveal_at, status.has_failed, output.rewritten_text, output.output_language
FROM holdfast.rewrite_status AS status
LEFT JOIN holdfast.rewrite_output AS output
  ON output.org_id = status.org_id AND output.rewrite_request_id = status.rewrite_request_id
 AND status.sender_reveal_at <= {now}
WHERE status.org_id = :org_id AND status.rewrite_request_id = :id
  AND status.sender_user_id = :user_id;

-- list_sent :many — the same for a sender's latest rewrites
SELECT status.rewrite_request_id, status.status, status.created_at, status.completed_at,
       status.sender_reveal_at, status.has_failed, output.rewritten_text, output.output_language
FROM holdfast.rewrite_status AS status
LEFT JOIN holdfast.rewrite_output AS output
  ON output.org_id = status.org_id AND output.rewrite_request_id = status.rewrite_request_id
 AND status.sender_reveal_at <= {now}
WHERE status.org_id = :org_id AND status.sender_user_id = :user_id
  AND status.rewrite_request_id < CAST(:before AS {uuid})
ORDER BY status.rewrite_request_id DESC
LIMIT :limit;

-- list_received :many — the rewrites whose snapshot names the person as recipient
SELECT output.rewrite_request_id, output.rewritten_text, output.output_language
FROM holdfast.rewrite_request AS request
JOIN holdfast.recipient_snapshot AS snapshot
  ON snapshot.org_id = request.org_id
 AND snapshot.recipient_snapshot_id = request.recipient_snapshot_id
JOIN holdfast.rewrite_output AS output
  ON output.org_id = request.org_id AND output.rewrite_request_id = request.rewrite_request_id
 AND output.recipient_user_id = request.recipient_user_id
WHERE request.org_id = :org_id AND request.recipient_user_id = :user_id
  AND request.status = 'completed' AND output.erased_at IS NULL
  AND CAST(snapshot.recipient_user_ids AS text) = :named
  AND request.rewrite_request_id < CAST(:before AS {uuid})
ORDER BY request.rewrite_request_id DESC
LIMIT :limit;

-- find_record :maybe — crosses tenants: the job record of the contract, then other records; no text
SELECT request.job_id, request.rewrite_request_id, 'complaint_rewrite' AS task, request.surface,
       request.rewrite_strength, job.language_pair, request.recipient_user_id,
       request.recipient_snapshot_id, request.recipient_preference_snapshot_id, request.status,
       coalesce(job.created_at, request.created_at) AS created_at,
       coalesce(job.updated_at, request.updated_at) AS updated_at, job.not_before_at,
       job.claimed_at, job.claimed_by, coalesce(job.attempt_count, 0) AS attempt_count,
       job.max_attempts, job.last_error, job.last_error_at, request.routing_decision,
       request.org_id AS home_id, request.sender_user_id, request.step, request.failure_code,
       job.attempt, job.attempts, job.queue, request.source_locale, request.target_locale,
       request.source_locale_raw, request.target_locale_raw, request.lane, request.topics,
       request.intent, request.classifier_result, request.policy, request.request_hash,
       request.classifier_version, request.context_pack_version, request.policy_version,
       request.iso_week_year, request.iso_week, request.request_id, request.correlation_id,
       request.created_at AS received_at, request.queued_at, request.classified_at,
       request.context_built_at, request.routed_at, request.enqueued_at, job.started_at,
       job.submitted_at, request.rewrite_completed_at, request.sender_reveal_at,
       request.revealed_at, request.failed_at, request.canceled_at, request.concluded_at,
       request.erased_at, request.preferences_erased_at, job.provider_batch_id,
       job.batch_group_key, job.batch_id, job.batch_item_index, output.provider, output.model,
       output.prompt_version, output.output_language, output.lexicon_version, output.eval_result,
       draft.state AS draft_state, draft.gate, draft.findings, draft.no_verdict_code,
       draft.hold_reason, draft.held_at, draft.judge_job_id, draft.judge_model,
       draft.judge_version, draft.decision, draft.decided_by, draft.decided_at,
       {field(done.result, reused_from)} AS reused_from
FROM holdfast.rewrite_request AS request
LEFT JOIN holdfast.rewrite_job AS job
  ON job.org_id = request.org_id AND job.rewrite_request_id = request.rewrite_request_id
LEFT JOIN holdfast.job_record AS done ON done.org_id = request.org_id AND done.id = request.job_id
LEFT JOIN holdfast.rewrite_output AS output
  ON output.org_id = request.org_id AND output.rewrite_request_id = request.rewrite_request_id
LEFT JOIN holdfast.rewrite_draft AS draft
  ON draft.org_id = request.org_id AND draft.rewrite_request_id = request.rewrite_request_id
WHERE request.rewrite_request_id = :id
  AND (CAST(:org_id AS {uuid}) IS NULL OR request.org_id = :org_id);

-- list_told :many — the audit events of a rewrite, in order
SELECT name, at, actor_type, actor_id, detail
FROM holdfast.job_event
WHERE job_id = :subject_id AND org_id = :org_id
ORDER BY id;
