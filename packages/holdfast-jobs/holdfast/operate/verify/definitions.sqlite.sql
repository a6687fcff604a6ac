-- Each database describes its schema in a different catalog.

-- list_definitions :many — crosses tenants: all definitions of Holdfast's schema
SELECT type || ':' || CASE WHEN substr(name, 1, 9) = 'holdfast_' THEN substr(name, 10) ELSE name END
           AS subject,
       tbl_name || ': ' || sql AS definition
FROM sqlite_master
WHERE sql IS NOT NULL AND substr(tbl_name, 1, 9) = 'holdfast_'
ORDER BY 1;
