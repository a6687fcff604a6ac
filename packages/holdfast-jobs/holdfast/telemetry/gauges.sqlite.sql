-- Only PostgreSQL has a statement timeout and visible sessions.

-- bound_reading :one — crosses tenants: limit the time of a reading, and force index scans
SELECT 1 AS bound;

-- read_transactions :one — crosses tenants: the oldest transaction that prevents the removal of dead rows
SELECT NULL AS oldest_seconds, NULL AS hidden;
