-- Only PostgreSQL has a statement timeout and sessions to look at.

-- bound_reading :one — crosses tenants: a reading that takes too long is given up, and it goes by indexes
SELECT 1 AS bound;

-- read_transactions :one — crosses tenants: the oldest transaction that keeps dead rows from being removed
SELECT NULL AS oldest_seconds, NULL AS hidden;
