-- The invariants of reviews, in the shape of operate/verify/lifecycle.sql.

-- find_overtaken :many — I14, crosses tenants: a version entered the outbox after a higher one
SELECT delivery.org_id, 'delivery:' || CAST(delivery.id AS text) AS subject,
       'version ' || CAST(delivery.version AS text)
           || ' was notified after a higher version' AS detail
FROM holdfast.review AS review
JOIN holdfast.delivery AS delivery
  ON delivery.org_id = review.org_id AND delivery.subject = 'changelist:' || review.changelist_id
 AND delivery.version = review.review_version
WHERE (CAST(:org_id AS {uuid}) IS NULL OR review.org_id = :org_id)
  AND EXISTS (SELECT 1 FROM holdfast.delivery AS higher
              WHERE higher.org_id = delivery.org_id
                AND higher.subject = delivery.subject
                AND higher.recipient = delivery.recipient
                AND higher.version > delivery.version
                AND higher.created_at < delivery.created_at);

-- find_outdated :many — I14, crosses tenants: a review started below a succeeded version
SELECT review.org_id, 'review:' || CAST(review.review_id AS text) AS subject,
       'version ' || CAST(review.review_version AS text)
           || ' started after a higher version had succeeded' AS detail
FROM holdfast.review AS review
WHERE (CAST(:org_id AS {uuid}) IS NULL OR review.org_id = :org_id)
  AND EXISTS (SELECT 1 FROM holdfast.review AS higher
              WHERE higher.org_id = review.org_id
                AND higher.changelist_id = review.changelist_id
                AND higher.review_version > review.review_version
                AND higher.succeeded_at < review.created_at);

-- find_unserved :many — I19, crosses tenants: a review succeeded without notifying a recipient
-- Deliveries that the channel turned out to lack after the review succeeded are sent again.
SELECT review.org_id, 'review:' || CAST(review.review_id AS text) AS subject,
       CASE WHEN review.intended_at IS NULL THEN 'it succeeded without recipients'
            ELSE 'it succeeded, and the delivery to a required recipient is ' || delivery.state
       END AS detail
FROM holdfast.review AS review
JOIN holdfast.review_recipient AS recipient
  ON recipient.org_id = review.org_id AND recipient.review_id = review.review_id
 AND recipient.is_required = 1
LEFT JOIN holdfast.delivery AS delivery
  ON delivery.org_id = review.org_id AND delivery.subject = 'changelist:' || review.changelist_id
 AND delivery.recipient = recipient.recipient AND delivery.version = review.review_version
WHERE review.status = 'completed'
  AND (CAST(:org_id AS {uuid}) IS NULL OR review.org_id = :org_id)
  AND (review.intended_at IS NULL
       OR (delivery.state <> 'sent'
           AND (delivery.reconciled_at IS NULL OR delivery.reconciled_at < review.succeeded_at)));

-- find_uninvited :many — I19, crosses tenants: a delivery to someone who is not a recipient
SELECT review.org_id, 'delivery:' || CAST(delivery.id AS text) AS subject,
       'its recipient is not a recipient of the review' AS detail
FROM holdfast.review AS review
JOIN holdfast.delivery AS delivery
  ON delivery.org_id = review.org_id AND delivery.subject = 'changelist:' || review.changelist_id
 AND delivery.version = review.review_version
WHERE (CAST(:org_id AS {uuid}) IS NULL OR review.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.review_recipient AS recipient
                  WHERE recipient.org_id = review.org_id
                    AND recipient.review_id = review.review_id
                    AND recipient.recipient = delivery.recipient);

-- find_foreign_reviews :many — I29, crosses tenants: a review names a job of another tenant
SELECT review.org_id, 'review:' || CAST(review.review_id AS text) AS subject,
       'it refers to a job of another tenant' AS detail
FROM holdfast.review AS review
JOIN (
    SELECT org_id, id AS job_id FROM holdfast.job_envelope
    UNION ALL
    SELECT org_id, job_id FROM holdfast.job_remainder
) AS made ON made.job_id = review.job_id AND made.org_id <> review.org_id
WHERE (CAST(:org_id AS {uuid}) IS NULL OR review.org_id = :org_id);

-- find_behind :many — I19, crosses tenants: a review differs from the state of its last job
SELECT review.org_id, 'review:' || CAST(review.review_id AS text) AS subject,
       'it is ' || review.status || ', and its last job ' || job.state AS detail
FROM holdfast.review AS review
JOIN holdfast.job AS job ON job.org_id = review.org_id
 AND coalesce(job.replay_of, job.id) = review.job_id
WHERE (CAST(:org_id AS {uuid}) IS NULL OR review.org_id = :org_id)
  AND job.state <> review.status
  -- A queued replay has not changed anything yet.
  AND NOT (job.replay_of IS NOT NULL AND job.state = 'queued' AND job.lease_token = 0)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job AS later
                  WHERE later.org_id = job.org_id AND later.replay_of = review.job_id
                    AND later.lease_token > 0 AND later.id > job.id);
