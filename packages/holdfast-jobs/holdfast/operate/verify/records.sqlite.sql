-- SQLite numbers events without gaps, PostgreSQL does not.

-- find_missing_events :many — I48, crosses tenants: a gap in the numbers of events
-- SQLite reuses the numbers of a rolled back transaction.
SELECT '00000000-0000-0000-0000-000000000000' AS org_id, 'audit' AS subject,
       'events were numbered up to ' || numbered.seq || ', and there are '
           || (SELECT coalesce(sum(events), 0) FROM holdfast_audit_event) AS detail
FROM sqlite_sequence AS numbered
WHERE numbered.name = 'holdfast_audit_event'
  AND numbered.seq <> (SELECT coalesce(sum(events), 0) FROM holdfast_audit_event);
