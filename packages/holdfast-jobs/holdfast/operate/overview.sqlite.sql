-- Only PostgreSQL has a statement timeout.

-- bound_reading :one — crosses tenants: limit the time of a reading, and force index scans
SELECT 1 AS bound;
