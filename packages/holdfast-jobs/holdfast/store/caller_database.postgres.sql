-- identify :one — crosses tenants: the database of this connection, and whether its role may ask for the server
SELECT current_database() AS name,
       CASE WHEN has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')
            THEN 1 ELSE 0 END AS can_tell;

-- find_server :one — crosses tenants: the identity of the server, which a restart and a failover keep
SELECT CAST(system_identifier AS text) AS server FROM pg_catalog.pg_control_system();

-- has_tables :one — crosses tenants: whether the tables of Holdfast exist
SELECT CASE WHEN to_regclass('holdfast.migration') IS NULL THEN 0 ELSE 1 END AS found;

-- list_versions :many — crosses tenants: the version of each component
SELECT component, max(version) AS version FROM holdfast.migration GROUP BY component;
