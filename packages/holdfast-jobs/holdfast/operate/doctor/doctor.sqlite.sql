-- Statements that differ between the two databases.

-- read_settings :many — crosses tenants: the durability settings
SELECT 'journal_mode' AS name, journal_mode AS setting FROM pragma_journal_mode
UNION ALL SELECT 'synchronous', synchronous FROM pragma_synchronous
UNION ALL SELECT 'busy_timeout', timeout FROM pragma_busy_timeout
UNION ALL SELECT 'sqlite_version', sqlite_version();

-- count_connections :many — crosses tenants: used connections and their limits
SELECT 'the file' AS whose, 0 AS used, 0 AS most WHERE FALSE;

-- read_notifications :many — crosses tenants: usage of the notification queue; a full queue blocks commits
SELECT 0.0 AS used WHERE FALSE;

-- list_pins :many — crosses tenants: transactions and slots that prevent the removal of dead rows, oldest first
SELECT '' AS kind, '' AS what, 0.0 AS seconds, 0 AS transactions WHERE FALSE;

-- list_idle :many — crosses tenants: sessions of Holdfast that have been idle in a transaction for too long
SELECT 0 AS pid, 0.0 AS seconds, '' AS client, 0 AS waiting WHERE FALSE;

-- list_bloat :many — crosses tenants: tables with too many dead rows
SELECT '' AS name, 0 AS live, 0 AS dead, NULL AS vacuumed_at WHERE FALSE;

-- list_unvacuumed :many — crosses tenants: tables with autovacuum disabled
SELECT '' AS name WHERE FALSE;

-- read_wraparound :many — crosses tenants: the age of the oldest unfrozen transaction
SELECT 0 AS transactions WHERE FALSE;

-- find_file :many — crosses tenants: the location of the database file, and its free space
SELECT main.file, pages.page_count AS pages, free.freelist_count AS free_pages, size.page_size
FROM pragma_database_list AS main, pragma_page_count AS pages, pragma_freelist_count AS free,
     pragma_page_size AS size
WHERE main.name = 'main';

-- list_unbound_logins :many — crosses tenants: the engine's own login, if row-level security does not apply to it
SELECT '' AS name WHERE FALSE;

-- list_refused_tables :many — crosses tenants: tables without grants that caused jobs to fail
SELECT '' AS table_name, 0 AS jobs WHERE FALSE;

-- list_own_tables :many — crosses tenants: tables of the application, and whether handlers may use them
SELECT '' AS schema_name, '' AS table_name, '' AS owner, FALSE AS is_granted, FALSE AS has_policies
WHERE FALSE;
