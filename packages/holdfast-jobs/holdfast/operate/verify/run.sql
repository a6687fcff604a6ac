-- Statements of a verify run beside its checks.

-- read_moment :one — crosses tenants: the time of the snapshot
SELECT {now} AS now;

-- set_mark :affected — crosses tenants: isolate the checks from each other's failures
SAVEPOINT holdfast_check;

-- return_to_mark :affected — crosses tenants: after a failed check
ROLLBACK TO SAVEPOINT holdfast_check;

-- drop_mark :affected — crosses tenants: after every check
RELEASE SAVEPOINT holdfast_check;

-- list_components :many — crosses tenants: the components in this database
SELECT DISTINCT component FROM holdfast.migration ORDER BY component;
