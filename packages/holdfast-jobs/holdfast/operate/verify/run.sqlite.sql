-- Each database lists its tables and sets its session settings differently.

-- list_tables :many — crosses tenants: the existing tables of Holdfast
SELECT substr(name, 10) AS name FROM sqlite_master
WHERE type = 'table' AND substr(name, 1, 9) = 'holdfast_';

-- trust_nothing :affected — crosses tenants: session settings must not change the result
SELECT 1;
