-- Statements that read all data of a person or a home for an export.

-- list_memberships :many — crosses tenants: the homes of a person, or the members of a home
SELECT org_id AS home_id, user_id, role, locale, joined_at, left_at
FROM holdfast.home_member
WHERE (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
  AND (CAST(:user_id AS {uuid}) IS NULL OR user_id = :user_id)
ORDER BY org_id, user_id;

-- list_answers :many — crosses tenants: preferences
SELECT org_id AS home_id, user_id, preference_id, value_key, answered_at
FROM holdfast.preference_answer
WHERE (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
  AND (CAST(:user_id AS {uuid}) IS NULL OR user_id = :user_id)
ORDER BY org_id, user_id, preference_id;

-- list_blocks :many — crosses tenants: blocks from sending and receiving
SELECT org_id AS home_id, user_id, created_at
FROM holdfast.rewrite_block
WHERE (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
  AND (CAST(:user_id AS {uuid}) IS NULL OR user_id = :user_id)
ORDER BY org_id, user_id;

-- list_sent :many — crosses tenants: sent messages; the rewrite once its sender may read it
SELECT request.org_id AS home_id, request.rewrite_request_id, request.sender_user_id,
       request.recipient_user_id, request.surface, request.status, request.created_at,
       request.rewrite_completed_at, request.sender_reveal_at, request.erased_at,
       message.original_text, message.emotion_context,
       CASE WHEN request.sender_reveal_at <= {now} THEN output.rewritten_text END AS rewritten_text,
       CASE WHEN request.sender_reveal_at <= {now} THEN output.output_language END AS output_language
FROM holdfast.rewrite_request AS request
LEFT JOIN holdfast.rewrite_message AS message
  ON message.org_id = request.org_id AND message.rewrite_request_id = request.rewrite_request_id
LEFT JOIN holdfast.rewrite_output AS output
  ON output.org_id = request.org_id AND output.rewrite_request_id = request.rewrite_request_id
WHERE request.sender_user_id = :user_id
  AND (CAST(:org_id AS {uuid}) IS NULL OR request.org_id = :org_id)
  AND (request.org_id, request.rewrite_request_id)
      > (CAST(:after_org AS {uuid}), CAST(:after_id AS {uuid}))
ORDER BY request.org_id, request.rewrite_request_id
LIMIT :limit;

-- list_received :many — crosses tenants: delivered rewrites only
SELECT request.org_id AS home_id, request.rewrite_request_id, request.recipient_user_id,
       output.rewritten_text, output.output_language, output.erased_at
FROM holdfast.rewrite_request AS request
JOIN holdfast.rewrite_output AS output
  ON output.org_id = request.org_id AND output.rewrite_request_id = request.rewrite_request_id
WHERE request.recipient_user_id = :user_id AND request.status = 'completed'
  AND (CAST(:org_id AS {uuid}) IS NULL OR request.org_id = :org_id)
  AND (request.org_id, request.rewrite_request_id)
      > (CAST(:after_org AS {uuid}), CAST(:after_id AS {uuid}))
ORDER BY request.org_id, request.rewrite_request_id
LIMIT :limit;

-- list_noted :many — crosses tenants: data about a person at the time of messages to them
-- Without request ids, which would reveal messages that were never delivered.
SELECT DISTINCT request.org_id AS home_id, request.recipient_user_id AS user_id,
       snapshot.preference_payload
FROM holdfast.rewrite_request AS request
JOIN holdfast.recipient_preference_snapshot AS snapshot
  ON snapshot.org_id = request.org_id
 AND snapshot.recipient_preference_snapshot_id = request.recipient_preference_snapshot_id
WHERE request.recipient_user_id = :user_id
  AND (CAST(:org_id AS {uuid}) IS NULL OR request.org_id = :org_id);

-- list_of_home :many — all requests of a home and their results
SELECT request.org_id AS home_id, request.rewrite_request_id, request.sender_user_id,
       request.recipient_user_id, request.surface, request.status, request.step,
       request.failure_code, request.source_locale, request.target_locale, request.lane,
       request.topics, request.intent, request.rewrite_strength, request.classifier_result,
       request.context_pack, request.policy, request.created_at, request.rewrite_completed_at,
       request.sender_reveal_at, request.erased_at, message.original_text, message.emotion_context,
       output.rewritten_text, output.output_language, output.eval_result,
       draft.rewritten_text AS held_text, draft.state AS draft_state, draft.findings,
       draft.hold_reason, draft.decision, draft.decided_at, snapshot.preference_payload
FROM holdfast.rewrite_request AS request
LEFT JOIN holdfast.rewrite_message AS message
  ON message.org_id = request.org_id AND message.rewrite_request_id = request.rewrite_request_id
LEFT JOIN holdfast.rewrite_output AS output
  ON output.org_id = request.org_id AND output.rewrite_request_id = request.rewrite_request_id
LEFT JOIN holdfast.rewrite_draft AS draft
  ON draft.org_id = request.org_id AND draft.rewrite_request_id = request.rewrite_request_id
LEFT JOIN holdfast.recipient_preference_snapshot AS snapshot
  ON snapshot.org_id = request.org_id
 AND snapshot.recipient_preference_snapshot_id = request.recipient_preference_snapshot_id
WHERE request.org_id = :org_id
  AND (request.org_id, request.rewrite_request_id)
      > (CAST(:after_org AS {uuid}), CAST(:after_id AS {uuid}))
ORDER BY request.org_id, request.rewrite_request_id
LIMIT :limit;
