-- What the database says of itself differs altogether between the two.

-- read_settings :many — crosses tenants: what decides whether an acknowledged commit stays
SELECT 'journal_mode' AS name, journal_mode AS setting FROM pragma_journal_mode
UNION ALL SELECT 'synchronous', synchronous FROM pragma_synchronous
UNION ALL SELECT 'busy_timeout', timeout FROM pragma_busy_timeout
UNION ALL SELECT 'sqlite_version', sqlite_version();

-- count_connections :many — crosses tenants: how many of the connections that there may be are in use
SELECT 'the file' AS whose, 0 AS used, 0 AS most WHERE FALSE;

-- read_notifications :many — crosses tenants: how full the queue of notifications is; full, it stops commits
SELECT 0.0 AS used WHERE FALSE;

-- list_pins :many — crosses tenants: what keeps dead rows from being removed, the oldest first
SELECT '' AS kind, '' AS what, 0.0 AS seconds, 0 AS transactions WHERE FALSE;

-- list_idle :many — crosses tenants: sessions of Holdfast in a transaction that has stood still for so long
SELECT 0 AS pid, 0.0 AS seconds, '' AS client, 0 AS waiting WHERE FALSE;

-- list_bloat :many — crosses tenants: tables with more dead rows than they should have
SELECT '' AS name, 0 AS live, 0 AS dead, NULL AS vacuumed_at WHERE FALSE;

-- list_unvacuumed :many — crosses tenants: tables that autovacuum was told to leave alone
SELECT '' AS name WHERE FALSE;

-- read_wraparound :many — crosses tenants: how many transactions ago everything was frozen
SELECT 0 AS transactions WHERE FALSE;

-- find_file :many — crosses tenants: where the database lies, and how much of it is free
SELECT main.file, pages.page_count AS pages, free.freelist_count AS free_pages, size.page_size
FROM pragma_database_list AS main, pragma_page_count AS pages, pragma_freelist_count AS free,
     pragma_page_size AS size
WHERE main.name = 'main';

-- list_unbound_logins :many — crosses tenants: the engine's own login, if row-level security does not apply to it
SELECT '' AS name WHERE FALSE;

-- list_refused_tables :many — crosses tenants: tables that jobs died of, because handlers may not use them
SELECT '' AS table_name, 0 AS jobs WHERE FALSE;

-- list_own_tables :many — crosses tenants: tables of the application, and whether handlers may use them
SELECT '' AS schema_name, '' AS table_name, '' AS owner, FALSE AS is_granted, FALSE AS has_policies
WHERE FALSE;
