-- Each database describes its schema in a different catalog.

-- list_tables :many — crosses tenants: Holdfast's tables, and the isolation of those with a tenant
SELECT relation.relname AS name,
       owner.attname IS NOT NULL AS has_tenant,
       coalesce(owner.attnotnull, FALSE) AS names_tenant,
       relation.relrowsecurity AND relation.relforcerowsecurity AS is_guarded,
       TRUE AS has_policies
FROM pg_catalog.pg_class AS relation
LEFT JOIN pg_catalog.pg_attribute AS owner
  ON owner.attrelid = relation.oid AND owner.attname = 'org_id' AND NOT owner.attisdropped
WHERE relation.relnamespace = CAST('holdfast' AS regnamespace) AND relation.relkind IN ('r', 'p')
ORDER BY relation.relname;

-- list_policies :many — crosses tenants: the row-level security policies
SELECT tablename AS table_name, policyname AS name, permissive,
       array_to_string(roles, ' ') AS roles, qual, with_check
FROM pg_catalog.pg_policies
WHERE schemaname = 'holdfast'
ORDER BY tablename, policyname;

-- list_rights :many — crosses tenants: privileges of tenants that no policy restricts
SELECT role.rolname AS role, relation.relname AS table_name, asked.word AS word
FROM pg_catalog.pg_roles AS role
CROSS JOIN pg_catalog.pg_class AS relation
CROSS JOIN (VALUES ('TRUNCATE'), ('REFERENCES'), ('TRIGGER')) AS asked (word)
WHERE role.rolname IN ('holdfast_tenant', 'holdfast_auditor')
  AND relation.relnamespace = CAST('holdfast' AS regnamespace)
  AND relation.relkind IN ('r', 'p', 'v')
  AND has_table_privilege(role.oid, relation.oid, asked.word)
UNION ALL
SELECT role.rolname, '', CASE WHEN role.rolsuper THEN 'SUPERUSER' ELSE 'BYPASSRLS' END
FROM pg_catalog.pg_roles AS role
WHERE role.rolname IN ('holdfast_tenant', 'holdfast_auditor', 'holdfast_engine')
  AND (role.rolsuper OR role.rolbypassrls)
ORDER BY 1, 2, 3;

-- list_unique :many — crosses tenants: unique indexes of tables with a tenant, and their first column
SELECT relation.relname AS table_name, made.relname AS name, coalesce(first.attname, '') AS leads
FROM pg_catalog.pg_index AS index
JOIN pg_catalog.pg_class AS relation ON relation.oid = index.indrelid
JOIN pg_catalog.pg_class AS made ON made.oid = index.indexrelid
JOIN pg_catalog.pg_attribute AS owner
  ON owner.attrelid = relation.oid AND owner.attname = 'org_id' AND NOT owner.attisdropped
LEFT JOIN pg_catalog.pg_attribute AS first
  ON first.attrelid = relation.oid AND first.attnum = index.indkey[0]
WHERE relation.relnamespace = CAST('holdfast' AS regnamespace) AND index.indisunique
ORDER BY relation.relname, made.relname;

-- list_views :many — crosses tenants: views, and whether they use the caller's privileges
SELECT view.relname AS name,
       coalesce('security_invoker=true' = ANY (view.reloptions), FALSE) AS is_invoker
FROM pg_catalog.pg_class AS view
WHERE view.relnamespace = CAST('holdfast' AS regnamespace) AND view.relkind = 'v'
ORDER BY view.relname;

-- list_functions :many — crosses tenants: functions, and whether SECURITY DEFINER ones fix their search path
SELECT made.proname AS name,
       NOT made.prosecdef OR EXISTS (
           SELECT FROM unnest(made.proconfig) AS setting (word)
           WHERE starts_with(setting.word, 'search_path=pg_catalog')) AS is_confined
FROM pg_catalog.pg_proc AS made
WHERE made.pronamespace = CAST('holdfast' AS regnamespace)
ORDER BY made.proname;

-- list_triggers :many — crosses tenants: the triggers that enforce rules, and whether they are enabled
SELECT made.tgname AS name, made.tgenabled IN ('O', 'A') AS is_on
FROM pg_catalog.pg_trigger AS made
JOIN pg_catalog.pg_class AS relation ON relation.oid = made.tgrelid
WHERE relation.relnamespace = CAST('holdfast' AS regnamespace) AND NOT made.tgisinternal
ORDER BY made.tgname;

-- list_indexes :many — crosses tenants: the indexes, and whether they are valid
SELECT made.relname AS name, index.indisvalid AND index.indisready AS is_sound
FROM pg_catalog.pg_index AS index
JOIN pg_catalog.pg_class AS made ON made.oid = index.indexrelid
WHERE made.relnamespace = CAST('holdfast' AS regnamespace)
ORDER BY made.relname;

-- list_constraints :many — crosses tenants: the constraints, by name or in the text of their table
SELECT conname AS name, convalidated AS is_sound, '' AS made_by
FROM pg_catalog.pg_constraint
WHERE connamespace = CAST('holdfast' AS regnamespace)
ORDER BY conname;

-- list_damage :many — crosses tenants: corruption that the database finds in its own pages and keys
-- Violated constraints are left to the other checks, which name the row.
SELECT NULL AS subject, NULL AS detail WHERE FALSE;
