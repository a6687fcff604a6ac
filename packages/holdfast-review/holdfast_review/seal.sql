-- Statements of posted patches: sealed until the first stage has redacted them.

-- insert_key :affected — in the transaction that creates the review
INSERT INTO holdfast.review_seal (org_id, review_id, seal_key, created_at)
SELECT CAST(:org_id AS {uuid}), CAST(:review_id AS {uuid}), :seal_key, {now};

-- find_key :maybe — for the first stage
SELECT seal_key FROM holdfast.review_seal WHERE org_id = :org_id AND review_id = :review_id;

-- delete_key :affected — makes the sealed bytes unreadable
DELETE FROM holdfast.review_seal WHERE org_id = :org_id AND review_id = :review_id;

-- replace_source :affected — replaces the sealed patch with the redacted one, once
UPDATE holdfast.review SET source = :source, updated_at = {now}
WHERE org_id = :org_id AND review_id = :review_id AND {field(source, sealed)} IS NOT NULL
  AND erased_at IS NULL;

-- keep_origin :affected — author and title; not once recipients were notified
UPDATE holdfast.review SET origin = :origin, updated_at = {now}
WHERE org_id = :org_id AND review_id = :review_id AND intended_at IS NULL AND erased_at IS NULL;
