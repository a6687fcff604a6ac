-- In-app notifications: the channel whose messages are stored in this database.

CREATE TABLE holdfast.in_app_notification (
    org_id {uuid} NOT NULL,
    id {uuid} NOT NULL,
    recipient text NOT NULL,
    -- The token of the delivery that created it.
    token text NOT NULL,
    subject text NOT NULL,
    text text NOT NULL,
    html text,
    data {json} NOT NULL,
    created_at {instant} NOT NULL,
    read_at {instant},
    PRIMARY KEY (org_id, id),
    CONSTRAINT in_app_notification_once UNIQUE (org_id, token),
    CONSTRAINT in_app_notification_read_later CHECK (read_at >= created_at)
);

CREATE INDEX in_app_notification_feed ON holdfast.in_app_notification (org_id, recipient, id);
CREATE INDEX in_app_notification_unread ON holdfast.in_app_notification (org_id, recipient)
    WHERE read_at IS NULL;
CREATE INDEX in_app_notification_age ON holdfast.in_app_notification (created_at);

-- Channels identify a message by its token only; this index finds the delivery.
CREATE INDEX delivery_by_token ON holdfast.delivery (token);

{refuse in_app_notification_never_changes BEFORE UPDATE ON holdfast.in_app_notification
WHEN NEW.org_id <> OLD.org_id OR NEW.id <> OLD.id OR NEW.recipient <> OLD.recipient
    OR NEW.token <> OLD.token OR NEW.subject <> OLD.subject OR NEW.text <> OLD.text
    OR NEW.html IS DISTINCT FROM OLD.html OR NEW.data IS DISTINCT FROM OLD.data
    OR NEW.created_at <> OLD.created_at
SAYING 'in-app notifications are immutable'};

-- Operators have only a delivery's id, and list the newest deliveries of every tenant.
CREATE INDEX delivery_by_id ON holdfast.delivery (id);

-- Ended deliveries are pruned after their retention, oldest first.
CREATE INDEX delivery_ended ON holdfast.delivery (ended_at) WHERE ended_at IS NOT NULL;
