-- What a look at one moment needs beside its checks.

-- list_tables :many — crosses tenants: which of our tables there are
{only postgres}SELECT tablename AS name FROM pg_catalog.pg_tables WHERE schemaname = 'holdfast'{end}
{only sqlite}
SELECT substr(name, 10) AS name FROM sqlite_master
WHERE type = 'table' AND substr(name, 1, 9) = 'holdfast_'
{end};

-- read_moment :one — crosses tenants: the time of the moment that is looked at
SELECT {now} AS now;

-- trust_nothing :affected — crosses tenants: nothing that a session may set changes what is found
-- No plan may leave a table out because a constraint promises that nothing can be found in it.
-- Definitions are written the same whatever the session's time zone and search path.
{only postgres}
SELECT set_config('constraint_exclusion', 'off', TRUE), set_config('TimeZone', 'UTC', TRUE),
       set_config('DateStyle', 'ISO, YMD', TRUE), set_config('search_path', 'pg_catalog', TRUE),
       set_config('quote_all_identifiers', 'off', TRUE)
{end}{only sqlite}SELECT 1{end};

-- set_mark :affected — crosses tenants: what one check breaks is not the next one's concern
SAVEPOINT holdfast_check;

-- return_to_mark :affected — crosses tenants: after a check that could not be made
ROLLBACK TO SAVEPOINT holdfast_check;

-- drop_mark :affected — crosses tenants: after every check
RELEASE SAVEPOINT holdfast_check;

-- list_components :many — crosses tenants: whose tables are in this database
SELECT DISTINCT component FROM holdfast.migration ORDER BY component;
