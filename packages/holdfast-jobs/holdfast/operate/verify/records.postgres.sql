-- SQLite numbers events without gaps, PostgreSQL does not.

-- find_missing_events :many — I48, crosses tenants: a gap in the numbers of events
-- PostgreSQL does not reuse the numbers of a rolled back transaction, so a gap alone is not
-- evidence. The extension "seal" checks the numbers above the newest seal.
SELECT CAST(NULL AS uuid) AS org_id, 'audit' AS subject, '' AS detail WHERE FALSE;
