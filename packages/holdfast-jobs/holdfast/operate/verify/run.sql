-- What a look at one moment needs beside its checks.

-- read_moment :one — crosses tenants: the time of the moment that is looked at
SELECT {now} AS now;

-- set_mark :affected — crosses tenants: what one check breaks is not the next one's concern
SAVEPOINT holdfast_check;

-- return_to_mark :affected — crosses tenants: after a check that could not be made
ROLLBACK TO SAVEPOINT holdfast_check;

-- drop_mark :affected — crosses tenants: after every check
RELEASE SAVEPOINT holdfast_check;

-- list_components :many — crosses tenants: whose tables are in this database
SELECT DISTINCT component FROM holdfast.migration ORDER BY component;
