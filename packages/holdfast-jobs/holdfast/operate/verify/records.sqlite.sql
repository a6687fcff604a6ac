-- SQLite numbers events without gaps, PostgreSQL does not.

-- find_missing_events :many — I48, crosses tenants: SQLite numbers events without gaps; a rollback takes its numbers back
-- PostgreSQL does not take them back, so a gap alone tells nothing there. Nothing of ours deletes an
-- event: a gap tells something once the server has counted deleted rows. Sealed events are I33's.
SELECT '00000000-0000-0000-0000-000000000000' AS org_id, 'audit' AS subject,
       'events were numbered up to ' || numbered.seq || ', and there are '
           || (SELECT count(*) FROM holdfast_job_event) AS detail
FROM sqlite_sequence AS numbered
WHERE numbered.name = 'holdfast_job_event'
  AND numbered.seq <> (SELECT count(*) FROM holdfast_job_event);
