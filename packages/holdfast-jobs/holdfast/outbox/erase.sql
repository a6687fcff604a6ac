-- erase_deliveries :many — the deliveries of a recipient with their attempts and evidence
DELETE FROM holdfast.delivery
WHERE org_id = :org_id AND recipient = :recipient
  AND (lease_expires_at IS NULL OR lease_expires_at <= {now})
RETURNING org_id, id, request_id, correlation_id;

-- count_deliveries :one — deliveries that are being sent right now are kept
SELECT count(*) AS left_over FROM holdfast.delivery
WHERE org_id = :org_id AND recipient = :recipient;

-- erase_notices_about :affected — feed entries about a subject, before its deliveries are deleted
DELETE FROM holdfast.in_app_notification
WHERE org_id = :org_id AND token IN (
    SELECT told.token FROM holdfast.delivery AS told
    WHERE told.org_id = :org_id AND told.subject = :subject
      AND (told.lease_expires_at IS NULL OR told.lease_expires_at <= {now}));

-- erase_deliveries_about :many — all deliveries about a subject with their attempts and evidence
DELETE FROM holdfast.delivery
WHERE org_id = :org_id AND subject = :subject
  AND (lease_expires_at IS NULL OR lease_expires_at <= {now})
RETURNING org_id, id, request_id, correlation_id;

-- count_deliveries_about :one — deliveries that are being sent right now are kept
SELECT count(*) AS left_over FROM holdfast.delivery
WHERE org_id = :org_id AND subject = :subject;
