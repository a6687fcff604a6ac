-- Only PostgreSQL has logins.

-- bind_transaction :affected prepared — crosses tenants: the tenant of a handler's transaction; the engine decides it
SELECT :xid, :org_id, :secret WHERE FALSE;

-- read_login :one — crosses tenants: what a login of handlers may do
SELECT '' AS name, FALSE AS is_handler, NULL AS climbs_to, NULL AS owns;
