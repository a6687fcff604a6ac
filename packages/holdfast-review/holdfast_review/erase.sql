-- Statements that erase findings and recipients, on request and after the retention period.

-- list_reviews :many — every version of a changelist, with its last job
SELECT review.org_id, review.review_id, review.review_version, review.status,
       coalesce(replay.replay_job_id, review.job_id) AS last_job_id
FROM holdfast.review AS review
LEFT JOIN holdfast.dead_letter AS letter
  ON letter.org_id = review.org_id AND letter.job_id = review.job_id
LEFT JOIN holdfast.dead_letter_replay AS replay
  ON replay.org_id = letter.org_id AND replay.job_id = letter.job_id
 AND replay.number = letter.replay_count
WHERE review.org_id = :org_id AND review.changelist_id = :changelist_id
ORDER BY review.review_version;

-- list_overdue :many — crosses tenants: reviews that ended long ago
SELECT review.org_id, review.review_id
FROM holdfast.review AS review
WHERE review.erased_at IS NULL AND review.status IN ('completed', 'failed', 'canceled')
  AND review.updated_at <= {later(-CAST(:keep_ms AS bigint))}
ORDER BY review.updated_at
LIMIT :limit
{skip_locked};

-- count_overdue :one — crosses tenants: the same reviews, counted up to a bound
SELECT count(*) AS reviews FROM (
    SELECT 1 FROM holdfast.review AS review
    WHERE review.erased_at IS NULL AND review.status IN ('completed', 'failed', 'canceled')
      AND review.updated_at <= {later(-CAST(:keep_ms AS bigint))}
    LIMIT :most) AS overdue;

-- mark_erased :affected — crosses tenants: runs first, so that concurrent writers wait
UPDATE holdfast.review AS review
SET erased_at = {now}, summary = NULL, origin = NULL
FROM {rows gone: org_id uuid, review_id uuid}
WHERE review.org_id = gone.org_id AND review.review_id = gone.review_id
  AND review.erased_at IS NULL;

-- delete_findings :affected — crosses tenants: findings of the critic
DELETE FROM holdfast.finding
WHERE (org_id, review_id) IN (
    SELECT gone.org_id, gone.review_id FROM {rows gone: org_id uuid, review_id uuid});

-- delete_parts :affected — crosses tenants: findings by part
DELETE FROM holdfast.review_part
WHERE (org_id, review_id) IN (
    SELECT gone.org_id, gone.review_id FROM {rows gone: org_id uuid, review_id uuid});

-- delete_seals :affected — crosses tenants: keys of patches that are not redacted yet
DELETE FROM holdfast.review_seal
WHERE (org_id, review_id) IN (
    SELECT gone.org_id, gone.review_id FROM {rows gone: org_id uuid, review_id uuid});

-- delete_recipients :affected — crosses tenants: recipients, and addresses without a delivery
DELETE FROM holdfast.review_recipient
WHERE (org_id, review_id) IN (
    SELECT gone.org_id, gone.review_id FROM {rows gone: org_id uuid, review_id uuid});

-- delete_recipient :affected — one person; waits for a concurrent insert into the outbox
DELETE FROM holdfast.review_recipient WHERE org_id = :org_id AND recipient = :recipient;

-- list_files :many — artifacts that the versions of a changelist read and wrote
SELECT artifact.id FROM holdfast.artifact AS artifact
WHERE artifact.org_id = :org_id AND artifact.state = 'stored'
  AND (artifact.job_id IN (
           SELECT review.job_id FROM holdfast.review AS review
           WHERE review.org_id = :org_id AND review.changelist_id = :changelist_id
           UNION
           SELECT replay.replay_job_id FROM holdfast.review AS review
           JOIN holdfast.dead_letter_replay AS replay
             ON replay.org_id = review.org_id AND replay.job_id = review.job_id
           WHERE review.org_id = :org_id AND review.changelist_id = :changelist_id)
       OR CAST(artifact.id AS text) IN (
           SELECT {field(review.source, artifact_id)} FROM holdfast.review AS review
           WHERE review.org_id = :org_id AND review.changelist_id = :changelist_id))
ORDER BY artifact.id
LIMIT :limit;
