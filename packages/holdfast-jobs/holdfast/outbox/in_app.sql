-- take_in_app :affected — crosses tenants: the token identifies the tenant; a repeat changes nothing
-- Tokens of other channels are visible to others, for example as mail ids. With one of them a
-- tenant could write into the feed of another.
INSERT INTO holdfast.in_app_notification
    (org_id, id, recipient, token, subject, text, html, data, created_at)
SELECT delivery.org_id, message.id, delivery.recipient, delivery.token, message.subject,
       message.text, message.html, message.data, {now}
FROM {rows message: id uuid, token text, subject text, text text, html text, data json}
JOIN holdfast.delivery AS delivery
  ON delivery.token = message.token AND delivery.channel = :channel
WHERE true
ON CONFLICT (org_id, token) DO NOTHING;

-- find_in_app :maybe — crosses tenants: the stored entry of a message that may have been accepted
SELECT notification.id, notification.created_at
FROM holdfast.delivery AS delivery
JOIN holdfast.in_app_notification AS notification
    ON notification.org_id = delivery.org_id AND notification.token = delivery.token
WHERE delivery.token = :token AND delivery.channel = :channel;

-- list_in_app :many — a recipient's feed, newest first
SELECT id, recipient, subject, text, html, data, created_at, read_at
FROM holdfast.in_app_notification
WHERE org_id = :org_id AND recipient = :recipient AND id < :before
  AND (:is_unread = 0 OR read_at IS NULL)
ORDER BY id DESC
LIMIT :limit;

-- count_unread :one — unread entries, counted up to a limit
SELECT count(*) AS unread FROM (
    SELECT 1 AS one
    FROM holdfast.in_app_notification
    WHERE org_id = :org_id AND recipient = :recipient AND read_at IS NULL
    LIMIT :most
) AS unread;

-- read_in_app :affected — mark as read; a repeat changes nothing
UPDATE holdfast.in_app_notification
SET read_at = CASE WHEN created_at > {now} THEN created_at ELSE {now} END
WHERE org_id = :org_id AND recipient = :recipient AND read_at IS NULL
  AND id IN (SELECT wanted.id FROM {rows wanted: id uuid});

-- read_all_in_app :affected — mark everything up to the newest displayed entry as read
UPDATE holdfast.in_app_notification
SET read_at = CASE WHEN created_at > {now} THEN created_at ELSE {now} END
WHERE org_id = :org_id AND recipient = :recipient AND read_at IS NULL AND id <= :upto;

-- erase_in_app :affected — all feed entries of a recipient
DELETE FROM holdfast.in_app_notification
WHERE org_id = :org_id AND recipient = :recipient;
