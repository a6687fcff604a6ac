-- Who goes first, and how much at once: the rules of queues, tenants and keys, and the lanes in
-- which jobs wait.

-- A job waits in the lane of its queue, key and tenant, in the order of its turn: its own id, moved
-- by its priority. A static order ages by itself: what is more urgent overtakes only what was
-- enqueued within the span that its priority is worth.
ALTER TABLE holdfast.job ADD COLUMN turn {uuid};
ALTER TABLE holdfast.job ADD COLUMN limit_key text NOT NULL DEFAULT '';
UPDATE holdfast.job SET turn = id;

{refuse job_has_its_turn BEFORE INSERT ON holdfast.job
WHEN NEW.turn IS NULL
SAYING 'a job has its turn from the start'};

{refuse job_lane_write_once BEFORE UPDATE OF turn, limit_key ON holdfast.job
WHEN NEW.turn IS DISTINCT FROM OLD.turn OR NEW.limit_key <> OLD.limit_key
SAYING 'a job stays in its lane and keeps its turn'};

-- Only what can be claimed at once is in the lanes: a job deferred to next week never stands
-- between a worker and today's, and a job that waits for its time is moved in when that comes.
DROP INDEX holdfast.job_claimable;
CREATE INDEX job_lane ON holdfast.job (queue, limit_key, org_id, turn)
    WHERE state = 'queued' AND not_before_at IS NULL;
-- The same rows in other words: before its first ANALYZE PostgreSQL finds two indexes of one
-- condition equally good, and would sort a whole queue to find a lane's first job.
CREATE INDEX job_oldest ON holdfast.job (queue, created_at, id)
    WHERE finished_at IS NULL AND claimed_at IS NULL AND not_before_at IS NULL
        AND state <> 'batch_submitted';
CREATE INDEX job_deferred_of_tenant ON holdfast.job (queue, org_id, not_before_at)
    WHERE finished_at IS NULL AND claimed_at IS NULL AND not_before_at IS NOT NULL
        AND state <> 'batch_submitted';

-- What was declared in code carries set_by 'code' and follows the code; what an operator changed
-- stays until it is reset.
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

-- Raised with every change of a rule. A claim names the revision it was made under, so a worker
-- that has not heard of a pause or a cap claims nothing.
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
-- Housekeeping is bounded and rate-limited from the start.
INSERT INTO holdfast.queue (name, weight, max_running, rate_count, rate_seconds, tokens, updated_at)
VALUES ('q:maintenance', 1, 4, 240, 60, 240, '2000-01-01T00:00:00.000Z');

-- What a worker could take now, in the order of job_lane.
CREATE VIEW holdfast.claimable AS
SELECT queue, limit_key, org_id, turn FROM holdfast.job
WHERE state = 'queued' AND not_before_at IS NULL;
