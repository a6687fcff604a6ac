-- Each database lists its tables and takes its session settings in its own way.

-- list_tables :many — crosses tenants: which of our tables there are
SELECT tablename AS name FROM pg_catalog.pg_tables WHERE schemaname = 'holdfast';

-- trust_nothing :affected — crosses tenants: nothing that a session may set changes what is found
-- No plan may leave a table out because a constraint promises that nothing can be found in it.
-- Definitions are written the same whatever the session's time zone and search path.
SELECT set_config('constraint_exclusion', 'off', TRUE), set_config('TimeZone', 'UTC', TRUE),
       set_config('DateStyle', 'ISO, YMD', TRUE), set_config('search_path', 'pg_catalog', TRUE),
       set_config('quote_all_identifiers', 'off', TRUE);
