-- Endpoints that get the changes of a tenant. A secret signs messages, so it cannot be stored as a
-- hash; the tenant role has no access to this table.
CREATE TABLE holdfast.webhook_endpoint (
    org_id {uuid} NOT NULL,
    id {uuid} NOT NULL,
    url text NOT NULL,
    -- Names of events, or their beginnings followed by *; an empty list means all.
    events {json} NOT NULL,
    secret text NOT NULL,
    -- The secret before the last rotation, which signs as well until its time.
    previous_secret text,
    previous_until {instant},
    -- Changes up to this position of the feed are not for this endpoint.
    after_position text NOT NULL,
    paused_at {instant},
    created_by text NOT NULL,
    created_at {instant} NOT NULL,
    updated_at {instant} NOT NULL,
    PRIMARY KEY (org_id, id),
    CONSTRAINT webhook_endpoint_overlap_ends CHECK (
        (previous_secret IS NULL) = (previous_until IS NULL))
);

-- The position of the feed up to which deliveries have been stored, and the ids that were absent.
CREATE TABLE holdfast.webhook_cursor (
    only_row integer NOT NULL PRIMARY KEY CHECK (only_row = 1),
    top bigint NOT NULL,
    gaps text NOT NULL
);
INSERT INTO holdfast.webhook_cursor VALUES (1, 0, '[]');
