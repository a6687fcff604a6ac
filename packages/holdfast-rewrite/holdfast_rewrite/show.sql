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
-- The job record is that of the view rewrite_job. SQLite would read every job for a LEFT JOIN of that
-- view or of the view job, so the tables are joined instead.
SELECT request.job_id, request.rewrite_request_id, 'complaint_rewrite' AS task, request.surface,
       request.rewrite_strength,
       CASE WHEN request.job_id IS NOT NULL
            THEN {json_object}('from', request.source_locale, 'to', request.target_locale)
            END AS language_pair,
       request.recipient_user_id,
       request.recipient_snapshot_id, request.recipient_preference_snapshot_id, request.status,
       coalesce(job.created_at, request.enqueued_at, request.created_at) AS created_at,
       coalesce(ended.finished_at, running.claimed_at, submitted.submitted_at, attempt.ended_at,
                job.created_at, request.updated_at) AS updated_at,
       waiting.not_before_at, running.claimed_at, running.claimed_by,
       coalesce(ended.attempt_count, attempt.attempt_count, 0) AS attempt_count,
       coalesce(attempt.max_attempts, job.max_attempts) AS max_attempts,
       coalesce(ended.last_error, attempt.last_error) AS last_error,
       CASE WHEN ended.last_error IS NOT NULL THEN ended.finished_at
            ELSE attempt.last_error_at END AS last_error_at, request.routing_decision,
       request.org_id AS home_id, request.sender_user_id, request.step, request.failure_code,
       coalesce(ended.attempt_count, attempt.attempt_count, CASE WHEN job.id IS NOT NULL THEN 0 END)
           + CASE WHEN request.status = 'failed' THEN 0 ELSE 1 END AS attempt,
       coalesce(ended.attempt_count, attempt.attempt_count, CASE WHEN job.id IS NOT NULL THEN 0 END)
           + CASE WHEN request.status = 'completed' THEN 1 ELSE 0 END AS attempts,
       CASE WHEN ended.state = 'failed' THEN 'q:deadletter'
            ELSE coalesce(running.queue, waiting.queue, submitted.queue, job.origin_queue)
            END AS queue, request.source_locale, request.target_locale,
       request.source_locale_raw, request.target_locale_raw, request.lane, request.topics,
       request.intent, request.classifier_result, request.policy, request.request_hash,
       request.classifier_version, request.context_pack_version, request.policy_version,
       request.iso_week_year, request.iso_week, request.request_id, request.correlation_id,
       request.created_at AS received_at, request.queued_at, request.classified_at,
       request.context_built_at, request.routed_at, request.enqueued_at,
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
       request.rewrite_completed_at, request.sender_reveal_at,
       request.revealed_at, request.failed_at, request.canceled_at, request.concluded_at,
       request.erased_at, request.preferences_erased_at,
       coalesce(attempt.provider_batch_id, submitted.provider_batch_id, ended.provider_batch_id)
           AS provider_batch_id,
       item.group_key AS batch_group_key, item.batch_id, item.batch_item_index,
       output.provider, output.model,
       output.prompt_version, output.output_language, output.lexicon_version, output.eval_result,
       draft.state AS draft_state, draft.gate, draft.findings, draft.no_verdict_code,
       draft.hold_reason, draft.held_at, draft.judge_job_id, draft.judge_model,
       draft.judge_version, draft.decision, draft.decided_by, draft.decided_at,
       {field(ended.result, reused_from)} AS reused_from
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
LEFT JOIN holdfast.batch_item AS item
  ON item.org_id = request.org_id AND item.job_id = request.job_id
 AND NOT EXISTS (SELECT 1 FROM holdfast.batch_item AS later
                 WHERE later.org_id = item.org_id AND later.job_id = item.job_id
                   AND (later.lease_token, later.batch_id) > (item.lease_token, item.batch_id))
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
