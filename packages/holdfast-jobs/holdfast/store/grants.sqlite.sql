-- Only PostgreSQL has roles and privileges.

-- find_denied :many — crosses tenants: tables behind a name that a role was refused, with the rights it lacks
SELECT '' AS schema_name, '' AS table_name, '' AS missing WHERE FALSE;

-- find_schema :maybe — crosses tenants: a schema that a role was refused
SELECT '' AS schema_name WHERE FALSE;

-- find_table :maybe — crosses tenants: a table by the name that an operator typed
SELECT 0 AS oid WHERE FALSE;

-- list_grants :many — crosses tenants: GRANT statements for the privileges that a role lacks on a table
SELECT 0 AS place, '' AS statement WHERE FALSE;
