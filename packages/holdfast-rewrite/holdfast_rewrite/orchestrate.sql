-- Statements of the orchestrator's first half: from a message to a job. A call may bring messages of
-- many homes, so the statements cross tenants; each names the tenant of every row it reads or writes.

-- insert_requests :many — crosses tenants: written first, including rejected ones
-- An existing row was written by this call, whose first answer was lost.
INSERT INTO holdfast.rewrite_request
    (org_id, rewrite_request_id, sender_user_id, recipient_user_id, surface, iso_week_year,
     iso_week, step, status, failure_code, recipient_snapshot_id, recipient_preference_snapshot_id,
     sender_role, recipient_role, sender_locale, recipient_locale, request_id, correlation_id,
     created_at, queued_at, failed_at, concluded_at, updated_at)
SELECT requests.org_id, requests.rewrite_request_id, requests.sender_user_id,
       requests.recipient_user_id, requests.surface, requests.iso_week_year, requests.iso_week,
       CASE WHEN requests.failure_code IS NULL THEN 'queued' ELSE 'failed' END,
       CASE WHEN requests.failure_code IS NULL THEN 'queued' ELSE 'failed' END,
       requests.failure_code, requests.recipient_snapshot_id,
       requests.recipient_preference_snapshot_id, requests.sender_role, requests.recipient_role,
       requests.sender_locale, requests.recipient_locale, requests.request_id,
       requests.correlation_id, {now},
       CASE WHEN requests.failure_code IS NULL THEN {now} END,
       CASE WHEN requests.failure_code IS NOT NULL THEN {now} END,
       CASE WHEN requests.failure_code IS NOT NULL THEN {now} END, {now}
FROM {rows requests: org_id uuid, rewrite_request_id uuid, sender_user_id uuid,
      recipient_user_id uuid, surface text, iso_week_year integer, iso_week integer,
      failure_code text, recipient_snapshot_id uuid, recipient_preference_snapshot_id uuid,
      sender_role text, recipient_role text, sender_locale text, recipient_locale text,
      request_id text, correlation_id text}
WHERE TRUE
ON CONFLICT DO NOTHING
RETURNING rewrite_request_id, created_at;

-- insert_messages :affected — crosses tenants: the raw text; its only copy before it is enqueued
INSERT INTO holdfast.rewrite_message
    (org_id, rewrite_request_id, original_text, emotion_context, created_at)
SELECT messages.org_id, messages.rewrite_request_id, messages.original_text,
       messages.emotion_context, {now}
FROM {rows messages: org_id uuid, rewrite_request_id uuid, original_text text,
      emotion_context text};

-- insert_snapshots :affected — crosses tenants: the recipient of a message, permanently
INSERT INTO holdfast.recipient_snapshot
    (org_id, recipient_snapshot_id, rewrite_request_id, recipient_user_ids, created_at)
SELECT snapshots.org_id, snapshots.recipient_snapshot_id, snapshots.rewrite_request_id,
       snapshots.recipient_user_ids, {now}
FROM {rows snapshots: org_id uuid, recipient_snapshot_id uuid, rewrite_request_id uuid,
      recipient_user_ids json};

-- insert_preference_snapshots :affected — crosses tenants: the recipient's preferences at that time
INSERT INTO holdfast.recipient_preference_snapshot
    (org_id, recipient_preference_snapshot_id, rewrite_request_id, recipient_user_id,
     preference_payload, created_at)
SELECT snapshots.org_id, snapshots.recipient_preference_snapshot_id, snapshots.rewrite_request_id,
       snapshots.recipient_user_id, snapshots.preference_payload, {now}
FROM {rows snapshots: org_id uuid, recipient_preference_snapshot_id uuid, rewrite_request_id uuid,
      recipient_user_id uuid, preference_payload json};

-- find_created :many — crosses tenants: when these requests were written
SELECT request.rewrite_request_id, request.created_at
FROM {rows asked: org_id uuid, rewrite_request_id uuid}
JOIN holdfast.rewrite_request AS request
  ON request.org_id = asked.org_id AND request.rewrite_request_id = asked.rewrite_request_id;

-- lock_requests :many — crosses tenants: the current state; blocks concurrent moves and erasure
-- Only PostgreSQL locks the row: SQLite has one writer.
SELECT request.rewrite_request_id, request.step, request.job_id
FROM {rows asked: org_id uuid, rewrite_request_id uuid}
JOIN holdfast.rewrite_request AS request
  ON request.org_id = asked.org_id AND request.rewrite_request_id = asked.rewrite_request_id
ORDER BY request.rewrite_request_id
{lock_row(request)};

-- find_over_cadence :many — crosses tenants: requests whose sender has used the week's full reframe
SELECT DISTINCT mine.rewrite_request_id
FROM {rows asked: org_id uuid, rewrite_request_id uuid}
JOIN holdfast.rewrite_request AS mine
  ON mine.org_id = asked.org_id AND mine.rewrite_request_id = asked.rewrite_request_id
JOIN holdfast.rewrite_request AS other
  ON other.sender_user_id = mine.sender_user_id AND other.iso_week_year = mine.iso_week_year
 AND other.iso_week = mine.iso_week AND other.rewrite_strength = 'full_reframe'
 AND other.status NOT IN ('failed', 'canceled')
WHERE other.rewrite_request_id <> mine.rewrite_request_id;

-- move_requests :affected — crosses tenants: to enqueued or failed, with all intermediate results
UPDATE holdfast.rewrite_request AS request
SET step = requests.step,
    status = CASE WHEN requests.step = 'failed' THEN 'failed' ELSE 'queued' END,
    failure_code = requests.failure_code,
    source_locale = requests.source_locale, target_locale = requests.target_locale,
    source_locale_raw = requests.source_locale_raw, target_locale_raw = requests.target_locale_raw,
    lane = requests.lane, topics = requests.topics, intent = requests.intent,
    rewrite_strength = requests.rewrite_strength,
    classifier_result = requests.classifier_result, context_pack = requests.context_pack,
    policy = requests.policy, routing_decision = requests.routing_decision,
    rewrite_request = requests.rewrite_request, request_hash = requests.request_hash,
    content_hash = requests.content_hash,
    classifier_version = requests.classifier_version,
    context_pack_version = requests.context_pack_version,
    policy_version = requests.policy_version, job_id = requests.job_id,
    classified_at = CASE WHEN requests.classifier_result IS NOT NULL THEN {now} END,
    context_built_at = CASE WHEN requests.context_pack IS NOT NULL THEN {now} END,
    routed_at = CASE WHEN requests.routing_decision IS NOT NULL THEN {now} END,
    enqueued_at = CASE WHEN requests.step = 'enqueued' THEN {now} END,
    failed_at = CASE WHEN requests.step = 'failed' THEN {now} END,
    concluded_at = CASE WHEN requests.step = 'failed' THEN {now} END,
    updated_at = {now}
FROM {rows requests: org_id uuid, rewrite_request_id uuid, step text, failure_code text,
      source_locale text, target_locale text, source_locale_raw text, target_locale_raw text,
      lane text, topics json, intent text, rewrite_strength text, classifier_result json,
      context_pack json, policy json, routing_decision json, rewrite_request json,
      request_hash text, content_hash text, classifier_version text, context_pack_version text,
      policy_version text, job_id uuid}
WHERE request.org_id = requests.org_id
  AND request.rewrite_request_id = requests.rewrite_request_id
  AND request.step IN ('received', 'queued', 'classified', 'context_built', 'routed');

-- count_unfinished :one — crosses tenants: abandoned requests
SELECT count(*) AS requests FROM (
    SELECT 1 FROM holdfast.rewrite_request
    WHERE step IN ('received', 'queued', 'classified', 'context_built', 'routed')
      AND created_at <= {later(-CAST(:abandoned_ms AS bigint))}
      AND (taken_until IS NULL OR taken_until <= {now})
    LIMIT :most) AS unfinished;

-- take_unfinished :many — crosses tenants: claims the same requests, oldest first
WITH waiting AS MATERIALIZED (
    SELECT org_id AS home_id, rewrite_request_id AS id FROM holdfast.rewrite_request
    WHERE step IN ('received', 'queued', 'classified', 'context_built', 'routed')
      AND created_at <= {later(-CAST(:abandoned_ms AS bigint))}
      AND (taken_until IS NULL OR taken_until <= {now})
    ORDER BY created_at
    LIMIT :limit
    {skip_locked}
)
UPDATE holdfast.rewrite_request AS request
SET taken_until = {later(CAST(:lease_ms AS bigint))}
FROM waiting
WHERE request.org_id = waiting.home_id AND request.rewrite_request_id = waiting.id
RETURNING org_id, rewrite_request_id;

-- list_unfinished :many — crosses tenants: these requests with message and snapshots, oldest first
SELECT request.org_id, request.rewrite_request_id, request.sender_user_id,
       request.recipient_user_id, request.surface, request.iso_week_year, request.iso_week,
       request.recipient_snapshot_id, request.recipient_preference_snapshot_id,
       request.sender_role, request.recipient_role, request.sender_locale,
       request.recipient_locale, request.request_id, request.correlation_id, request.created_at,
       message.original_text, preferred.preference_payload,
       CASE WHEN request.created_at <= {later(-CAST(:given_up_ms AS bigint))} THEN 1 ELSE 0 END AS is_given_up
FROM {rows taken: org_id uuid, rewrite_request_id uuid}
JOIN holdfast.rewrite_request AS request
  ON request.org_id = taken.org_id AND request.rewrite_request_id = taken.rewrite_request_id
LEFT JOIN holdfast.rewrite_message AS message
  ON message.org_id = request.org_id AND message.rewrite_request_id = request.rewrite_request_id
LEFT JOIN holdfast.recipient_preference_snapshot AS preferred
  ON preferred.org_id = request.org_id
 AND preferred.recipient_preference_snapshot_id = request.recipient_preference_snapshot_id
ORDER BY request.created_at;
