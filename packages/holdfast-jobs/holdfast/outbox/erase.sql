-- erase_deliveries :many — a person leaves: what they were told, every try and every word about it
DELETE FROM holdfast.delivery
WHERE org_id = :org_id AND recipient = :recipient
  AND (lease_expires_at IS NULL OR lease_expires_at <= {now})
RETURNING org_id, id, request_id, correlation_id;

-- count_deliveries :one — what somebody is sending at this very moment stays
SELECT count(*) AS left_over FROM holdfast.delivery
WHERE org_id = :org_id AND recipient = :recipient;

-- erase_notices_about :affected — what stands in feeds about something, before its deliveries go
DELETE FROM holdfast.in_app_notification
WHERE org_id = :org_id AND token IN (
    SELECT told.token FROM holdfast.delivery AS told
    WHERE told.org_id = :org_id AND told.subject = :subject
      AND (told.lease_expires_at IS NULL OR told.lease_expires_at <= {now}));

-- erase_deliveries_about :many — what anybody was told of something, every try and every word about it
DELETE FROM holdfast.delivery
WHERE org_id = :org_id AND subject = :subject
  AND (lease_expires_at IS NULL OR lease_expires_at <= {now})
RETURNING org_id, id, request_id, correlation_id;

-- count_deliveries_about :one — what somebody is sending at this very moment stays
SELECT count(*) AS left_over FROM holdfast.delivery
WHERE org_id = :org_id AND subject = :subject;
