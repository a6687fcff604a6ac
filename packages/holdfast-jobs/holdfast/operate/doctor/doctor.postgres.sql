-- Statements that differ between the two databases.

-- read_settings :many — crosses tenants: the durability settings
-- The defaults of the session: this transaction has its own limits.
SELECT name, reset_val AS setting FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names',
               'idle_in_transaction_session_timeout', 'statement_timeout', 'autovacuum',
               'track_counts')
ORDER BY name;

-- count_connections :many — crosses tenants: used connections and their limits
SELECT 'the server' AS whose, CAST((SELECT sum(numbackends) FROM pg_stat_database) AS bigint) AS used,
       CAST(current_setting('max_connections') AS integer)
       - CAST(current_setting('superuser_reserved_connections') AS integer) AS most
UNION ALL
SELECT 'this database', stat.numbackends, db.datconnlimit
FROM pg_database AS db JOIN pg_stat_database AS stat ON stat.datid = db.oid
WHERE db.datname = current_database() AND db.datconnlimit >= 0
UNION ALL
SELECT 'this role', (SELECT count(*) FROM pg_stat_activity WHERE usename = current_user), rolconnlimit
FROM pg_roles WHERE rolname = current_user AND rolconnlimit >= 0;

-- read_notifications :many — crosses tenants: usage of the notification queue; a full queue blocks commits
SELECT pg_notification_queue_usage() AS used;

-- list_pins :many — crosses tenants: transactions and slots that prevent the removal of dead rows, oldest first
SELECT * FROM (
    SELECT 'session' AS kind,
           'pid ' || pid || coalesce(' of ' || usename, '') || coalesce(', ' || state, '') AS what,
           CAST(EXTRACT(EPOCH FROM clock_timestamp() - xact_start) AS double precision) AS seconds,
           greatest(age(backend_xmin), age(backend_xid)) AS transactions
    FROM pg_stat_activity
    WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()
      AND (datname = current_database() OR backend_type = 'walsender')
      -- Autovacuum's snapshot is short, and PostgreSQL ignores it when it removes rows.
      AND backend_type IS DISTINCT FROM 'autovacuum worker'
    UNION ALL
    SELECT 'prepared', 'prepared transaction ' || gid,
           CAST(EXTRACT(EPOCH FROM clock_timestamp() - prepared) AS double precision),
           age(transaction)
    FROM pg_prepared_xacts WHERE database = current_database()
    UNION ALL
    SELECT 'slot', 'replication slot ' || slot_name || CASE WHEN active THEN '' ELSE ', inactive' END,
           NULL, greatest(age(xmin), age(catalog_xmin))
    FROM pg_replication_slots WHERE xmin IS NOT NULL OR catalog_xmin IS NOT NULL) AS pins
ORDER BY seconds DESC NULLS LAST, transactions DESC
LIMIT :limit;

-- list_idle :many — crosses tenants: sessions of Holdfast that have been idle in a transaction for too long
SELECT pid, CAST(EXTRACT(EPOCH FROM clock_timestamp() - state_change) AS double precision) AS seconds,
       coalesce(host(client_addr), 'this machine') AS client,
       (SELECT count(*) FROM pg_stat_activity AS other
        WHERE session.pid = ANY (pg_blocking_pids(other.pid))) AS waiting
FROM pg_stat_activity AS session
WHERE application_name = 'holdfast' AND datname = current_database()
  AND state IN ('idle in transaction', 'idle in transaction (aborted)')
  AND pid <> pg_backend_pid()
  AND EXTRACT(EPOCH FROM clock_timestamp() - state_change) >= CAST(:seconds AS double precision)
ORDER BY seconds DESC
LIMIT :limit;

-- list_bloat :many — crosses tenants: tables with too many dead rows
SELECT relname AS name, n_live_tup AS live, n_dead_tup AS dead,
       greatest(last_vacuum, last_autovacuum) AS vacuumed_at
FROM pg_stat_user_tables
WHERE schemaname = 'holdfast' AND n_dead_tup >= :dead
  AND n_dead_tup > CAST(:share AS double precision) * n_live_tup
ORDER BY n_dead_tup DESC;

-- list_unvacuumed :many — crosses tenants: tables with autovacuum disabled
SELECT relname AS name FROM pg_class
WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'holdfast')
  AND reloptions && ARRAY['autovacuum_enabled=false', 'autovacuum_enabled=off']
ORDER BY relname;

-- read_wraparound :many — crosses tenants: the age of the oldest unfrozen transaction
SELECT greatest(age(datfrozenxid), mxid_age(datminmxid)) AS transactions
FROM pg_database WHERE datname = current_database();

-- find_file :many — crosses tenants: the location of the database file, and its free space
SELECT '' AS file, 0 AS pages, 0 AS free_pages, 0 AS page_size WHERE FALSE;

-- list_unbound_logins :many — crosses tenants: the engine's own login, if row-level security does not apply to it
SELECT role.rolname AS name
FROM pg_catalog.pg_roles AS role
WHERE role.rolname = session_user AND (role.rolsuper OR role.rolbypassrls);

-- list_refused_tables :many — crosses tenants: tables without grants that caused jobs to fail
SELECT namespace.nspname || '.' || found.relname AS table_name, count(*) AS jobs
FROM holdfast.dead_letter AS letter
JOIN pg_catalog.pg_class AS found
  ON found.relkind IN ('r', 'p', 'v', 'm', 'f')
JOIN pg_catalog.pg_namespace AS namespace
  ON namespace.oid = found.relnamespace
 AND namespace.nspname || '.' || found.relname = {field(letter.sanitized_context, table)}
WHERE letter.error_class = 'CONFIG_INVALID'
  AND letter.state NOT IN ('resolved', 'discarded', 'fixed_forward')
  AND {field(letter.sanitized_context, role)} = 'holdfast_tenant'
  AND EXISTS (
      SELECT FROM unnest(string_to_array({field(letter.sanitized_context, missing)}, '+')) AS word
      WHERE word IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
        AND NOT has_table_privilege('holdfast_tenant', found.oid, word))
GROUP BY namespace.nspname, found.relname
ORDER BY count(*) DESC
LIMIT :limit;

-- list_own_tables :many — crosses tenants: tables of the application, and whether handlers may use them
SELECT namespace.nspname AS schema_name, found.relname AS table_name,
       pg_get_userbyid(found.relowner) AS owner,
       has_schema_privilege('holdfast_tenant', namespace.oid, 'USAGE')
           AND has_any_column_privilege('holdfast_tenant', found.oid, 'SELECT, INSERT, UPDATE')
           AS is_granted,
       found.relrowsecurity AS has_policies
FROM pg_catalog.pg_class AS found
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = found.relnamespace
WHERE found.relkind IN ('r', 'p') AND NOT found.relispartition
  AND left(namespace.nspname, 3) <> 'pg_'
  AND namespace.nspname NOT IN ('holdfast', 'information_schema')
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend AS part
                  WHERE part.classid = CAST('pg_catalog.pg_class' AS regclass)
                    AND part.objid = found.oid AND part.deptype = 'e')
ORDER BY namespace.nspname, found.relname;
