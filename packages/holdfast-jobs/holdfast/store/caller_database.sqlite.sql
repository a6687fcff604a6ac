-- identify :one — crosses tenants: the file of this connection; empty for a database in memory
SELECT file AS name, 0 AS can_tell FROM pragma_database_list WHERE name = 'main';

-- find_server :one — crosses tenants: a file has no server
SELECT '' AS server;

-- has_tables :one — crosses tenants: whether the tables of Holdfast exist
SELECT count(*) AS found FROM sqlite_master WHERE name = 'holdfast_migration';

-- list_versions :many — crosses tenants: the version of each component
SELECT component, max(version) AS version FROM holdfast_migration GROUP BY component;
