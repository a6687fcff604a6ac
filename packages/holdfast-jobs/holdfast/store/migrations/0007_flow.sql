-- Order and limits: the rules of queues, tenants and keys.

-- Rules declared in code have set_by 'code' and follow the code; an operator's change stays until
-- it is reset.
CREATE TABLE holdfast.queue (
    name text NOT NULL PRIMARY KEY,
    weight integer NOT NULL DEFAULT 1,
    max_running integer,
    max_running_per_tenant integer,
    max_depth integer,
    max_depth_per_tenant integer,
    small_depth integer,
    rate_count integer,
    rate_seconds integer,
    tokens double precision NOT NULL DEFAULT 0,
    refilled_at {instant},
    paused_at {instant},
    paused_by text,
    pause_reason text,
    set_by text NOT NULL DEFAULT 'code',
    updated_at {instant} NOT NULL,
    CONSTRAINT queue_weight_in_range CHECK (weight BETWEEN 1 AND 100),
    CONSTRAINT queue_caps_positive CHECK (
        (max_running IS NULL OR max_running > 0)
        AND (max_running_per_tenant IS NULL OR max_running_per_tenant > 0)
        AND (max_depth IS NULL OR max_depth > 0)
        AND (max_depth_per_tenant IS NULL OR max_depth_per_tenant > 0)
        AND (small_depth IS NULL OR small_depth > 0)),
    CONSTRAINT queue_rate_whole CHECK (
        (rate_count IS NULL) = (rate_seconds IS NULL)
        AND (rate_count IS NULL OR (rate_count > 0 AND rate_seconds > 0))),
    CONSTRAINT queue_paused_says_why CHECK (
        (paused_at IS NULL) = (paused_by IS NULL) AND (paused_at IS NULL) = (pause_reason IS NULL)),
    CONSTRAINT queue_set_by_known CHECK (set_by IN ('code', 'operator'))
);

CREATE TABLE holdfast.tenant (
    org_id {uuid} NOT NULL PRIMARY KEY,
    weight integer NOT NULL DEFAULT 1,
    max_running integer,
    set_by text NOT NULL DEFAULT 'code',
    updated_at {instant} NOT NULL,
    CONSTRAINT tenant_weight_in_range CHECK (weight BETWEEN 1 AND 10),
    CONSTRAINT tenant_cap_positive CHECK (max_running IS NULL OR max_running > 0),
    CONSTRAINT tenant_set_by_known CHECK (set_by IN ('code', 'operator'))
);

CREATE TABLE holdfast.limit_key (
    name text NOT NULL PRIMARY KEY,
    max_running integer,
    rate_count integer,
    rate_seconds integer,
    tokens double precision NOT NULL DEFAULT 0,
    refilled_at {instant},
    set_by text NOT NULL DEFAULT 'code',
    updated_at {instant} NOT NULL,
    CONSTRAINT limit_key_cap_positive CHECK (max_running IS NULL OR max_running > 0),
    CONSTRAINT limit_key_rate_whole CHECK (
        (rate_count IS NULL) = (rate_seconds IS NULL)
        AND (rate_count IS NULL OR (rate_count > 0 AND rate_seconds > 0))),
    CONSTRAINT limit_key_set_by_known CHECK (set_by IN ('code', 'operator'))
);

-- Incremented with every change of a rule. A claim names the revision that it is based on, so a
-- worker with outdated rules claims nothing.
CREATE TABLE holdfast.flow (
    only_row integer NOT NULL PRIMARY KEY CHECK (only_row = 1),
    revision bigint NOT NULL
);
INSERT INTO holdfast.flow VALUES (1, 1);

INSERT INTO holdfast.queue (name, weight, small_depth, updated_at) VALUES
    ('q:critical', 8, 100, '2000-01-01T00:00:00.000Z'),
    ('q:default', 4, NULL, '2000-01-01T00:00:00.000Z'),
    ('q:notifications', 4, NULL, '2000-01-01T00:00:00.000Z'),
    ('q:planning', 2, NULL, '2000-01-01T00:00:00.000Z'),
    ('q:exports', 2, NULL, '2000-01-01T00:00:00.000Z');
-- Maintenance jobs are bounded and rate-limited by default.
INSERT INTO holdfast.queue (name, weight, max_running, rate_count, rate_seconds, tokens, updated_at)
VALUES ('q:maintenance', 1, 4, 240, 60, 240, '2000-01-01T00:00:00.000Z');
