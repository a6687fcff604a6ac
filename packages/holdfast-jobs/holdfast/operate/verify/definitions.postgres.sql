-- Each database describes its schema in a different catalog.

-- list_definitions :many — crosses tenants: all definitions of Holdfast's schema
WITH own AS (
    SELECT relation.oid, relation.relname AS name, relation.relkind AS kind,
           CASE relation.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'view' WHEN 'S' THEN 'sequence'
                                 ELSE 'table' END AS word,
           relation.relowner AS owner, relation.relacl AS acl, relation.relpersistence,
           relation.relrowsecurity, relation.relforcerowsecurity, relation.reloptions
    FROM pg_catalog.pg_class AS relation
    WHERE relation.relnamespace = CAST('holdfast' AS regnamespace)
      AND relation.relkind IN ('r', 'p', 'f', 'v', 'm', 'S')
),
routine AS (
    SELECT made.oid, made.proname AS name, made.proowner AS owner, made.proacl AS acl, made.prosrc,
           made.prosecdef, made.provolatile, made.proisstrict, made.proretset, made.prokind,
           made.proleakproof, made.proparallel, made.proconfig, language.lanname,
           pg_catalog.pg_get_function_arguments(made.oid) AS arguments,
           pg_catalog.pg_get_function_result(made.oid) AS result
    FROM pg_catalog.pg_proc AS made
    JOIN pg_catalog.pg_language AS language ON language.oid = made.prolang
    WHERE made.pronamespace = CAST('holdfast' AS regnamespace)
),
mine AS (
    SELECT role.oid, role.rolname AS name, role.rolsuper, role.rolbypassrls, role.rolcreaterole,
           role.rolcreatedb, role.rolreplication
    FROM {rows roles: name text}
    JOIN pg_catalog.pg_roles AS role ON role.rolname = roles.name
),
granted AS (
    SELECT own.word || ':' || own.name AS thing, own.owner, '' AS part, found.*
    FROM own CROSS JOIN LATERAL aclexplode(coalesce(own.acl,
        acldefault(CASE WHEN own.kind = 'S' THEN CAST('s' AS "char") ELSE 'r' END, own.owner)))
        AS found
    UNION ALL
    SELECT own.word || ':' || own.name, own.owner, '(' || attribute.attname || ')', found.*
    FROM own
    JOIN pg_catalog.pg_attribute AS attribute
      ON attribute.attrelid = own.oid AND attribute.attnum > 0 AND NOT attribute.attisdropped
    CROSS JOIN LATERAL aclexplode(attribute.attacl) AS found
    UNION ALL
    SELECT 'function:' || routine.name, routine.owner, '', found.*
    FROM routine
    CROSS JOIN LATERAL aclexplode(coalesce(routine.acl, acldefault('f', routine.owner))) AS found
    UNION ALL
    SELECT 'schema:holdfast', space.nspowner, '', found.*
    FROM pg_catalog.pg_namespace AS space
    CROSS JOIN LATERAL aclexplode(coalesce(space.nspacl, acldefault('n', space.nspowner))) AS found
    WHERE space.nspname = 'holdfast'
    UNION ALL
    SELECT 'schema:holdfast', 0, '(default)', found.*
    FROM pg_catalog.pg_default_acl AS planned
    CROSS JOIN LATERAL aclexplode(planned.defaclacl) AS found
    WHERE planned.defaclnamespace = CAST('holdfast' AS regnamespace)
)
SELECT own.word || ':' || own.name AS subject,
       concat_ws(' ', own.kind, own.relpersistence,
                 CASE WHEN own.relrowsecurity THEN 'row security' END,
                 CASE WHEN own.relforcerowsecurity THEN 'forced' END,
                 CASE WHEN own.word = 'view'
                      THEN array_to_string(own.reloptions, ' ') || ' '
                           || pg_catalog.pg_get_viewdef(own.oid) END) AS definition
FROM own
UNION ALL
SELECT 'column:' || own.name || '.' || attribute.attname,
       concat_ws(' ', pg_catalog.format_type(attribute.atttypid, attribute.atttypmod),
                 CASE WHEN attribute.attnotnull THEN 'not null' END, attribute.attidentity,
                 attribute.attgenerated,
                 pg_catalog.pg_get_expr(value.adbin, value.adrelid))
FROM own
JOIN pg_catalog.pg_attribute AS attribute
  ON attribute.attrelid = own.oid AND attribute.attnum > 0 AND NOT attribute.attisdropped
LEFT JOIN pg_catalog.pg_attrdef AS value
  ON value.adrelid = own.oid AND value.adnum = attribute.attnum
WHERE own.kind IN ('r', 'p', 'f')
UNION ALL
SELECT 'constraint:' || own.name || '.' || rule.conname,
       concat_ws(' ', pg_catalog.pg_get_constraintdef(rule.oid),
                 CASE WHEN NOT rule.convalidated THEN 'not validated' END,
                 CASE WHEN to_jsonb(rule) ->> 'conenforced' = 'false' THEN 'not enforced' END)
FROM own
JOIN pg_catalog.pg_constraint AS rule ON rule.conrelid = own.oid
-- Newer versions also store NOT NULL here; the column already has it.
WHERE rule.contype IN ('c', 'f', 'p', 'u', 'x')
UNION ALL
SELECT 'index:' || made.relname,
       concat_ws(' ', pg_catalog.pg_get_indexdef(made.oid),
                 CASE WHEN NOT (index.indisvalid AND index.indisready AND index.indislive)
                      THEN 'cannot be used' END)
FROM own
JOIN pg_catalog.pg_index AS index ON index.indrelid = own.oid
JOIN pg_catalog.pg_class AS made ON made.oid = index.indexrelid
UNION ALL
SELECT 'trigger:' || own.name || '.' || made.tgname,
       concat_ws(' ', made.tgenabled, pg_catalog.pg_get_triggerdef(made.oid))
FROM own
JOIN pg_catalog.pg_trigger AS made ON made.tgrelid = own.oid
WHERE NOT made.tgisinternal
UNION ALL
-- Triggers of foreign keys are named by number; only whether they are enabled matters.
SELECT DISTINCT 'trigger:' || own.name || '.' || rule.conname, 'checks a foreign key: ' || CAST(made.tgenabled AS text)
FROM own
JOIN pg_catalog.pg_trigger AS made ON made.tgrelid = own.oid
JOIN pg_catalog.pg_constraint AS rule ON rule.oid = made.tgconstraint
WHERE made.tgisinternal AND made.tgenabled <> 'O'
UNION ALL
SELECT 'rule:' || own.name || '.' || made.rulename, pg_catalog.pg_get_ruledef(made.oid)
FROM own
JOIN pg_catalog.pg_rewrite AS made ON made.ev_class = own.oid
WHERE made.rulename <> '_RETURN'
UNION ALL
SELECT 'policy:' || own.name || '.' || made.polname,
       concat_ws(' ', made.polcmd, CASE WHEN made.polpermissive THEN 'permissive' END, 'to',
                 (SELECT string_agg(coalesce(role.rolname, 'public'), ' ' ORDER BY role.rolname)
                  FROM unnest(made.polroles) AS held (oid)
                  LEFT JOIN pg_catalog.pg_roles AS role ON role.oid = held.oid),
                 'using ' || pg_catalog.pg_get_expr(made.polqual, made.polrelid),
                 'check ' || pg_catalog.pg_get_expr(made.polwithcheck, made.polrelid))
FROM own
JOIN pg_catalog.pg_policy AS made ON made.polrelid = own.oid
UNION ALL
SELECT 'table:' || own.name || ' inherited by ' || CAST(CAST(made.inhrelid AS regclass) AS text), ''
FROM own
JOIN pg_catalog.pg_inherits AS made ON made.inhparent = own.oid
UNION ALL
SELECT 'function:' || routine.name,
       concat_ws(' ', routine.arguments, 'returns', routine.result, routine.lanname,
                 routine.provolatile, routine.prokind, routine.proparallel,
                 CASE WHEN routine.proisstrict THEN 'strict' END,
                 CASE WHEN routine.proleakproof THEN 'leakproof' END,
                 CASE WHEN routine.prosecdef THEN 'security definer' END,
                 array_to_string(routine.proconfig, ' '), 'body', {hash(routine.prosrc)})
FROM routine
UNION ALL
-- Roles of Holdfast have the privileges that the migrations granted; other roles may at most read.
SELECT granted.thing || granted.part || ' ' || granted.privilege_type || ' to '
           || CASE granted.grantee WHEN 0 THEN 'public' ELSE role.rolname END,
       CASE WHEN granted.is_grantable THEN 'granted with grant option' ELSE 'granted' END
FROM granted
LEFT JOIN pg_catalog.pg_roles AS role ON role.oid = granted.grantee
WHERE granted.grantee <> granted.owner
  AND (granted.grantee = 0 OR granted.grantee IN (SELECT mine.oid FROM mine)
       OR granted.privilege_type NOT IN ('SELECT', 'USAGE', 'EXECUTE'))
UNION ALL
SELECT 'role:' || mine.name,
       concat_ws(' ', 'role', CASE WHEN mine.rolsuper THEN 'superuser' END,
                 CASE WHEN mine.rolbypassrls THEN 'bypassrls' END,
                 CASE WHEN mine.rolcreaterole THEN 'createrole' END,
                 CASE WHEN mine.rolcreatedb THEN 'createdb' END,
                 CASE WHEN mine.rolreplication THEN 'replication' END)
FROM mine
UNION ALL
-- A role may be a member of the application's roles, unless that gives access to other tenants'
-- rows.
SELECT 'role:' || mine.name || ' member of ' || other.rolname, ''
FROM mine
JOIN pg_catalog.pg_roles AS other
  ON other.oid <> mine.oid AND pg_catalog.pg_has_role(mine.oid, other.oid, 'MEMBER')
WHERE NOT mine.rolsuper
  AND (other.rolsuper OR other.rolbypassrls OR other.oid IN (SELECT mine.oid FROM mine)
       OR other.oid IN (SELECT own.owner FROM own UNION SELECT routine.owner FROM routine))
UNION ALL
SELECT owned.thing || ' owned by ' || mine.name, ''
FROM (SELECT own.word || ':' || own.name AS thing, own.owner FROM own
      UNION ALL SELECT 'function:' || routine.name, routine.owner FROM routine) AS owned
JOIN mine ON mine.oid = owned.owner
UNION ALL
-- The owner of a table may change it regardless of grants. One role runs all migrations.
SELECT owned.thing || ' owned by ' || role.rolname, 'another owner than the other tables have'
FROM (SELECT own.word || ':' || own.name AS thing, own.owner FROM own
      UNION ALL SELECT 'function:' || routine.name, routine.owner FROM routine) AS owned
JOIN pg_catalog.pg_roles AS role ON role.oid = owned.owner
WHERE owned.owner NOT IN (SELECT mine.oid FROM mine)
  AND owned.owner <> (SELECT own.owner FROM own WHERE own.name = 'migration')
UNION ALL
-- With these settings a session fires no triggers.
SELECT 'setting:' || split_part(word.given, '=', 1) || coalesce(' of ' || role.rolname, ''),
       word.given
FROM pg_catalog.pg_db_role_setting AS setting
CROSS JOIN LATERAL unnest(setting.setconfig) AS word (given)
LEFT JOIN pg_catalog.pg_roles AS role ON role.oid = setting.setrole
WHERE split_part(word.given, '=', 1) = 'session_replication_role'
  AND split_part(word.given, '=', 2) <> 'origin'
  AND (setting.setdatabase = 0 OR setting.setdatabase = (
      SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))
ORDER BY 1;
