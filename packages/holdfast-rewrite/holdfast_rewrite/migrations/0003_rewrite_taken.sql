-- Until when a run has an unfinished request to itself: two that overlap would have the same message
-- classified, and paid for, twice.
ALTER TABLE holdfast.rewrite_request ADD COLUMN taken_until {instant};
