-- What the database itself says of our tables, for I30 and I38. It is small, and holds no row of
-- anybody's. Where a database has no such thing, it has none of it to tell.

-- list_tables :many — crosses tenants: our tables, and how those with a tenant are kept apart
{only postgres}
SELECT relation.relname AS name,
       owner.attname IS NOT NULL AS has_tenant,
       coalesce(owner.attnotnull, FALSE) AS names_tenant,
       relation.relrowsecurity AND relation.relforcerowsecurity AS is_guarded,
       TRUE AS has_policies
FROM pg_catalog.pg_class AS relation
LEFT JOIN pg_catalog.pg_attribute AS owner
  ON owner.attrelid = relation.oid AND owner.attname = 'org_id' AND NOT owner.attisdropped
WHERE relation.relnamespace = CAST('holdfast' AS regnamespace) AND relation.relkind IN ('r', 'p')
ORDER BY relation.relname
{end}{only sqlite}
SELECT substr(made.name, 10) AS name, owner.name IS NOT NULL AS has_tenant,
       coalesce(owner."notnull", 0) AS names_tenant, 1 AS is_guarded, 0 AS has_policies
FROM sqlite_master AS made
LEFT JOIN pragma_table_info(made.name) AS owner ON owner.name = 'org_id'
WHERE made.type = 'table' AND substr(made.name, 1, 9) = 'holdfast_'
ORDER BY made.name
{end};

-- list_policies :many — crosses tenants: who sees which rows
{only postgres}
SELECT tablename AS table_name, policyname AS name, permissive,
       array_to_string(roles, ' ') AS roles, qual, with_check
FROM pg_catalog.pg_policies
WHERE schemaname = 'holdfast'
ORDER BY tablename, policyname
{end}{only sqlite}
SELECT NULL AS table_name, NULL AS name, NULL AS permissive, NULL AS roles, NULL AS qual,
       NULL AS with_check
WHERE FALSE
{end};

-- list_rights :many — crosses tenants: what tenants may do that no policy would stop
{only postgres}
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
ORDER BY 1, 2, 3
{end}{only sqlite}
SELECT NULL AS role, NULL AS table_name, NULL AS word WHERE FALSE
{end};

-- list_unique :many — crosses tenants: unique indexes of tables with a tenant, and what leads each
{only postgres}
SELECT relation.relname AS table_name, made.relname AS name, coalesce(first.attname, '') AS leads
FROM pg_catalog.pg_index AS index
JOIN pg_catalog.pg_class AS relation ON relation.oid = index.indrelid
JOIN pg_catalog.pg_class AS made ON made.oid = index.indexrelid
JOIN pg_catalog.pg_attribute AS owner
  ON owner.attrelid = relation.oid AND owner.attname = 'org_id' AND NOT owner.attisdropped
LEFT JOIN pg_catalog.pg_attribute AS first
  ON first.attrelid = relation.oid AND first.attnum = index.indkey[0]
WHERE relation.relnamespace = CAST('holdfast' AS regnamespace) AND index.indisunique
ORDER BY relation.relname, made.relname
{end}{only sqlite}
SELECT substr(made.name, 10) AS table_name, found.name AS name, coalesce(first.name, '') AS leads
FROM sqlite_master AS made
JOIN pragma_table_info(made.name) AS owner ON owner.name = 'org_id'
JOIN pragma_index_list(made.name) AS found ON found."unique" = 1
JOIN pragma_index_info(found.name) AS first ON first.seqno = 0
WHERE made.type = 'table' AND substr(made.name, 1, 9) = 'holdfast_'
ORDER BY made.name, found.name
{end};

-- list_views :many — crosses tenants: views, and whether they see with the eyes of who asks
{only postgres}
SELECT view.relname AS name,
       coalesce('security_invoker=true' = ANY (view.reloptions), FALSE) AS is_invoker
FROM pg_catalog.pg_class AS view
WHERE view.relnamespace = CAST('holdfast' AS regnamespace) AND view.relkind = 'v'
ORDER BY view.relname
{end}{only sqlite}
SELECT substr(name, 10) AS name, 1 AS is_invoker FROM sqlite_master
WHERE type = 'view' AND substr(name, 1, 9) = 'holdfast_'
ORDER BY name
{end};

-- list_functions :many — crosses tenants: functions, and whether those with the owner's rights look only where they should
{only postgres}
SELECT made.proname AS name,
       NOT made.prosecdef OR EXISTS (
           SELECT FROM unnest(made.proconfig) AS setting (word)
           WHERE starts_with(setting.word, 'search_path=pg_catalog')) AS is_confined
FROM pg_catalog.pg_proc AS made
WHERE made.pronamespace = CAST('holdfast' AS regnamespace)
ORDER BY made.proname
{end}{only sqlite}
SELECT NULL AS name, NULL AS is_confined WHERE FALSE
{end};

-- list_triggers :many — crosses tenants: the triggers that hold the contract, and whether they fire
{only postgres}
SELECT made.tgname AS name, made.tgenabled IN ('O', 'A') AS is_on
FROM pg_catalog.pg_trigger AS made
JOIN pg_catalog.pg_class AS relation ON relation.oid = made.tgrelid
WHERE relation.relnamespace = CAST('holdfast' AS regnamespace) AND NOT made.tgisinternal
ORDER BY made.tgname
{end}{only sqlite}
SELECT name, 1 AS is_on FROM sqlite_master WHERE type = 'trigger' ORDER BY name
{end};

-- list_indexes :many — crosses tenants: the indexes there are, and whether they can be used
{only postgres}
SELECT made.relname AS name, index.indisvalid AND index.indisready AS is_sound
FROM pg_catalog.pg_index AS index
JOIN pg_catalog.pg_class AS made ON made.oid = index.indexrelid
WHERE made.relnamespace = CAST('holdfast' AS regnamespace)
ORDER BY made.relname
{end}{only sqlite}
SELECT name, 1 AS is_sound FROM sqlite_master WHERE type = 'index' ORDER BY name
{end};

-- list_constraints :many — crosses tenants: the rules there are, by name or in the words of their table
{only postgres}
SELECT conname AS name, convalidated AS is_sound, '' AS made_by
FROM pg_catalog.pg_constraint
WHERE connamespace = CAST('holdfast' AS regnamespace)
ORDER BY conname
{end}{only sqlite}
SELECT NULL AS name, 1 AS is_sound, sql AS made_by
FROM sqlite_master
WHERE type = 'table' AND substr(name, 1, 9) = 'holdfast_'
ORDER BY name
{end};

-- list_migrations :many — crosses tenants: what was applied
SELECT component, version, name FROM holdfast.migration ORDER BY component, version;

-- list_damage :many — crosses tenants: what the database finds wrong with its own pages and keys
-- What a rule says of a row is for the other checks, which name the row.
{only postgres}
SELECT NULL AS subject, NULL AS detail WHERE FALSE
{end}{only sqlite}
SELECT 'file' AS subject, integrity_check AS detail FROM pragma_integrity_check
WHERE integrity_check <> 'ok' AND substr(integrity_check, 1, 17) <> 'CHECK constraint '
UNION ALL
SELECT 'table:' || substr("table", 10),
       'row ' || coalesce(CAST(rowid AS text), 'without number') || ' refers to a row of '
           || substr(parent, 10) || ' that is not there'
FROM pragma_foreign_key_check
WHERE substr("table", 1, 9) = 'holdfast_'
{end};
