-- The running workers: one row per worker, written at its start and every few seconds, removed when
-- it stops. A stale seen_at shows that a worker crashed. A lease only names the worker of a job;
-- when it has expired, this table shows whether that worker is gone. No tenant is named here.
CREATE TABLE holdfast.worker (
    worker_id text NOT NULL PRIMARY KEY,
    state text NOT NULL,
    queues {json} NOT NULL,
    job_types {json} NOT NULL,
    host text NOT NULL,
    process_id integer NOT NULL,
    -- Maximum number of connections of its process.
    pool_size integer NOT NULL DEFAULT 0,
    version text NOT NULL,
    lease_ms bigint NOT NULL,
    -- Offset of the machine's clock from the store's at the last comparison.
    clock_off_ms bigint,
    -- The longest claim so far, from start to end.
    longest_ms bigint NOT NULL,
    longest_type text,
    -- When it last recorded an outcome; how many are unrecorded, and the age of the oldest.
    settled_at {instant},
    unsettled integer NOT NULL DEFAULT 0,
    unsettled_ms integer NOT NULL DEFAULT 0,
    started_at {instant} NOT NULL,
    seen_at {instant} NOT NULL,
    CONSTRAINT worker_state_known CHECK (state IN ('working', 'draining'))
);
