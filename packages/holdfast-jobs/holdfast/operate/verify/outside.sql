-- The invariants of deliveries, I14 to I21, in the shape of lifecycle.sql.

-- find_repeated :many — I14, crosses tenants: more than one delivery for a recipient, subject and version
SELECT found.org_id, 'delivery:' || found.first_id AS subject,
       CAST(found.times AS text) || ' deliveries for one recipient, subject and version' AS detail
FROM (
    SELECT org_id, min(CAST(id AS text)) AS first_id, count(*) AS times
    FROM holdfast.delivery
    WHERE CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id
    GROUP BY org_id, subject, recipient, version
    HAVING count(*) > 1
) AS found;

-- find_half_marked :many — I15, crosses tenants: deliveries whose marks and state disagree
SELECT found.org_id, found.subject, found.detail
FROM (
    SELECT delivery.org_id, 'delivery:' || CAST(delivery.id AS text) AS subject,
           CASE
               WHEN delivery.state = 'sent' AND delivery.notified_at IS NULL
                   THEN 'it is sent without a send time'
               WHEN delivery.state = 'sent' AND delivery.notification_id IS NULL
                    AND delivery.confirmed_by IS NULL
                   THEN 'it is sent without a provider id or a confirmation'
               WHEN delivery.state <> 'sent' AND delivery.notified_at IS NOT NULL
                   THEN 'it is ' || delivery.state || ', and marked as sent'
           END AS detail
    FROM holdfast.delivery AS delivery
    WHERE CAST(:org_id AS {uuid}) IS NULL OR delivery.org_id = :org_id
) AS found
WHERE found.detail IS NOT NULL;

-- find_unintended :many — I16, crosses tenants: marked deliveries without an attempt or evidence
SELECT delivery.org_id, 'delivery:' || CAST(delivery.id AS text) AS subject,
       CASE WHEN NOT EXISTS (SELECT 1 FROM holdfast.delivery_attempt AS attempt
                             WHERE attempt.org_id = delivery.org_id
                               AND attempt.delivery_id = delivery.id
                               AND attempt.began_at >= delivery.created_at
                               AND attempt.began_at <= delivery.notified_at)
            THEN 'it is marked sent without an attempt'
            ELSE 'it is marked sent without an accepted attempt' END AS detail
FROM holdfast.delivery AS delivery
WHERE delivery.notified_at IS NOT NULL AND delivery.confirmed_by IS NULL
  AND delivery.proof <> 'seen'
  AND (CAST(:org_id AS {uuid}) IS NULL OR delivery.org_id = :org_id)
  AND (NOT EXISTS (SELECT 1 FROM holdfast.delivery_attempt AS attempt
                   WHERE attempt.org_id = delivery.org_id AND attempt.delivery_id = delivery.id
                     AND attempt.began_at >= delivery.created_at
                     AND attempt.began_at <= delivery.notified_at)
       -- A reconciliation that found it at its channel is recorded in the delivery itself.
       OR (delivery.reconciled_at IS NULL
           AND NOT EXISTS (SELECT 1 FROM holdfast.delivery_attempt AS attempt
                           WHERE attempt.org_id = delivery.org_id
                             AND attempt.delivery_id = delivery.id
                             AND attempt.outcome = 'accepted')
           AND NOT EXISTS (SELECT 1 FROM holdfast.delivery_evidence AS evidence
                           WHERE evidence.org_id = delivery.org_id
                             AND evidence.delivery_id = delivery.id
                             AND evidence.verdict IN ('taken', 'confirmed'))));

-- find_shared_tokens :many — I16, crosses tenants: tokens of more than one delivery
SELECT found.org_id, 'delivery:' || found.first_id AS subject,
       CAST(found.times AS text) || ' deliveries have one token' AS detail
FROM (
    SELECT org_id, min(CAST(id AS text)) AS first_id, count(*) AS times
    FROM holdfast.delivery
    WHERE CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id
    GROUP BY org_id, token
    HAVING count(*) > 1
) AS found;

-- find_altered :many — I16, crosses tenants: different contents under one token
SELECT delivery.org_id, 'delivery:' || CAST(delivery.id AS text) AS subject,
       'its attempts sent different content' AS detail
FROM holdfast.delivery AS delivery
WHERE (CAST(:org_id AS {uuid}) IS NULL OR delivery.org_id = :org_id)
  AND EXISTS (SELECT 1 FROM holdfast.delivery_attempt AS attempt
              WHERE attempt.org_id = delivery.org_id AND attempt.delivery_id = delivery.id
                AND attempt.body_hash <> delivery.content_hash);

-- list_contents :many — I16, crosses tenants: contents with their hashes
SELECT delivery.org_id, 'delivery:' || CAST(delivery.id AS text) AS subject, delivery.content,
       delivery.content_hash
FROM holdfast.delivery AS delivery
WHERE delivery.content IS NOT NULL AND length(delivery.content_hash) = 64
  AND (CAST(:org_id AS {uuid}) IS NULL OR delivery.org_id = :org_id);

-- find_forsaken :many — I17, crosses tenants: attempts without an outcome that are not being reconciled
-- A delivery that waits for its channel to settle is not due for a lookup yet.
SELECT delivery.org_id, 'delivery:' || CAST(delivery.id AS text) AS subject,
       'an attempt has no outcome and is not being reconciled' AS detail
FROM holdfast.delivery AS delivery
WHERE delivery.state = 'pending'
  AND (CAST(:org_id AS {uuid}) IS NULL OR delivery.org_id = :org_id)
  AND (delivery.lease_expires_at IS NULL
       OR delivery.lease_expires_at < CAST(:left_since AS {instant}))
  AND (delivery.not_before_at IS NULL
       OR delivery.not_before_at < CAST(:left_since AS {instant}))
  AND delivery.updated_at < CAST(:left_since AS {instant})
  AND EXISTS (SELECT 1 FROM holdfast.delivery_attempt AS attempt
              WHERE attempt.org_id = delivery.org_id AND attempt.delivery_id = delivery.id
                AND (attempt.outcome IS NULL OR attempt.outcome = 'unsure'));

-- find_doubled :many — I18, crosses tenants: deliveries that a channel accepted under two ids
-- An id that the channel does not know, or gave up, does not count. A permitted repeat has its
-- permission in the reason of the attempt.
SELECT told.org_id, 'delivery:' || CAST(told.delivery_id AS text) AS subject,
       'its channel has it under ' || CAST(count(DISTINCT told.provider_id) AS text) || ' names'
           AS detail
FROM (
    SELECT org_id, id AS delivery_id, notification_id AS provider_id, notified_at AS at
    FROM holdfast.delivery
    WHERE notification_id IS NOT NULL AND notified_at IS NOT NULL
    UNION
    SELECT org_id, delivery_id, provider_id, ended_at
    FROM holdfast.delivery_attempt
    WHERE outcome = 'accepted' AND provider_id IS NOT NULL
    UNION
    SELECT org_id, delivery_id, provider_id, at
    FROM holdfast.delivery_evidence
    WHERE verdict = 'taken' AND provider_id IS NOT NULL
) AS told
WHERE (CAST(:org_id AS {uuid}) IS NULL OR told.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.delivery_evidence AS denial
                  WHERE denial.org_id = told.org_id AND denial.delivery_id = told.delivery_id
                    AND denial.source = 'lookup' AND denial.verdict IN ('not_found', 'undelivered')
                    AND denial.at > told.at)
  AND NOT EXISTS (SELECT 1 FROM holdfast.delivery_attempt AS attempt
                  WHERE attempt.org_id = told.org_id AND attempt.delivery_id = told.delivery_id
                    AND attempt.reason IN ('policy_resend', 'operator_resend', 'receiver_dedupes'))
GROUP BY told.org_id, told.delivery_id
HAVING count(DISTINCT told.provider_id) > 1;

-- find_unproven :many — I20, crosses tenants: failed deliveries without a conclusive rejection or lookup
SELECT delivery.org_id, 'delivery:' || CAST(delivery.id AS text) AS subject,
       'it failed without a rejection or a lookup' AS detail
FROM holdfast.delivery AS delivery
WHERE delivery.state = 'failed'
  AND (CAST(:org_id AS {uuid}) IS NULL OR delivery.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.delivery_attempt AS attempt
                  WHERE attempt.org_id = delivery.org_id AND attempt.delivery_id = delivery.id
                    AND coalesce(attempt.outcome, attempt.phase) IN (
                        'rejected', 'refused', 'channel_refused', 'throttled', 'before_commit'))
  AND NOT EXISTS (SELECT 1 FROM holdfast.delivery_evidence AS evidence
                  WHERE evidence.org_id = delivery.org_id AND evidence.delivery_id = delivery.id
                    AND evidence.source IN ('lookup', 'webhook', 'operator'));

-- find_unjustified :many — I21, crosses tenants: repeated attempts without a valid reason
SELECT found.org_id, found.subject, found.detail
FROM (
    SELECT attempt.org_id, 'delivery:' || CAST(attempt.delivery_id AS text) AS subject,
           CASE
               WHEN attempt.number > 1 AND attempt.reason = 'first'
                   THEN 'attempt ' || CAST(attempt.number AS text) || ' has the reason first'
               WHEN attempt.reason = 'proven_not_taken'
                    AND coalesce(before.outcome, before.phase, '')
                        NOT IN ('rejected', 'channel_refused', 'throttled', 'before_commit')
                   THEN 'attempt ' || CAST(attempt.number AS text)
                        || ' has the reason proven_not_taken, but the previous attempt was not rejected'
               WHEN attempt.reason = 'idempotent_window' AND before.body_hash <> attempt.body_hash
                   THEN 'attempt ' || CAST(attempt.number AS text)
                        || ' has the reason idempotent_window, but another content'
               WHEN attempt.reason = 'looked_up_not_found' AND NOT EXISTS (
                        SELECT 1 FROM holdfast.delivery_evidence AS evidence
                        WHERE evidence.org_id = attempt.org_id
                          AND evidence.delivery_id = attempt.delivery_id
                          AND evidence.verdict = 'not_found'
                          AND evidence.after_attempt >= attempt.number - 1
                          AND evidence.at <= attempt.began_at)
                   THEN 'attempt ' || CAST(attempt.number AS text)
                        || ' has the reason looked_up_not_found without a lookup'
               WHEN attempt.reason = 'operator_resend' AND NOT EXISTS (
                        SELECT 1 FROM holdfast.delivery_evidence AS evidence
                        WHERE evidence.org_id = attempt.org_id
                          AND evidence.delivery_id = attempt.delivery_id
                          AND evidence.source = 'operator' AND evidence.verdict = 'resend'
                          AND evidence.after_attempt >= attempt.number - 1)
                   THEN 'attempt ' || CAST(attempt.number AS text)
                        || ' names an operator action that was not recorded'
           END AS detail
    FROM holdfast.delivery_attempt AS attempt
    LEFT JOIN holdfast.delivery_attempt AS before
      ON before.org_id = attempt.org_id AND before.delivery_id = attempt.delivery_id
     AND before.number = attempt.number - 1
    WHERE CAST(:org_id AS {uuid}) IS NULL OR attempt.org_id = :org_id
) AS found
WHERE found.detail IS NOT NULL;

-- find_miscounted :many — I21, crosses tenants: deliveries whose attempts are not all recorded
SELECT delivery.org_id, 'delivery:' || CAST(delivery.id AS text) AS subject,
       'it counts ' || CAST(delivery.attempts AS text) || ' attempts, and '
           || CAST(coalesce(tries.held, 0) AS text) || ' are recorded' AS detail
FROM holdfast.delivery AS delivery
LEFT JOIN (SELECT org_id, delivery_id, count(*) AS held
           FROM holdfast.delivery_attempt
           GROUP BY org_id, delivery_id) AS tries
  ON tries.org_id = delivery.org_id AND tries.delivery_id = delivery.id
WHERE (CAST(:org_id AS {uuid}) IS NULL OR delivery.org_id = :org_id)
  AND coalesce(tries.held, 0) <> delivery.attempts;
