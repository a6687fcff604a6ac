-- Only PostgreSQL has a statement timeout and sessions to look at.

-- bound_reading :one — crosses tenants: a reading that takes too long is given up, and it goes by indexes
-- Where it expects fewer rows than the bound, PostgreSQL would read the whole table and sort, once a
-- queue, and compile for longer than it runs. This holds until the end of the transaction.
SELECT set_config('statement_timeout', '5s', true),
       set_config('enable_sort', 'off', true), set_config('jit', 'off', true);

-- read_transactions :one — crosses tenants: the oldest transaction that keeps dead rows from being removed
-- By the database's own clock, because its own clock began them. Of a session of another role only
-- a member of pg_read_all_stats sees the age: those are counted, not measured. A session without a
-- user is the database's own, such as a vacuum, which holds nothing back.
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
