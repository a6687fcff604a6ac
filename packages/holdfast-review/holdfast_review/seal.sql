-- Statements of posted patches: sealed until the first stage has redacted them.

-- insert_key :affected — in the transaction that makes the review
INSERT INTO holdfast.review_seal (org_id, review_id, seal_key, created_at)
SELECT CAST(:org_id AS {uuid}), CAST(:review_id AS {uuid}), :seal_key, {now};

-- find_key :maybe — for the first stage
SELECT seal_key FROM holdfast.review_seal WHERE org_id = :org_id AND review_id = :review_id;

-- delete_key :affected — the sealed bytes cannot be read from here on
DELETE FROM holdfast.review_seal WHERE org_id = :org_id AND review_id = :review_id;

-- replace_source :affected — the redacted patch takes the place of the sealed one, once
UPDATE holdfast.review SET source = :source, updated_at = {now}
WHERE org_id = :org_id AND review_id = :review_id AND {field(source, sealed)} IS NOT NULL
  AND erased_at IS NULL;

-- keep_origin :affected — who made the change, and what they call it; not once recipients were told
UPDATE holdfast.review SET origin = :origin, updated_at = {now}
WHERE org_id = :org_id AND review_id = :review_id AND intended_at IS NULL AND erased_at IS NULL;
