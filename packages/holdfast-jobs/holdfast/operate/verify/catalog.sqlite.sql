-- Each database describes its schema in a different catalog.

-- list_tables :many — crosses tenants: Holdfast's tables, and the isolation of those with a tenant
SELECT substr(made.name, 10) AS name, owner.name IS NOT NULL AS has_tenant,
       coalesce(owner."notnull", 0) AS names_tenant, 1 AS is_guarded, 0 AS has_policies
FROM sqlite_master AS made
LEFT JOIN pragma_table_info(made.name) AS owner ON owner.name = 'org_id'
WHERE made.type = 'table' AND substr(made.name, 1, 9) = 'holdfast_'
ORDER BY made.name;

-- list_policies :many — crosses tenants: the row-level security policies
SELECT NULL AS table_name, NULL AS name, NULL AS permissive, NULL AS roles, NULL AS qual,
       NULL AS with_check
WHERE FALSE;

-- list_rights :many — crosses tenants: privileges of tenants that no policy restricts
SELECT NULL AS role, NULL AS table_name, NULL AS word WHERE FALSE;

-- list_unique :many — crosses tenants: unique indexes of tables with a tenant, and their first column
SELECT substr(made.name, 10) AS table_name, found.name AS name, coalesce(first.name, '') AS leads
FROM sqlite_master AS made
JOIN pragma_table_info(made.name) AS owner ON owner.name = 'org_id'
JOIN pragma_index_list(made.name) AS found ON found."unique" = 1
JOIN pragma_index_info(found.name) AS first ON first.seqno = 0
WHERE made.type = 'table' AND substr(made.name, 1, 9) = 'holdfast_'
ORDER BY made.name, found.name;

-- list_views :many — crosses tenants: views, and whether they use the caller's privileges
SELECT substr(name, 10) AS name, 1 AS is_invoker FROM sqlite_master
WHERE type = 'view' AND substr(name, 1, 9) = 'holdfast_'
ORDER BY name;

-- list_functions :many — crosses tenants: functions, and whether SECURITY DEFINER ones fix their search path
SELECT NULL AS name, NULL AS is_confined WHERE FALSE;

-- list_triggers :many — crosses tenants: the triggers that enforce rules, and whether they are enabled
SELECT name, 1 AS is_on FROM sqlite_master WHERE type = 'trigger' ORDER BY name;

-- list_indexes :many — crosses tenants: the indexes, and whether they are valid
SELECT name, 1 AS is_sound FROM sqlite_master WHERE type = 'index' ORDER BY name;

-- list_constraints :many — crosses tenants: the constraints, by name or in the text of their table
SELECT NULL AS name, 1 AS is_sound, sql AS made_by
FROM sqlite_master
WHERE type = 'table' AND substr(name, 1, 9) = 'holdfast_'
ORDER BY name;

-- list_damage :many — crosses tenants: corruption that the database finds in its own pages and keys
SELECT 'file' AS subject, integrity_check AS detail FROM pragma_integrity_check
WHERE integrity_check <> 'ok' AND substr(integrity_check, 1, 17) <> 'CHECK constraint '
UNION ALL
SELECT 'table:' || substr("table", 10),
       'row ' || coalesce(CAST(rowid AS text), 'without number') || ' refers to a row of '
           || substr(parent, 10) || ' that does not exist'
FROM pragma_foreign_key_check
WHERE substr("table", 1, 9) = 'holdfast_';
