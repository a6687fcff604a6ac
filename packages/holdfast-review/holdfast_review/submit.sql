-- Statements of submitting a review: deduplication and inserts.

-- find_known :many — the reviews of a key and of a version, which may be the same
SELECT review_id, changelist_id, review_version, idempotency_key, request_hash, status
FROM holdfast.review
WHERE org_id = :org_id
  AND (idempotency_key = :idempotency_key
       OR (changelist_id = :changelist_id AND review_version = :review_version));

-- find_succeeded :maybe — checked before anything is stored
SELECT succeeded_version FROM holdfast.changelist
WHERE org_id = :org_id AND changelist_id = :changelist_id;

-- hold_changelist :one — creates it if missing, and blocks concurrent submissions
INSERT INTO holdfast.changelist AS changelist (org_id, changelist_id, created_at)
VALUES (:org_id, :changelist_id, {now})
ON CONFLICT (org_id, changelist_id) DO UPDATE SET created_at = changelist.created_at
RETURNING succeeded_version;

-- insert_review :affected — in one transaction with its job and its recipients
INSERT INTO holdfast.review
    (org_id, review_id, changelist_id, review_version, idempotency_key, request_hash, source,
     is_rerun, job_id, request_id, correlation_id, created_at, updated_at)
SELECT reviews.org_id, reviews.review_id, reviews.changelist_id, reviews.review_version,
       reviews.idempotency_key, reviews.request_hash, reviews.source, reviews.is_rerun,
       reviews.job_id, reviews.request_id, reviews.correlation_id, {now}, {now}
FROM {rows reviews: org_id uuid, review_id uuid, changelist_id text, review_version integer,
      idempotency_key text, request_hash text, source json, is_rerun integer, job_id uuid,
      request_id text, correlation_id text};

-- insert_recipients :affected — fixed before anything is found
INSERT INTO holdfast.review_recipient
    (org_id, review_id, recipient, channel, address, is_required, created_at)
SELECT CAST(:org_id AS {uuid}), CAST(:review_id AS {uuid}), recipients.recipient,
       recipients.channel, recipients.address, recipients.is_required, {now}
FROM {rows recipients: recipient text, channel text, address text, is_required integer};

-- list_told_before :many — the recipients of a version with their addresses, wherever stored
SELECT recipient.recipient, recipient.channel, recipient.is_required,
       coalesce(recipient.address, delivery.address) AS address
FROM holdfast.review_recipient AS recipient
JOIN holdfast.review AS review
  ON review.org_id = recipient.org_id AND review.review_id = recipient.review_id
LEFT JOIN holdfast.delivery AS delivery
  ON delivery.org_id = review.org_id AND delivery.subject = :subject
 AND delivery.recipient = recipient.recipient AND delivery.version = review.review_version
WHERE recipient.org_id = :org_id AND recipient.review_id = :review_id
ORDER BY recipient.recipient;
