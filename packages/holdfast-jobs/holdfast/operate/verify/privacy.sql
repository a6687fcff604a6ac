-- Displayed texts and documents, for I31, of one tenant or, if :org_id is NULL, of all. Payloads
-- and results are not included: an enqueue refuses secrets, and neither is displayed.

-- list_told :many — I31, crosses tenants: texts of audit events
SELECT org_id, 'event:' || CAST(id AS text) AS subject,
       name || ' ' || actor_id || ' ' || coalesce(request_id, '') || ' '
           || coalesce(correlation_id, '') AS words,
       CAST(detail AS text) AS document
FROM holdfast.audit_event
WHERE CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id
UNION ALL
SELECT org_id, 'job:' || CAST(id AS text),
       coalesce(request_id, '') || ' ' || coalesce(correlation_id, ''), NULL
FROM holdfast.job_envelope
WHERE (request_id IS NOT NULL OR correlation_id IS NOT NULL)
  AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
UNION ALL
SELECT org_id, 'job:' || CAST(job_id AS text), request_id || ' ' || correlation_id, NULL
FROM holdfast.job_remainder
WHERE CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id
UNION ALL
SELECT org_id, 'audit_note:' || CAST(event_id AS text), name, CAST(note AS text)
FROM holdfast.audit_note
WHERE CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id;

-- list_letters :many — I31, crosses tenants: texts of dead letters and their notes
SELECT org_id, 'dead_letter:' || CAST(job_id AS text) AS subject,
       last_error || ' ' || coalesce(evidence_ref, '') || ' ' || coalesce(fixed_by, '') || ' '
           || coalesce(ending, '') || ' ' || last_stack AS words,
       CAST(sanitized_context AS text) AS document
FROM holdfast.dead_letter
WHERE CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id
UNION ALL
SELECT org_id, 'dead_letter:' || CAST(job_id AS text), NULL, CAST(checklist AS text)
FROM holdfast.dead_letter
WHERE checklist IS NOT NULL AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
UNION ALL
SELECT org_id, 'dead_letter:' || CAST(job_id AS text), reason || ' ' || actor_id, NULL
FROM holdfast.dead_letter_replay
WHERE CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id
UNION ALL
SELECT org_id, 'dead_letter:' || CAST(job_id AS text), body || ' ' || actor_id, NULL
FROM holdfast.dead_letter_note
WHERE CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id;

-- list_errors :many — I31, crosses tenants: the errors of jobs
SELECT org_id, 'job:' || CAST(job_id AS text) AS subject,
       last_error || ' ' || coalesce(error_class, '') AS words, NULL AS document
FROM holdfast.job_outcome
WHERE last_error IS NOT NULL AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
UNION ALL
SELECT org_id, 'job:' || CAST(job_id AS text), last_error || ' ' || coalesce(error_class, ''), NULL
FROM holdfast.job_attempt
WHERE last_error IS NOT NULL AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id);

-- list_remarks :many — I31, crosses tenants: remarks on schedules, queues and runs
SELECT org_id, 'tick:' || schedule AS subject, detail AS words, NULL AS document
FROM holdfast.schedule_tick
WHERE detail IS NOT NULL AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
UNION ALL
SELECT org_id, 'schedule:' || name, paused_by || ' ' || pause_reason, NULL
FROM holdfast.schedule
WHERE paused_at IS NOT NULL AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
UNION ALL
SELECT CAST('00000000-0000-0000-0000-000000000000' AS {uuid}), 'queue:' || name,
       paused_by || ' ' || pause_reason, NULL
FROM holdfast.queue
WHERE paused_at IS NOT NULL AND CAST(:org_id AS {uuid}) IS NULL
UNION ALL
SELECT CAST('00000000-0000-0000-0000-000000000000' AS {uuid}), 'run:' || CAST(run_id AS text),
       coalesce(reason, '') || ' ' || actor_id, CAST(error_counts AS text)
FROM holdfast.worker_run
WHERE CAST(:org_id AS {uuid}) IS NULL;

-- list_deliveries :many — I31, crosses tenants: reasons of deliveries; their contents are not displayed
SELECT org_id, 'delivery:' || CAST(id AS text) AS subject, reason AS words, NULL AS document
FROM holdfast.delivery
WHERE reason IS NOT NULL AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
UNION ALL
SELECT org_id, 'delivery:' || CAST(delivery_id AS text), code, NULL
FROM holdfast.delivery_attempt
WHERE code IS NOT NULL AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
UNION ALL
SELECT org_id, 'delivery:' || CAST(delivery_id AS text), code, NULL
FROM holdfast.delivery_evidence
WHERE code IS NOT NULL AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id);

-- list_plain_keys :many — I32, crosses tenants: keys and sessions whose stored text is not a SHA-256
SELECT org_id, 'api_key:' || CAST(id AS text) AS subject
FROM holdfast.api_key
WHERE (length(secret_hash) <> 64 OR trim(secret_hash, '0123456789abcdef') <> '')
  AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
UNION ALL
SELECT org_id, 'console_session of ' || actor_type || ':' || actor_id
FROM holdfast.console_session
WHERE (length(secret_hash) <> 64 OR trim(secret_hash, '0123456789abcdef') <> '')
  AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id);
