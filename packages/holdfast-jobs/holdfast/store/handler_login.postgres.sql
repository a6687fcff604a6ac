-- Only PostgreSQL has logins.

-- bind_transaction :affected prepared — crosses tenants: bind a handler's transaction to a tenant, by the engine
-- Also deletes at most a hundred bindings of ended transactions.
WITH ended AS (
    DELETE FROM holdfast.handler_transaction AS bound
    USING (SELECT org_id, xid FROM holdfast.handler_transaction
           WHERE xid < {oldest_running}
           LIMIT 100
           FOR UPDATE SKIP LOCKED) AS over
    WHERE bound.org_id = over.org_id AND bound.xid = over.xid
)
INSERT INTO holdfast.handler_transaction AS bound (org_id, xid, secret_hash)
VALUES (CAST(:org_id AS uuid), CAST(:xid AS bigint),
        sha256(convert_to(CAST(:secret AS text), 'UTF8')))
ON CONFLICT (org_id, xid) DO UPDATE
SET secret_hash = excluded.secret_hash, server_started_at = excluded.server_started_at;

-- read_login :one — crosses tenants: the privileges of a login for handlers
SELECT session_user AS name,
       EXISTS (
           SELECT FROM pg_catalog.pg_roles AS role
           WHERE role.rolname = 'holdfast_handler'
             AND pg_has_role(session_user, role.oid, 'USAGE')) AS is_handler,
       (SELECT string_agg(more.what, ', ') FROM (
            SELECT CASE WHEN role.rolsuper THEN 'a superuser, '
                        WHEN role.rolbypassrls THEN 'BYPASSRLS, '
                        WHEN role.rolcreaterole THEN 'CREATEROLE, '
                        WHEN role.rolreplication THEN 'REPLICATION, ' ELSE '' END
                   || 'role ' || role.rolname AS what
            FROM pg_catalog.pg_roles AS role
            WHERE pg_has_role(session_user, role.oid, 'MEMBER')
              AND (role.rolsuper OR role.rolbypassrls OR role.rolcreaterole OR role.rolreplication
                   OR role.rolname IN (
                       'holdfast_engine', 'pg_execute_server_program', 'pg_read_server_files',
                       'pg_write_server_files', 'pg_write_all_data', 'pg_read_all_data'))
            ORDER BY role.rolname <> session_user, role.rolname LIMIT 3) AS more) AS climbs_to,
       (SELECT string_agg(owned.relname, ', ') FROM (
            SELECT relation.relname FROM pg_catalog.pg_class AS relation
            JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = relation.relnamespace
            WHERE namespace.nspname = 'holdfast'
              AND pg_has_role(session_user, relation.relowner, 'MEMBER')
            ORDER BY relation.relname LIMIT 3) AS owned) AS owns;
