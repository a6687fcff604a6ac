-- Statements that read reviews.

-- find_review :maybe — a review, with the state of its last job
-- SQLite reads every job for a LEFT JOIN of the view job, so its tables are joined instead.
SELECT review.org_id, review.review_id, review.changelist_id, review.review_version,
       review.idempotency_key, review.source, review.job_id, review.summary, review.finding_count,
       review.coverage, review.origin, review.criticised_at, review.intended_at, review.succeeded_at, review.created_at,
       review.erased_at,
       CASE WHEN review.intended_at IS NULL
                 AND EXISTS (SELECT 1 FROM holdfast.review AS higher
                             WHERE higher.org_id = review.org_id
                               AND higher.changelist_id = review.changelist_id
                               AND higher.review_version > review.review_version
                               AND higher.intended_at IS NOT NULL)
            THEN 1 ELSE 0 END AS is_overtaken,
       coalesce(job.id, review.job_id) AS last_job_id,
       CASE WHEN ended.state IS NOT NULL THEN ended.state
            WHEN running.job_id IS NOT NULL THEN 'processing'
            WHEN job.id IS NOT NULL THEN 'queued'
            ELSE review.status END AS state,
       coalesce(ended.attempt_count, attempt.attempt_count, 0) AS attempt_count,
       coalesce(ended.stage, attempt.stage, job.stage) AS stage,
       coalesce(ended.error_class, attempt.error_class) AS error_class,
       letter.job_id AS letter_id,
       -- Whether it failed for a delivery that is being sent again: its job is replayed then.
       CASE WHEN coalesce(ended.error_class, attempt.error_class) = 'RECIPIENT_UNREACHABLE' AND EXISTS (
                     SELECT 1 FROM holdfast.delivery AS delivery
                     WHERE delivery.org_id = review.org_id AND delivery.job_id = review.job_id
                       AND delivery.is_required = 1 AND delivery.state IN ('pending', 'sent'))
                 AND NOT EXISTS (
                     SELECT 1 FROM holdfast.delivery AS delivery
                     WHERE delivery.org_id = review.org_id AND delivery.job_id = review.job_id
                       AND delivery.is_required = 1
                       AND delivery.state IN ('held', 'failed', 'dropped'))
            THEN 1 ELSE 0 END AS is_retried
FROM holdfast.review AS review
LEFT JOIN holdfast.dead_letter AS letter
  ON letter.org_id = review.org_id AND letter.job_id = review.job_id
LEFT JOIN holdfast.dead_letter_replay AS replay
  ON replay.org_id = letter.org_id AND replay.job_id = letter.job_id
 AND replay.number = letter.replay_count
LEFT JOIN holdfast.job_envelope AS job
  ON job.org_id = review.org_id AND job.id = coalesce(replay.replay_job_id, review.job_id)
LEFT JOIN holdfast.job_outcome AS ended ON ended.org_id = job.org_id AND ended.job_id = job.id
LEFT JOIN holdfast.job_running AS running
  ON running.org_id = job.org_id AND running.job_id = job.id
{last_attempt attempt: job.org_id, job.id}
WHERE review.org_id = :org_id AND review.review_id = :review_id;

-- list_findings :many — the findings, the most severe first
SELECT number, file, line, severity, message, confidence, is_placed, quote
FROM holdfast.finding
WHERE org_id = :org_id AND review_id = :review_id
ORDER BY number;

-- list_recipients :many — the recipients of a review and their delivery states
SELECT recipient.recipient, recipient.channel, recipient.is_required, delivery.id AS delivery_id,
       -- A recipient with neither an address nor a delivery was erased.
       coalesce(delivery.state,
                CASE WHEN recipient.address IS NULL THEN 'erased' ELSE 'pending' END) AS state,
       delivery.reason, delivery.attempts, delivery.notified_at, delivery.notification_id,
       delivery.not_before_at
FROM holdfast.review_recipient AS recipient
LEFT JOIN holdfast.delivery AS delivery
  ON delivery.org_id = recipient.org_id AND delivery.subject = :subject
 AND delivery.recipient = recipient.recipient AND delivery.version = :review_version
WHERE recipient.org_id = :org_id AND recipient.review_id = :review_id
ORDER BY recipient.recipient;

-- find_version :maybe — the review of a version, by default the highest
SELECT review_id FROM holdfast.review
WHERE org_id = :org_id AND changelist_id = :changelist_id
  AND (CAST(:review_version AS integer) IS NULL OR review_version = :review_version)
ORDER BY review_version DESC
LIMIT 1;

-- list_reviews :many — crosses tenants unless :org_id is given: reviews, newest first, without text
SELECT review.org_id, review.review_id, review.changelist_id, review.review_version, review.status,
       review.finding_count, review.job_id, review.created_at, review.succeeded_at
FROM holdfast.review AS review
WHERE review.review_id < :before
  AND (CAST(:org_id AS {uuid}) IS NULL OR review.org_id = :org_id)
ORDER BY review.review_id DESC
LIMIT :limit;
