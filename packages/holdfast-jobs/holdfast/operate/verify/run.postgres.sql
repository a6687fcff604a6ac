-- Each database lists its tables and sets its session settings differently.

-- list_tables :many — crosses tenants: the existing tables of Holdfast
SELECT tablename AS name FROM pg_catalog.pg_tables WHERE schemaname = 'holdfast';

-- trust_nothing :affected — crosses tenants: session settings must not change the result
-- No plan may skip a table because a constraint excludes matching rows. Definitions must not depend
-- on the session's time zone and search path.
SELECT set_config('constraint_exclusion', 'off', TRUE), set_config('TimeZone', 'UTC', TRUE),
       set_config('DateStyle', 'ISO, YMD', TRUE), set_config('search_path', 'pg_catalog', TRUE),
       set_config('quote_all_identifiers', 'off', TRUE);
