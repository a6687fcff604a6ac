-- Statements of the last two stages: what was found is kept, and its recipients are told.

-- delete_findings :affected — a stage that runs again says again what it finds
DELETE FROM holdfast.finding WHERE org_id = :org_id AND review_id = :review_id;

-- delete_parts :affected — what the batch lane said of parts has been put together
DELETE FROM holdfast.review_part WHERE org_id = :org_id AND review_id = :review_id;

-- insert_findings :affected — what the critic says, the most severe first
INSERT INTO holdfast.finding
    (org_id, review_id, number, file, line, severity, message, confidence, is_placed, quote)
SELECT CAST(:org_id AS {uuid}), CAST(:review_id AS {uuid}), findings.number, findings.file,
       findings.line, findings.severity, findings.message, findings.confidence,
       findings.is_placed, findings.quote
FROM {rows findings: number integer, file text, line integer, severity text, message text,
      confidence text, is_placed integer, quote text};

-- mark_criticised :affected — the critic is done; not for a review of which somebody may know
UPDATE holdfast.review
SET summary = :summary, finding_count = :finding_count, coverage = :coverage,
    criticised_at = {now}, updated_at = {now}
WHERE org_id = :org_id AND review_id = :review_id AND intended_at IS NULL
  AND erased_at IS NULL;

-- hold_changelist :maybe — of two versions that are about to be told, the second sees the first
-- Only PostgreSQL locks the row: SQLite has one writer.
SELECT changelist_id FROM holdfast.changelist
WHERE org_id = :org_id AND changelist_id = :changelist_id
{only postgres}FOR UPDATE{end};

-- mark_intended :maybe — from here on it is fixed what is told, and to whom; not of what was erased
UPDATE holdfast.review SET intended_at = coalesce(intended_at, {now}), updated_at = {now}
WHERE org_id = :org_id AND review_id = :review_id AND criticised_at IS NOT NULL
  AND erased_at IS NULL
RETURNING summary;

-- list_addressed :many — who is still to be put into the outbox, but for those who are being erased
SELECT recipient, channel, address, is_required FROM holdfast.review_recipient
WHERE org_id = :org_id AND review_id = :review_id AND address IS NOT NULL
ORDER BY recipient
{skip_locked};

-- forget_addresses :affected — from here on they lie in the deliveries alone
UPDATE holdfast.review_recipient SET address = NULL
WHERE org_id = :org_id AND review_id = :review_id
  AND recipient IN (SELECT told.recipient FROM {rows told: recipient text});
