-- Only PostgreSQL has roles and privileges.

-- find_denied :many — crosses tenants: tables behind a name that a role was refused, with the rights it lacks
-- A sequence resolves to the tables whose columns it fills.
SELECT namespace.nspname AS schema_name, found.relname AS table_name,
       CASE WHEN found.relname = :name THEN (
           SELECT string_agg(wanted.word, '+' ORDER BY wanted.place)
           FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) WITH ORDINALITY
               AS wanted (word, place)
           WHERE NOT has_table_privilege(CAST(:role AS name), found.oid, wanted.word))
       ELSE 'USAGE' END AS missing
FROM pg_catalog.pg_class AS found
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = found.relnamespace
WHERE found.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND left(namespace.nspname, 3) <> 'pg_' AND namespace.nspname <> 'information_schema'
  AND (found.relname = :name OR found.oid IN (
      SELECT used.refobjid FROM pg_catalog.pg_depend AS used
      JOIN pg_catalog.pg_class AS sequence ON sequence.oid = used.objid
      WHERE used.classid = CAST('pg_catalog.pg_class' AS regclass)
        AND used.refclassid = CAST('pg_catalog.pg_class' AS regclass)
        AND sequence.relname = :name
        AND CASE WHEN sequence.relkind = 'S'
                 THEN NOT has_sequence_privilege(CAST(:role AS name), sequence.oid, 'USAGE') END
      UNION ALL
      SELECT filled.adrelid FROM pg_catalog.pg_attrdef AS filled
      JOIN pg_catalog.pg_depend AS uses
        ON uses.classid = CAST('pg_catalog.pg_attrdef' AS regclass) AND uses.objid = filled.oid
      JOIN pg_catalog.pg_class AS sequence ON sequence.oid = uses.refobjid
      WHERE uses.refclassid = CAST('pg_catalog.pg_class' AS regclass)
        AND sequence.relname = :name
        AND CASE WHEN sequence.relkind = 'S'
                 THEN NOT has_sequence_privilege(CAST(:role AS name), sequence.oid, 'USAGE') END))
ORDER BY pg_table_is_visible(found.oid) DESC, namespace.nspname, found.relname;

-- find_schema :maybe — crosses tenants: a schema that a role was refused
SELECT nspname AS schema_name FROM pg_catalog.pg_namespace
WHERE nspname = :name AND NOT has_schema_privilege(CAST(:role AS name), oid, 'USAGE');

-- find_table :maybe — crosses tenants: a table by the name that an operator typed
SELECT found.oid, namespace.nspname AS schema_name, found.relname AS table_name,
       pg_get_userbyid(found.relowner) AS owner, current_user AS asked_by,
       found.relkind IN ('r', 'p', 'v', 'm', 'f') AS is_table,
       namespace.nspname IN ('holdfast', 'information_schema')
           OR left(namespace.nspname, 3) = 'pg_' AS is_ours,
       found.relrowsecurity AS has_policies,
       EXISTS (SELECT FROM pg_catalog.pg_attribute AS tenant
               WHERE tenant.attrelid = found.oid AND tenant.attname = 'org_id'
                 AND NOT tenant.attisdropped) AS has_tenant
FROM pg_catalog.pg_class AS found
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = found.relnamespace
WHERE found.relname = :name
  AND CASE WHEN CAST(:schema AS text) IS NULL THEN pg_table_is_visible(found.oid)
           ELSE namespace.nspname = :schema END;

-- list_grants :many — crosses tenants: GRANT statements for the privileges that a role lacks on a table
-- Privileges of PUBLIC do not count, because they may be revoked for other reasons.
WITH target AS (
    SELECT found.oid, found.relname, found.relnamespace, namespace.nspname, namespace.nspacl,
           namespace.nspowner, found.relacl, found.relowner, grantee.oid AS role_id,
           grantee.rolname
    FROM pg_catalog.pg_class AS found
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = found.relnamespace
    CROSS JOIN pg_catalog.pg_roles AS grantee
    WHERE found.oid = CAST(:oid AS oid) AND grantee.rolname = :role
),
wanted AS (
    SELECT word, place FROM unnest(string_to_array(:privileges, '+')) WITH ORDINALITY
        AS listed (word, place)
)
SELECT 1 AS place, 'GRANT USAGE ON SCHEMA ' || quote_ident(target.nspname) || ' TO '
    || quote_ident(target.rolname) AS statement
FROM target
WHERE NOT has_schema_privilege(target.role_id, target.relnamespace, 'USAGE')
UNION ALL
SELECT 2, 'GRANT ' || string_agg(wanted.word, ', ' ORDER BY wanted.place) || ' ON TABLE '
    || quote_ident(target.nspname) || '.' || quote_ident(target.relname) || ' TO '
    || quote_ident(target.rolname)
FROM target CROSS JOIN wanted
WHERE NOT EXISTS (
    SELECT FROM aclexplode(coalesce(target.relacl, acldefault('r', target.relowner))) AS given
    WHERE given.grantee = target.role_id AND given.privilege_type = wanted.word)
GROUP BY target.nspname, target.relname, target.rolname
UNION ALL
SELECT 3, 'GRANT USAGE ON SEQUENCE ' || quote_ident(namespace.nspname) || '.'
    || quote_ident(sequence.relname) || ' TO ' || quote_ident(target.rolname)
FROM target
JOIN pg_catalog.pg_class AS sequence
  ON CASE WHEN sequence.relkind = 'S'
          THEN NOT has_sequence_privilege(target.role_id, sequence.oid, 'USAGE') END
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = sequence.relnamespace
WHERE EXISTS (SELECT FROM wanted WHERE wanted.word IN ('INSERT', 'UPDATE'))
  AND (EXISTS (
          SELECT FROM pg_catalog.pg_depend AS owned
          WHERE owned.classid = CAST('pg_catalog.pg_class' AS regclass)
            AND owned.objid = sequence.oid
            AND owned.refclassid = CAST('pg_catalog.pg_class' AS regclass)
            AND owned.refobjid = target.oid)
      OR EXISTS (
          SELECT FROM pg_catalog.pg_attrdef AS filled
          JOIN pg_catalog.pg_depend AS uses
            ON uses.classid = CAST('pg_catalog.pg_attrdef' AS regclass) AND uses.objid = filled.oid
          WHERE filled.adrelid = target.oid
            AND uses.refclassid = CAST('pg_catalog.pg_class' AS regclass)
            AND uses.refobjid = sequence.oid))
ORDER BY place, statement;
