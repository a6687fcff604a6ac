-- Only PostgreSQL has logins.

-- bind_transaction :affected prepared — crosses tenants: bind a handler's transaction to a tenant, by the engine
SELECT :xid, :org_id, :secret WHERE FALSE;

-- read_login :one — crosses tenants: the privileges of a login for handlers
SELECT '' AS name, FALSE AS is_handler, NULL AS climbs_to, NULL AS owns;
