-- What the database itself says of our tables, for I30 and I38. It is small, and holds no row of
-- anybody's. Where a database has no such thing, it has none of it to tell.

-- list_migrations :many — crosses tenants: what was applied
SELECT component, version, name FROM holdfast.migration ORDER BY component, version;
