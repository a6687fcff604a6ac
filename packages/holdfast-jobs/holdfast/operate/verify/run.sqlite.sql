-- Each database lists its tables and takes its session settings in its own way.

-- list_tables :many — crosses tenants: which of our tables there are
SELECT substr(name, 10) AS name FROM sqlite_master
WHERE type = 'table' AND substr(name, 1, 9) = 'holdfast_';

-- trust_nothing :affected — crosses tenants: nothing that a session may set changes what is found
SELECT 1;
