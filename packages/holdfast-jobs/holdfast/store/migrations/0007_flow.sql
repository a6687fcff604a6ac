-- Order and limits: the rules of queues, tenants and keys, and the backlogs of waiting jobs.

-- A job waits in the backlog of its queue, key and tenant, ordered by its turn: its own id, shifted
-- by its priority. The static order prevents starvation: an urgent job overtakes only jobs that
-- were enqueued within the time that its priority is worth.
ALTER TABLE holdfast.job ADD COLUMN turn {uuid};
ALTER TABLE holdfast.job ADD COLUMN limit_key text NOT NULL DEFAULT '';
UPDATE holdfast.job SET turn = id;

{refuse job_has_its_turn BEFORE INSERT ON holdfast.job
WHEN NEW.turn IS NULL
SAYING 'a job must be inserted with its queue position'};

{refuse job_lane_write_once BEFORE UPDATE OF turn, limit_key ON holdfast.job
WHEN NEW.turn IS DISTINCT FROM OLD.turn OR NEW.limit_key <> OLD.limit_key
SAYING 'the queue position and the limit key of a job are immutable'};

-- The backlogs hold only jobs that can be claimed at once, so a claim does not scan deferred jobs.
-- A deferred job is promoted when it is due.
DROP INDEX holdfast.job_claimable;
CREATE INDEX job_lane ON holdfast.job (queue, limit_key, org_id, turn)
    WHERE state = 'queued' AND not_before_at IS NULL;
-- The same rows with a differently written condition: before its first ANALYZE, PostgreSQL rates
-- two indexes with one condition as equal, and would sort a whole queue to find the first job of a
-- backlog.
CREATE INDEX job_oldest ON holdfast.job (queue, created_at, id)
    WHERE finished_at IS NULL AND claimed_at IS NULL AND not_before_at IS NULL
        AND state <> 'batch_submitted';
CREATE INDEX job_deferred_of_tenant ON holdfast.job (queue, org_id, not_before_at)
    WHERE finished_at IS NULL AND claimed_at IS NULL AND not_before_at IS NOT NULL
        AND state <> 'batch_submitted';

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

-- Jobs that a worker can claim now, in the order of job_lane.
CREATE VIEW holdfast.claimable AS
SELECT queue, limit_key, org_id, turn FROM holdfast.job
WHERE state = 'queued' AND not_before_at IS NULL;
