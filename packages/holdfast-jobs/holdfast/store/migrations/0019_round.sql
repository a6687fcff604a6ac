-- Where the round of a queue over its tenants stood when its last worker ended: the next one goes on
-- from there. A round that began with the oldest job each time would come to the flood first, and to
-- those behind it never.
CREATE TABLE holdfast.queue_round (
    queue text NOT NULL,
    -- What a worker runs and what a submitter sends in batches go round by themselves.
    lane text NOT NULL DEFAULT '',
    stands_at {uuid} NOT NULL,
    -- How many jobs the turn of that tenant still has; with none, it is over.
    turn_left integer NOT NULL DEFAULT 0,
    updated_at {instant} NOT NULL,
    PRIMARY KEY (queue, lane),
    CONSTRAINT queue_round_turn_left CHECK (turn_left >= 0)
);
