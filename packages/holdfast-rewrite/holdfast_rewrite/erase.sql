-- Statements that erase texts and personal data, on request and after the retention period.

-- list_to_erase :many — crosses tenants: a page of a person's or home's requests that hold data
SELECT request.org_id, request.rewrite_request_id, request.request_id, request.correlation_id
FROM holdfast.rewrite_request AS request
WHERE (request.org_id, request.rewrite_request_id)
      > (CAST(:after_org AS {uuid}), CAST(:after_id AS {uuid}))
  AND (CAST(:org_id AS {uuid}) IS NULL OR request.org_id = :org_id)
  AND (CAST(:user_id AS {uuid}) IS NULL
       OR request.sender_user_id = :user_id OR request.recipient_user_id = :user_id)
  AND (request.erased_at IS NULL OR request.context_pack IS NOT NULL
       OR EXISTS (SELECT 1 FROM holdfast.rewrite_output AS output
                  WHERE output.org_id = request.org_id
                    AND output.rewrite_request_id = request.rewrite_request_id
                    AND output.erased_at IS NULL)
       OR EXISTS (SELECT 1 FROM holdfast.recipient_preference_snapshot AS snapshot
                  WHERE snapshot.org_id = request.org_id
                    AND snapshot.rewrite_request_id = request.rewrite_request_id))
ORDER BY request.org_id, request.rewrite_request_id
LIMIT :limit;

-- erase_requests :affected — crosses tenants: runs first, so that concurrent output writers wait
-- A request without a job fails here, because its input is gone. So does one whose rewrite waits.
UPDATE holdfast.rewrite_request AS request
SET rewrite_request = NULL, context_pack = NULL, policy = NULL, content_hash = NULL,
    erased_at = coalesce(request.erased_at, {now}),
    preferences_erased_at = coalesce(request.preferences_erased_at, {now}),
    step = CASE WHEN request.step IN ('received', 'queued', 'classified', 'context_built', 'routed',
                                     'judging', 'held')
                THEN 'failed' ELSE request.step END,
    status = CASE WHEN request.step IN ('received', 'queued', 'classified', 'context_built', 'routed',
                                     'judging', 'held')
                  THEN 'failed' ELSE request.status END,
    failure_code = CASE
        WHEN request.step IN ('received', 'queued', 'classified', 'context_built', 'routed',
                              'judging', 'held')
        THEN 'erased' ELSE request.failure_code END,
    failed_at = CASE
        WHEN request.step IN ('received', 'queued', 'classified', 'context_built', 'routed',
                              'judging', 'held')
        THEN {now} ELSE request.failed_at END,
    updated_at = {now}
FROM {rows gone: org_id uuid, id uuid}
WHERE request.org_id = gone.org_id AND request.rewrite_request_id = gone.id;

-- erase_messages :affected — crosses tenants: original texts
UPDATE holdfast.rewrite_message AS message
SET original_text = NULL, emotion_context = NULL, erased_at = {now}
FROM {rows gone: org_id uuid, id uuid}
WHERE message.org_id = gone.org_id AND message.rewrite_request_id = gone.id
  AND message.erased_at IS NULL;

-- erase_outputs :affected — crosses tenants: rewritten texts
UPDATE holdfast.rewrite_output AS output
SET rewritten_text = NULL, erased_at = {now}
FROM {rows gone: org_id uuid, id uuid}
WHERE output.org_id = gone.org_id AND output.rewrite_request_id = gone.id
  AND output.erased_at IS NULL;

-- erase_drafts :affected — crosses tenants: rewrites that wait for a verdict or a person
UPDATE holdfast.rewrite_draft AS draft
SET rewritten_text = NULL, erased_at = {now}, updated_at = {now},
    state = CASE WHEN draft.state IN ('judging', 'held') THEN 'rejected' ELSE draft.state END
FROM {rows gone: org_id uuid, id uuid}
WHERE draft.org_id = gone.org_id AND draft.rewrite_request_id = gone.id
  AND draft.erased_at IS NULL;

-- delete_kept_answers :affected — crosses tenants: provider answers that were not committed yet
DELETE FROM holdfast.batch_answer
WHERE (org_id, job_id) IN (
    SELECT request.org_id, request.job_id
    FROM {rows gone: org_id uuid, id uuid}
    JOIN holdfast.rewrite_request AS request
      ON request.org_id = gone.org_id AND request.rewrite_request_id = gone.id)
   OR (org_id, job_id) IN (
    SELECT draft.org_id, draft.judge_job_id
    FROM {rows gone: org_id uuid, id uuid}
    JOIN holdfast.rewrite_draft AS draft
      ON draft.org_id = gone.org_id AND draft.rewrite_request_id = gone.id);

-- delete_preference_snapshots :affected — crosses tenants: preferences of recipients at that time
DELETE FROM holdfast.recipient_preference_snapshot
WHERE (org_id, rewrite_request_id) IN (
    SELECT gone.org_id, gone.id FROM {rows gone: org_id uuid, id uuid});

-- delete_answers :affected — crosses tenants: preferences of a person or of a home's members
DELETE FROM holdfast.preference_answer
WHERE (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
  AND (CAST(:user_id AS {uuid}) IS NULL OR user_id = :user_id);

-- delete_members :affected — crosses tenants: a person's or a home's memberships
DELETE FROM holdfast.home_member
WHERE (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
  AND (CAST(:user_id AS {uuid}) IS NULL OR user_id = :user_id);

-- delete_blocks :affected — crosses tenants: a person's or a home's blocks
DELETE FROM holdfast.rewrite_block
WHERE (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
  AND (CAST(:user_id AS {uuid}) IS NULL OR user_id = :user_id);

-- delete_home :affected — a home without remaining data
DELETE FROM holdfast.home WHERE org_id = :org_id;

-- count_overdue :one — crosses tenants: texts past their retention, counted up to a bound
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM holdfast.rewrite_message AS message
            JOIN holdfast.rewrite_request AS request
              ON request.org_id = message.org_id
             AND request.rewrite_request_id = message.rewrite_request_id
            WHERE message.erased_at IS NULL
              AND message.created_at <= {later(-CAST(:original_ms AS bigint))}
              AND request.status IN ('completed', 'failed', 'canceled')
            LIMIT :most) AS originals)
     + (SELECT count(*) FROM (
            SELECT 1 FROM holdfast.rewrite_output
            WHERE erased_at IS NULL AND created_at <= {later(-CAST(:rewritten_ms AS bigint))}
            LIMIT :most) AS rewritten) AS texts;

-- list_overdue_originals :many — crosses tenants: expired messages of requests that have ended
SELECT message.org_id, message.rewrite_request_id, request.request_id, request.correlation_id
FROM holdfast.rewrite_message AS message
JOIN holdfast.rewrite_request AS request
  ON request.org_id = message.org_id AND request.rewrite_request_id = message.rewrite_request_id
WHERE message.erased_at IS NULL
  AND message.created_at <= {later(-CAST(:original_ms AS bigint))}
  AND request.status IN ('completed', 'failed', 'canceled')
ORDER BY message.created_at
LIMIT :limit
{skip_locked};

-- forget_requests :affected — crosses tenants: the serialized request contains the original, too
UPDATE holdfast.rewrite_request AS request
SET rewrite_request = NULL, content_hash = NULL, erased_at = {now}, updated_at = {now}
FROM {rows gone: org_id uuid, id uuid}
WHERE request.org_id = gone.org_id AND request.rewrite_request_id = gone.id
  AND request.erased_at IS NULL;

-- list_overdue_rewritten :many — crosses tenants: expired rewrites
SELECT output.org_id, output.rewrite_request_id, request.request_id, request.correlation_id
FROM holdfast.rewrite_output AS output
JOIN holdfast.rewrite_request AS request
  ON request.org_id = output.org_id AND request.rewrite_request_id = output.rewrite_request_id
WHERE output.erased_at IS NULL
  AND output.created_at <= {later(-CAST(:rewritten_ms AS bigint))}
ORDER BY output.created_at
LIMIT :limit
{skip_locked};
