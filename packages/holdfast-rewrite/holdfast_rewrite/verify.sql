-- The invariants of the complaint rewrite, I11, I39 to I41 and I50, in the shape of lifecycle.sql.

-- find_without_output :many — I11, crosses tenants: a completed request has its output
SELECT request.org_id, 'rewrite:' || CAST(request.rewrite_request_id AS text) AS subject,
       'it is completed and has no output' AS detail
FROM holdfast.rewrite_request AS request
WHERE request.status = 'completed'
  AND (CAST(:org_id AS {uuid}) IS NULL OR request.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.rewrite_output AS output
                  WHERE output.org_id = request.org_id
                    AND output.rewrite_request_id = request.rewrite_request_id
                    AND output.recipient_user_id = request.recipient_user_id);

-- find_wrong_outputs :many — I11, crosses tenants: an output is its request's, its recipient's and in its language
SELECT output.org_id, 'rewrite:' || CAST(output.rewrite_request_id AS text) AS subject,
       CASE WHEN request.rewrite_request_id IS NULL THEN 'it has an output and no request'
            WHEN request.status <> 'completed' THEN 'it has an output and is ' || request.status
            WHEN output.recipient_user_id <> request.recipient_user_id
            THEN 'it has an output for another recipient'
            ELSE 'its output is not in its language' END AS detail
FROM holdfast.rewrite_output AS output
LEFT JOIN holdfast.rewrite_request AS request
  ON request.org_id = output.org_id AND request.rewrite_request_id = output.rewrite_request_id
WHERE (CAST(:org_id AS {uuid}) IS NULL OR output.org_id = :org_id)
  AND (request.rewrite_request_id IS NULL OR request.status <> 'completed'
       OR output.recipient_user_id <> request.recipient_user_id
       OR output.output_language <> request.target_locale
       OR output.target_locale <> request.target_locale);

-- find_parted :many — I39, crosses tenants: a request has the state of its job
SELECT request.org_id, 'rewrite:' || CAST(request.rewrite_request_id AS text) AS subject,
       'it is ' || request.status || ', its job ' || coalesce(request.job_state, 'missing') AS detail
FROM (
    SELECT asked.org_id, asked.rewrite_request_id, asked.job_id, asked.step, asked.status,
           (SELECT made.state FROM holdfast.job AS made
            WHERE made.org_id = asked.org_id AND made.id = asked.job_id) AS job_state
    FROM holdfast.rewrite_request AS asked
) AS request
WHERE request.job_id IS NOT NULL
  AND (CAST(:org_id AS {uuid}) IS NULL OR request.org_id = :org_id)
  AND CASE WHEN request.step IN ('judging', 'held') THEN request.job_state <> 'completed'
           -- A person or the judge decided after the job was completed.
           WHEN request.status IN ('completed', 'failed')
                AND EXISTS (SELECT 1 FROM holdfast.rewrite_draft AS draft
                            WHERE draft.org_id = request.org_id
                              AND draft.rewrite_request_id = request.rewrite_request_id)
           THEN request.job_state <> 'completed'
           WHEN request.job_state IS NOT NULL THEN request.job_state <> request.status
           -- A job that has ended may be pruned before its request.
           ELSE request.status NOT IN ('completed', 'failed', 'canceled') END;

-- find_mismatched :many — I39, crosses tenants: the job names the people and the locales of its request
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       CASE WHEN request.job_id IS NULL THEN 'no request has it'
            ELSE 'its columns differ from its request' END AS detail
FROM holdfast.job_envelope AS job
LEFT JOIN holdfast.rewrite_request AS request
  ON request.org_id = job.org_id AND request.job_id = job.id
WHERE job.job_type = 'complaint_rewrite'
  AND (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND (request.job_id IS NULL
       OR {field(job.payload, rewrite_request_id)}
          IS DISTINCT FROM CAST(request.rewrite_request_id AS text)
       OR {field(job.payload, sender_user_id)} IS DISTINCT FROM CAST(request.sender_user_id AS text)
       OR {field(job.payload, recipient_user_id)}
          IS DISTINCT FROM CAST(request.recipient_user_id AS text)
       OR {field(job.payload, recipient_snapshot_id)}
          IS DISTINCT FROM CAST(request.recipient_snapshot_id AS text)
       OR {field(job.payload, recipient_preference_snapshot_id)}
          IS DISTINCT FROM CAST(request.recipient_preference_snapshot_id AS text)
       OR {field(job.payload, source_locale)} IS DISTINCT FROM request.source_locale
       OR {field(job.payload, target_locale)} IS DISTINCT FROM request.target_locale
       OR {field(job.payload, lane)} IS DISTINCT FROM request.lane
       OR job.unit_key IS DISTINCT FROM CAST(request.rewrite_request_id AS text) || ':'
                                        || CAST(request.recipient_user_id AS text));

-- find_wrong_snapshots :many — I39, crosses tenants: a request's snapshots name its recipient
-- Erasing a person deletes the preferences, and the request records that.
SELECT request.org_id, 'rewrite:' || CAST(request.rewrite_request_id AS text) AS subject,
       CASE WHEN request.recipient_snapshot_id IS NOT NULL AND snapshot.org_id IS NULL
            THEN 'its recipient snapshot is missing'
            WHEN CAST(snapshot.recipient_user_ids AS text)
                 <> '["' || CAST(request.recipient_user_id AS text) || '"]'
            THEN 'its recipient snapshot names another person'
            WHEN request.preferences_erased_at IS NULL AND preferred.org_id IS NULL
            THEN 'its preference snapshot is missing'
            ELSE 'its preference snapshot belongs to another person' END AS detail
FROM holdfast.rewrite_request AS request
LEFT JOIN holdfast.recipient_snapshot AS snapshot
  ON snapshot.org_id = request.org_id
 AND snapshot.recipient_snapshot_id = request.recipient_snapshot_id
 AND snapshot.rewrite_request_id = request.rewrite_request_id
LEFT JOIN holdfast.recipient_preference_snapshot AS preferred
  ON preferred.org_id = request.org_id
 AND preferred.recipient_preference_snapshot_id = request.recipient_preference_snapshot_id
 AND preferred.rewrite_request_id = request.rewrite_request_id
WHERE (CAST(:org_id AS {uuid}) IS NULL OR request.org_id = :org_id)
  AND ((request.recipient_snapshot_id IS NOT NULL AND snapshot.org_id IS NULL)
       OR CAST(snapshot.recipient_user_ids AS text)
          <> '["' || CAST(request.recipient_user_id AS text) || '"]'
       OR (request.recipient_preference_snapshot_id IS NOT NULL
           AND request.preferences_erased_at IS NULL AND preferred.org_id IS NULL)
       OR preferred.recipient_user_id <> request.recipient_user_id);

-- list_documents :many — I39, crosses tenants: request documents beside their hash and their message
SELECT request.org_id, 'rewrite:' || CAST(request.rewrite_request_id AS text) AS subject,
       CAST(request.rewrite_request AS text) AS document, request.request_hash,
       message.original_text
FROM holdfast.rewrite_request AS request
LEFT JOIN holdfast.rewrite_message AS message
  ON message.org_id = request.org_id AND message.rewrite_request_id = request.rewrite_request_id
WHERE request.rewrite_request IS NOT NULL
  AND (CAST(:org_id AS {uuid}) IS NULL OR request.org_id = :org_id);

-- find_left :many — I40, crosses tenants: an abandoned request, or one whose end is not audited
SELECT request.org_id, 'rewrite:' || CAST(request.rewrite_request_id AS text) AS subject,
       CASE WHEN request.concluded_at IS NULL AND request.status IN ('completed', 'failed', 'canceled')
            THEN 'it has ended, but the orchestrator has not finished it'
            WHEN request.step = 'judging' THEN 'it waits for a judge without a judge job'
            ELSE 'it has no job and no failure' END AS detail
FROM holdfast.rewrite_request AS request
WHERE (CAST(:org_id AS {uuid}) IS NULL OR request.org_id = :org_id)
  AND ((request.status IN ('completed', 'failed', 'canceled') AND request.concluded_at IS NULL
        AND request.updated_at < CAST(:left_since AS {instant}))
       OR (request.step IN ('received', 'queued', 'classified', 'context_built', 'routed')
           AND request.created_at < CAST(:left_since AS {instant}))
       OR (request.step = 'judging' AND request.updated_at < CAST(:left_since AS {instant})
           AND NOT EXISTS (SELECT 1 FROM holdfast.rewrite_draft AS draft
                           WHERE draft.org_id = request.org_id
                             AND draft.rewrite_request_id = request.rewrite_request_id
                             AND draft.judge_job_id IS NOT NULL)));

-- find_untimely :many — I40, crosses tenants: a sender may read a rewrite only once it is completed
SELECT request.org_id, 'rewrite:' || CAST(request.rewrite_request_id AS text) AS subject,
       'its sender may read it before it was completed' AS detail
FROM holdfast.rewrite_request AS request
WHERE (CAST(:org_id AS {uuid}) IS NULL OR request.org_id = :org_id)
  AND request.sender_reveal_at IS NOT NULL
  AND (request.rewrite_completed_at IS NULL
       OR request.sender_reveal_at < request.rewrite_completed_at);

-- find_unerased :many — I41, crosses tenants: what was erased is gone
SELECT request.org_id, 'rewrite:' || CAST(request.rewrite_request_id AS text) AS subject,
       'it is marked erased, but a text is left' AS detail
FROM holdfast.rewrite_request AS request
LEFT JOIN holdfast.rewrite_message AS message
  ON message.org_id = request.org_id AND message.rewrite_request_id = request.rewrite_request_id
WHERE (CAST(:org_id AS {uuid}) IS NULL OR request.org_id = :org_id)
  AND request.erased_at IS NOT NULL
  AND (request.rewrite_request IS NOT NULL OR message.original_text IS NOT NULL
       OR EXISTS (SELECT 1 FROM holdfast.rewrite_draft AS draft
                  WHERE draft.org_id = request.org_id
                    AND draft.rewrite_request_id = request.rewrite_request_id
                    AND draft.rewritten_text IS NOT NULL));

-- list_told :many — I41, crosses tenants: texts beside the audit events of their jobs
SELECT request.org_id, 'rewrite:' || CAST(request.rewrite_request_id AS text) AS subject,
       message.original_text, coalesce(output.rewritten_text, draft.rewritten_text) AS rewritten_text,
       told.place, told.words
FROM holdfast.rewrite_request AS request
LEFT JOIN holdfast.rewrite_message AS message
  ON message.org_id = request.org_id AND message.rewrite_request_id = request.rewrite_request_id
LEFT JOIN holdfast.rewrite_output AS output
  ON output.org_id = request.org_id AND output.rewrite_request_id = request.rewrite_request_id
LEFT JOIN holdfast.rewrite_draft AS draft
  ON draft.org_id = request.org_id AND draft.rewrite_request_id = request.rewrite_request_id
JOIN (
    SELECT org_id, id AS job_id, 'its job' AS place,
           CAST(payload AS text) || coalesce(CAST(result AS text), '')
               || coalesce(last_error, '') || coalesce(CAST(routing_decision AS text), '') AS words
    FROM holdfast.job
    WHERE job_type IN ('complaint_rewrite', 'rewrite_judge')
    UNION ALL
    SELECT org_id, job_id, 'the audit', CAST(detail AS text)
    FROM holdfast.audit_event
    WHERE jobs IS NULL AND job_type IN ('complaint_rewrite', 'rewrite_judge') AND detail IS NOT NULL
    UNION ALL
    SELECT org_id, job_id, 'its dead letter',
           last_error || last_stack || CAST(sanitized_context AS text)
    FROM holdfast.dead_letter
    WHERE job_type IN ('complaint_rewrite', 'rewrite_judge')
) AS told ON told.org_id = request.org_id AND told.job_id IN (request.job_id, draft.judge_job_id)
WHERE CAST(:org_id AS {uuid}) IS NULL OR request.org_id = :org_id;

-- list_told_of_requests :many — I41, crosses tenants: texts beside the audit events of the requests
SELECT request.org_id, 'rewrite:' || CAST(request.rewrite_request_id AS text) AS subject,
       message.original_text, coalesce(output.rewritten_text, draft.rewritten_text) AS rewritten_text,
       'its audit' AS place,
       CAST(event.detail AS text) AS words
FROM holdfast.audit_event AS event
JOIN holdfast.rewrite_request AS request
  ON request.org_id = event.org_id
 AND 'rewrite:' || CAST(request.rewrite_request_id AS text) = {field(event.detail, subject)}
LEFT JOIN holdfast.rewrite_message AS message
  ON message.org_id = request.org_id AND message.rewrite_request_id = request.rewrite_request_id
LEFT JOIN holdfast.rewrite_output AS output
  ON output.org_id = request.org_id AND output.rewrite_request_id = request.rewrite_request_id
LEFT JOIN holdfast.rewrite_draft AS draft
  ON draft.org_id = request.org_id AND draft.rewrite_request_id = request.rewrite_request_id
WHERE event.job_type = 'rewrite'
  AND (CAST(:org_id AS {uuid}) IS NULL OR request.org_id = :org_id);

-- find_changed_outputs :many — I49, crosses tenants: the output of a rewrite is the one that was stored
SELECT output.org_id, 'rewrite:' || CAST(output.rewrite_request_id AS text) AS subject,
       CASE WHEN event.id IS NULL THEN 'its output has no event'
            ELSE 'its output is not what event ' || CAST(event.id AS text) || ' recorded'
            END AS detail
FROM holdfast.rewrite_output AS output
LEFT JOIN holdfast.audit_event AS event
  ON event.jobs IS NULL AND event.job_id = output.rewrite_request_id AND event.org_id = output.org_id
 AND event.name = 'rewrite.output_stored'
WHERE output.erased_at IS NULL AND (CAST(:org_id AS {uuid}) IS NULL OR output.org_id = :org_id)
  AND coalesce(event.digest, '') <> {digest output output};

-- find_unjudged :many — I50, crosses tenants: an output has the verdict that its route demands
SELECT output.org_id, 'rewrite:' || CAST(output.rewrite_request_id AS text) AS subject,
       CASE WHEN draft.org_id IS NULL OR draft.state <> 'stored'
            THEN 'it is stored without the verdict of a '
                 || {field(request.routing_decision, verdict_by)}
            ELSE 'it is stored despite a rejecting verdict' END AS detail
FROM holdfast.rewrite_output AS output
JOIN holdfast.rewrite_request AS request
  ON request.org_id = output.org_id AND request.rewrite_request_id = output.rewrite_request_id
LEFT JOIN holdfast.rewrite_draft AS draft
  ON draft.org_id = output.org_id AND draft.rewrite_request_id = output.rewrite_request_id
WHERE (CAST(:org_id AS {uuid}) IS NULL OR output.org_id = :org_id)
  AND {field(request.routing_decision, verdict_by)} IN ('judge', 'person')
  AND (draft.org_id IS NULL OR draft.state <> 'stored'
       OR (coalesce(draft.decision, '') NOT IN ('approve', 'edit')
           AND ({field(request.routing_decision, verdict_by)} = 'person'
                OR coalesce(CAST(draft.findings AS text), '') <> '[]' OR draft.gate <> 'pass')));

-- find_parted_drafts :many — I50, crosses tenants: a draft and its request agree
SELECT draft.org_id, 'rewrite:' || CAST(draft.rewrite_request_id AS text) AS subject,
       'its draft is ' || draft.state || ', and it is ' || request.step AS detail
FROM holdfast.rewrite_draft AS draft
JOIN holdfast.rewrite_request AS request
  ON request.org_id = draft.org_id AND request.rewrite_request_id = draft.rewrite_request_id
WHERE (CAST(:org_id AS {uuid}) IS NULL OR draft.org_id = :org_id)
  AND NOT CASE draft.state
          WHEN 'judging' THEN request.step = 'judging'
          WHEN 'held' THEN request.step = 'held'
          WHEN 'stored' THEN request.step IN ('completed', 'revealed')
          ELSE request.step = 'failed' END;
