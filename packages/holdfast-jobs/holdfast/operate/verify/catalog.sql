-- The catalog of Holdfast's tables, for I30 and I38. It is small, and contains no rows of tenants.
-- If a feature does not exist in a database, its statement returns no rows.

-- list_migrations :many — crosses tenants: the applied migrations
SELECT component, version, name FROM holdfast.migration ORDER BY component, version;
