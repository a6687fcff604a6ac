-- Only PostgreSQL has a statement timeout and visible sessions.

-- bound_reading :one — crosses tenants: limit the time of a reading, and force index scans
-- If it expects fewer rows than the limit, PostgreSQL would scan and sort the whole table once per
-- queue, and spend longer on compilation than on execution. This applies until the end of the
-- transaction.
SELECT set_config('statement_timeout', '5s', true),
       set_config('enable_sort', 'off', true), set_config('jit', 'off', true);

-- read_transactions :one — crosses tenants: the oldest transaction that prevents the removal of dead rows
-- Measured with the database's clock. The age of another role's session is visible only to members
-- of pg_read_all_stats: those sessions are counted, not measured. A session without a user is
-- internal, such as a vacuum, and holds nothing back.
SELECT
       CAST(EXTRACT(EPOCH FROM clock_timestamp() - least(
           min(session.xact_start),
           (SELECT min(waiting.prepared) FROM pg_prepared_xacts AS waiting
            WHERE waiting.database = current_database()))) AS double precision) AS oldest_seconds,
       count(*) - count(session.xact_start) AS hidden
FROM pg_stat_activity AS session
WHERE session.datname = current_database() AND session.pid <> pg_backend_pid()
  AND session.usesysid IS NOT NULL
  AND (session.backend_xmin IS NOT NULL OR session.backend_xid IS NOT NULL);
