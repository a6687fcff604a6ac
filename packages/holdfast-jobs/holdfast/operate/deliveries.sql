-- Deliveries for operators: never a text, never an address.

-- list_deliveries :many — crosses tenants unless one is named: newest first, page by page
SELECT id, org_id, subject, recipient, version, channel, token, content_hash, is_required, state,
       reason, job_id, notification_id, notified_at, confirmed_by, attempts, fence, first_sent_at,
       reconciled_at, not_before_at, request_id, correlation_id, created_at, updated_at, ended_at,
       deliver_job_id, endpoint, project_id, actor_type, actor_id
FROM holdfast.delivery
WHERE id < :before
  AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
  AND (CAST(:channel AS text) IS NULL OR channel = :channel)
  AND (CAST(:reason AS text) IS NULL OR reason = :reason)
  AND (CAST(:recipient AS text) IS NULL OR recipient = :recipient)
  AND (CAST(:subject AS text) IS NULL OR subject = :subject)
  AND (CAST(:subject_prefix AS text) IS NULL
       OR substr(subject, 1, length(:subject_prefix)) = :subject_prefix)
  AND (CAST(:job_id AS {uuid}) IS NULL OR job_id = :job_id OR deliver_job_id = :job_id)
  AND (CAST(:since AS {instant}) IS NULL OR created_at >= CAST(:since AS {instant}))
  AND (CAST(:until AS {instant}) IS NULL OR created_at < CAST(:until AS {instant}))
  AND (CAST(:state AS text) IS NULL OR state = :state)
  AND (:with_ended = 1 OR CAST(:state AS text) IS NOT NULL
       OR state IN ('pending', 'held', 'failed'))
ORDER BY id DESC
LIMIT :limit;

-- page_deliveries :many — crosses tenants unless one is named: the deliveries of a bulk, newest first
SELECT delivery.id, delivery.org_id, delivery.subject, delivery.recipient, delivery.version,
       delivery.channel, delivery.token, delivery.content_hash, delivery.is_required,
       delivery.state, delivery.reason, delivery.job_id, delivery.notification_id,
       delivery.notified_at, delivery.confirmed_by, delivery.attempts, delivery.fence,
       delivery.first_sent_at, delivery.reconciled_at, delivery.not_before_at,
       delivery.request_id, delivery.correlation_id, delivery.created_at, delivery.updated_at,
       delivery.ended_at, delivery.deliver_job_id, delivery.endpoint, delivery.project_id,
       delivery.actor_type, delivery.actor_id,
       -- Its text was erased, or a late response of its channel confirmed it.
       CASE WHEN delivery.content IS NULL OR (delivery.reason <> 'undelivered' AND EXISTS (
                SELECT 1 FROM holdfast.delivery_evidence AS late
                WHERE late.org_id = delivery.org_id AND late.delivery_id = delivery.id
                  AND late.source = 'late_answer' AND late.verdict = 'taken'
                  AND NOT EXISTS (SELECT 1 FROM holdfast.delivery_evidence AS person
                                  WHERE person.org_id = late.org_id
                                    AND person.delivery_id = late.delivery_id
                                    AND person.verdict = 'resend' AND person.id > late.id)))
            THEN 1 ELSE 0 END AS unsendable,
       CASE WHEN delivery.lease_expires_at > {now} THEN 1 ELSE 0 END AS leased
FROM holdfast.delivery AS delivery
WHERE delivery.id < :before
  AND (CAST(:org_id AS {uuid}) IS NULL OR delivery.org_id = :org_id)
  AND (CAST(:channel AS text) IS NULL OR delivery.channel = :channel)
  AND (CAST(:reason AS text) IS NULL OR delivery.reason = :reason)
  AND (CAST(:recipient AS text) IS NULL OR delivery.recipient = :recipient)
  AND (CAST(:subject AS text) IS NULL OR delivery.subject = :subject)
  AND (CAST(:subject_prefix AS text) IS NULL
       OR substr(delivery.subject, 1, length(:subject_prefix)) = :subject_prefix)
  AND (CAST(:job_id AS {uuid}) IS NULL OR delivery.job_id = :job_id
       OR delivery.deliver_job_id = :job_id)
  AND (CAST(:since AS {instant}) IS NULL OR delivery.created_at >= CAST(:since AS {instant}))
  AND (CAST(:until AS {instant}) IS NULL OR delivery.created_at < CAST(:until AS {instant}))
  AND (delivery.state = :state
       OR CAST(:state AS text) IS NULL AND delivery.state IN ('held', 'failed'))
ORDER BY delivery.id DESC
LIMIT :limit;

-- group_deliveries :many — crosses tenants unless one is named: the deliveries that a bulk would decide about
SELECT matching.channel, matching.state, matching.reason, count(*) AS deliveries,
       sum(matching.unsendable) AS unsendable, sum(matching.leased) AS leased
FROM (
    SELECT delivery.channel, delivery.state, delivery.reason,
           -- Its text was erased, or a late response of its channel confirmed it.
           CASE WHEN delivery.content IS NULL OR (delivery.reason <> 'undelivered' AND EXISTS (
                    SELECT 1 FROM holdfast.delivery_evidence AS late
                    WHERE late.org_id = delivery.org_id AND late.delivery_id = delivery.id
                      AND late.source = 'late_answer' AND late.verdict = 'taken'
                      AND NOT EXISTS (SELECT 1 FROM holdfast.delivery_evidence AS person
                                      WHERE person.org_id = late.org_id
                                        AND person.delivery_id = late.delivery_id
                                        AND person.verdict = 'resend' AND person.id > late.id)))
                THEN 1 ELSE 0 END AS unsendable,
           CASE WHEN delivery.lease_expires_at > {now} THEN 1 ELSE 0 END AS leased
    FROM holdfast.delivery AS delivery
    WHERE TRUE
      AND (CAST(:org_id AS {uuid}) IS NULL OR delivery.org_id = :org_id)
      AND (CAST(:channel AS text) IS NULL OR delivery.channel = :channel)
      AND (CAST(:reason AS text) IS NULL OR delivery.reason = :reason)
      AND (CAST(:recipient AS text) IS NULL OR delivery.recipient = :recipient)
      AND (CAST(:subject AS text) IS NULL OR delivery.subject = :subject)
      AND (CAST(:subject_prefix AS text) IS NULL
           OR substr(delivery.subject, 1, length(:subject_prefix)) = :subject_prefix)
      AND (CAST(:job_id AS {uuid}) IS NULL OR delivery.job_id = :job_id
       OR delivery.deliver_job_id = :job_id)
      AND (CAST(:since AS {instant}) IS NULL OR delivery.created_at >= CAST(:since AS {instant}))
      AND (CAST(:until AS {instant}) IS NULL OR delivery.created_at < CAST(:until AS {instant}))
      AND (delivery.state = :state
           OR CAST(:state AS text) IS NULL AND delivery.state IN ('held', 'failed'))) AS matching
GROUP BY matching.channel, matching.state, matching.reason
ORDER BY count(*) DESC, matching.channel, matching.state, matching.reason;

-- find_org :maybe — crosses tenants: the tenant of a delivery
SELECT org_id FROM holdfast.delivery WHERE id = :id;

-- find_delivery :maybe — one delivery
SELECT id, org_id, subject, recipient, version, channel, token, content_hash, is_required, state,
       reason, job_id, notification_id, notified_at, confirmed_by, attempts, fence, first_sent_at,
       reconciled_at, not_before_at, request_id, correlation_id, created_at, updated_at, ended_at,
       deliver_job_id, endpoint, project_id, actor_type, actor_id
FROM holdfast.delivery
WHERE org_id = :org_id AND id = :id;

-- list_attempts :many — all attempts of one delivery, in order
SELECT number, reason, worker_id, began_at, ended_at, phase, outcome, code, provider_id
FROM holdfast.delivery_attempt
WHERE org_id = :org_id AND delivery_id = :id
ORDER BY number;

-- list_evidence :many — all evidence about one delivery, in order
SELECT source, verdict, after_attempt, provider_id, code, at
FROM holdfast.delivery_evidence
WHERE org_id = :org_id AND delivery_id = :id
ORDER BY id;

-- confirm_deliveries :many — crosses tenants: an operator states that they arrived; workers are fenced out
UPDATE holdfast.delivery
SET state = 'sent', reason = NULL, notified_at = {now}, confirmed_by = :actor,
    notification_id = coalesce(CAST(:provider_id AS text), notification_id),
    fence = fence + 1, lease_owner = NULL, lease_expires_at = NULL,
    updated_at = {now}, ended_at = {now}
FROM {rows moves: home uuid, delivery_id uuid, was bigint}
WHERE org_id = moves.home AND id = moves.delivery_id AND fence = moves.was
  AND state IN ('held', 'failed', 'dropped')
RETURNING org_id, id, awaited_by;

-- resend_deliveries :many — crosses tenants: an operator sends them again; erased ones have no text to send
-- A delivery that a late response confirmed is skipped: it is about to be marked, and the operator
-- could not know.
UPDATE holdfast.delivery AS target
SET state = 'pending', reason = NULL, notification_id = NULL, fence = fence + 1,
    lease_owner = NULL, lease_expires_at = NULL, not_before_at = {now}, updated_at = {now},
    ended_at = NULL
FROM {rows moves: home uuid, delivery_id uuid, was bigint}
WHERE target.org_id = moves.home AND target.id = moves.delivery_id AND target.fence = moves.was
  AND target.state IN ('held', 'failed', 'dropped') AND target.content IS NOT NULL
  AND (target.reason = 'undelivered' OR NOT EXISTS (
      SELECT 1 FROM holdfast.delivery_evidence AS late
      WHERE late.org_id = target.org_id AND late.delivery_id = target.id
        AND late.source = 'late_answer' AND late.verdict = 'taken'
        AND NOT EXISTS (SELECT 1 FROM holdfast.delivery_evidence AS person
                        WHERE person.org_id = late.org_id AND person.delivery_id = late.delivery_id
                          AND person.verdict = 'resend' AND person.id > late.id)))
RETURNING org_id, id, awaited_by;

-- drop_deliveries :many — crosses tenants: an operator drops them; a delivery that is being sent is skipped
UPDATE holdfast.delivery
SET state = 'dropped', reason = 'operator', fence = fence + 1, lease_owner = NULL,
    lease_expires_at = NULL, not_before_at = NULL, updated_at = {now}, ended_at = {now}
FROM {rows moves: home uuid, delivery_id uuid, was bigint}
WHERE org_id = moves.home AND id = moves.delivery_id AND fence = moves.was
  AND state IN ('pending', 'held', 'failed')
  AND (lease_expires_at IS NULL OR lease_expires_at <= {now})
RETURNING org_id, id, awaited_by;

-- insert_words :affected — crosses tenants: an operator's statement is evidence, and decides the next step
INSERT INTO holdfast.delivery_evidence
    (org_id, delivery_id, source, verdict, after_attempt, provider_id, at)
SELECT delivery.org_id, delivery.id, 'operator', :verdict, delivery.attempts,
       CAST(:provider_id AS text), {now}
FROM {rows named: home uuid, delivery_id uuid}
JOIN holdfast.delivery AS delivery
  ON delivery.org_id = named.home AND delivery.id = named.delivery_id;

-- list_undone :many — crosses tenants unless :org_id is given: dead letters whose deliveries were all sent since
-- Jobs that failed because of a missing delivery. The deliveries of a job are those that it
-- intended or was enqueued for, and those of its replays. A delivery sent before the last failure
-- did not prevent it, and is not counted.
WITH dead AS (
    SELECT org_id, job_id, last_failure_at FROM holdfast.dead_letter
    WHERE ended_at IS NULL AND state IN ('open', 'triaged', 'remediated', 'validated')
      AND error_class IN ('DELIVERY_FAILED', 'RECIPIENT_UNREACHABLE')
      AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
),
tried AS (
    SELECT dead.org_id, dead.job_id AS letter_id, dead.job_id FROM dead
    UNION ALL
    SELECT dead.org_id, dead.job_id, replay.replay_job_id
    FROM dead
    JOIN holdfast.dead_letter_replay AS replay
      ON replay.org_id = dead.org_id AND replay.job_id = dead.job_id
),
told AS (
    SELECT tried.org_id, tried.letter_id, delivery.state, delivery.notified_at
    FROM tried
    JOIN holdfast.delivery AS delivery
      ON delivery.org_id = tried.org_id AND delivery.job_id = tried.job_id
    WHERE delivery.is_required = 1
    UNION ALL
    SELECT tried.org_id, tried.letter_id, delivery.state, delivery.notified_at
    FROM tried
    JOIN holdfast.delivery AS delivery
      ON delivery.org_id = tried.org_id AND delivery.deliver_job_id = tried.job_id
    WHERE delivery.is_required = 1
),
done AS (
    SELECT dead.org_id, dead.job_id
    FROM dead
    JOIN told ON told.org_id = dead.org_id AND told.letter_id = dead.job_id
    GROUP BY dead.org_id, dead.job_id, dead.last_failure_at
    HAVING sum(CASE WHEN told.state = 'sent' THEN 0 ELSE 1 END) = 0
       AND max(told.notified_at) >= dead.last_failure_at
)
SELECT letter.*,
       coalesce((SELECT attempt.max_attempts FROM holdfast.job_attempt AS attempt
                 WHERE attempt.org_id = failed.org_id AND attempt.job_id = failed.id
                 ORDER BY attempt.number DESC LIMIT 1),
                failed.max_attempts) AS max_attempts,
       coalesce((SELECT attempt.pipeline_version FROM holdfast.job_attempt AS attempt
                 WHERE attempt.org_id = failed.org_id AND attempt.job_id = failed.id
                 ORDER BY attempt.number DESC LIMIT 1),
                failed.pipeline_version) AS pipeline_version,
       coalesce(rule.replay_refusal, category.replay_refusal) AS replay_refusal
FROM done
JOIN holdfast.dead_letter AS letter ON letter.org_id = done.org_id AND letter.job_id = done.job_id
JOIN holdfast.job_envelope AS job ON job.org_id = letter.org_id AND job.id = letter.job_id
JOIN holdfast.job_envelope AS failed
  ON failed.org_id = letter.org_id
 AND failed.id = CASE WHEN letter.failed_replay_id IS NULL THEN letter.job_id
                       ELSE letter.failed_replay_id END
LEFT JOIN holdfast.category AS category ON category.name = job.category
LEFT JOIN holdfast.job_type_rule AS rule ON rule.job_type = letter.job_type
ORDER BY letter.created_at, letter.job_id
LIMIT :limit;
