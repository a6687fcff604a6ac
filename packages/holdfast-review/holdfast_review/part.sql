-- Statements of reviewing with batch processing: one job for each part.

-- list_parts :many — the parts of a review's change and their answers; how their jobs have ended
SELECT part.number, part.change_key, part.asked_by, part.answer, part.job_id, ended.state,
       ended.error_class
FROM holdfast.review_part AS part
LEFT JOIN holdfast.job_outcome AS ended
  ON ended.org_id = part.org_id AND ended.job_id = part.job_id
WHERE part.org_id = :org_id AND part.review_id = :review_id
ORDER BY part.number;

-- hold_review :affected — blocks erasure while its parts are written
UPDATE holdfast.review SET updated_at = {now}
WHERE org_id = :org_id AND review_id = :review_id AND erased_at IS NULL;

-- delete_parts :affected — of another change, or of an ended job; answers for this change stay
DELETE FROM holdfast.review_part
WHERE org_id = :org_id AND review_id = :review_id
  AND (answer IS NULL OR change_key <> :change_key);

-- insert_parts :affected — before any request, so that every answer has a row
INSERT INTO holdfast.review_part (org_id, review_id, number, change_key, artifact_id, created_at)
SELECT CAST(:org_id AS {uuid}), CAST(:review_id AS {uuid}), parts.number, parts.change_key,
       parts.artifact_id, {now}
FROM {rows parts: number integer, change_key text, artifact_id uuid};

-- mark_asked :affected — the part's job, and the review's job that waits for it
UPDATE holdfast.review_part AS part SET job_id = asked.job_id, asked_by = :asked_by
FROM {rows asked: number integer, job_id uuid}
WHERE part.org_id = :org_id AND part.review_id = :review_id AND part.number = asked.number;

-- load_parts :many — crosses tenants: the parts of batch jobs
SELECT wanted.job_id, part.change_key, part.artifact_id, review.erased_at, review.status
FROM {rows wanted: org_id uuid, job_id uuid, review_id uuid, number integer}
JOIN holdfast.review AS review
  ON review.org_id = wanted.org_id AND review.review_id = wanted.review_id
LEFT JOIN holdfast.review_part AS part
  ON part.org_id = wanted.org_id AND part.review_id = wanted.review_id
 AND part.number = wanted.number;

-- keep_answers :affected — crosses tenants: in the transaction that ends the jobs; the first stays
UPDATE holdfast.review_part AS part SET answer = said.answer
FROM {rows said: org_id uuid, review_id uuid, number integer, change_key text, answer json}
WHERE part.org_id = said.org_id AND part.review_id = said.review_id AND part.number = said.number
  AND part.change_key = said.change_key AND part.answer IS NULL;
