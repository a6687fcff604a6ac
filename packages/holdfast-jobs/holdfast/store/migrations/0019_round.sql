-- The round-robin cursor of a queue over its tenants when its last worker stopped. The next worker
-- continues from it. Starting with the oldest job each time would always serve the largest backlog
-- first and starve the tenants behind it.
CREATE TABLE holdfast.queue_round (
    queue text NOT NULL,
    -- Workers and batch submitters have separate cursors.
    lane text NOT NULL DEFAULT '',
    stands_at {uuid} NOT NULL,
    -- How many more jobs that tenant gets in this turn; 0 ends it.
    turn_left integer NOT NULL DEFAULT 0,
    updated_at {instant} NOT NULL,
    PRIMARY KEY (queue, lane),
    CONSTRAINT queue_round_turn_left CHECK (turn_left >= 0)
);
