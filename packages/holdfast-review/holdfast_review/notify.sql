-- Statements of the last two stages: store the findings, notify the recipients.

-- delete_findings :affected — a repeated stage replaces its findings
DELETE FROM holdfast.finding WHERE org_id = :org_id AND review_id = :review_id;

-- delete_parts :affected — the findings of the parts have been merged
DELETE FROM holdfast.review_part WHERE org_id = :org_id AND review_id = :review_id;

-- insert_findings :affected — the critic's findings, the most severe first
INSERT INTO holdfast.finding
    (org_id, review_id, number, file, line, severity, message, confidence, is_placed, quote)
SELECT CAST(:org_id AS {uuid}), CAST(:review_id AS {uuid}), findings.number, findings.file,
       findings.line, findings.severity, findings.message, findings.confidence,
       findings.is_placed, findings.quote
FROM {rows findings: number integer, file text, line integer, severity text, message text,
      confidence text, is_placed integer, quote text};

-- mark_criticised :affected — the critic is done; not once recipients may know the review
UPDATE holdfast.review
SET summary = :summary, finding_count = :finding_count, coverage = :coverage,
    criticised_at = {now}, updated_at = {now}
WHERE org_id = :org_id AND review_id = :review_id AND intended_at IS NULL
  AND erased_at IS NULL;

-- hold_changelist :maybe — serializes the versions that are about to notify
SELECT changelist_id FROM holdfast.changelist
WHERE org_id = :org_id AND changelist_id = :changelist_id
{lock_row(changelist)};

-- mark_intended :maybe — fixes findings and recipients; not for an erased review
UPDATE holdfast.review SET intended_at = coalesce(intended_at, {now}), updated_at = {now}
WHERE org_id = :org_id AND review_id = :review_id AND criticised_at IS NOT NULL
  AND erased_at IS NULL
RETURNING summary;

-- list_addressed :many — recipients without a delivery, except those that are being erased
SELECT recipient, channel, address, is_required FROM holdfast.review_recipient
WHERE org_id = :org_id AND review_id = :review_id AND address IS NOT NULL
ORDER BY recipient
{skip_locked};

-- forget_addresses :affected — from now on only the deliveries have them
UPDATE holdfast.review_recipient SET address = NULL
WHERE org_id = :org_id AND review_id = :review_id
  AND recipient IN (SELECT told.recipient FROM {rows told: recipient text});
