-- Which workers live: one row a worker, written when it starts and every few seconds since, removed
-- when it stops. One that is gone without a word is known by seen_at. A lease alone says who works on
-- a job; when one has run out, this says whether its worker is gone. No tenant is named here.
CREATE TABLE holdfast.worker (
    worker_id text NOT NULL PRIMARY KEY,
    state text NOT NULL,
    queues {json} NOT NULL,
    job_types {json} NOT NULL,
    host text NOT NULL,
    process_id integer NOT NULL,
    -- How many connections its process may open at once.
    pool_size integer NOT NULL DEFAULT 0,
    version text NOT NULL,
    lease_ms bigint NOT NULL,
    -- How far the machine's clock was from the store's when it was last compared.
    clock_off_ms bigint,
    -- The longest claim so far, from its beginning to its end.
    longest_ms bigint NOT NULL,
    longest_type text,
    -- When it last recorded an outcome; how many wait to be recorded, and for how long the oldest.
    settled_at {instant},
    unsettled integer NOT NULL DEFAULT 0,
    unsettled_ms integer NOT NULL DEFAULT 0,
    started_at {instant} NOT NULL,
    seen_at {instant} NOT NULL,
    CONSTRAINT worker_state_known CHECK (state IN ('working', 'draining'))
);
