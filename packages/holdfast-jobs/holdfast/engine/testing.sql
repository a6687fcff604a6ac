-- Statements of the pytest plugin, which reads the jobs of every tenant in a separate store.

-- list_jobs :many — crosses tenants: all jobs in one state
SELECT * FROM holdfast.job WHERE state = :state ORDER BY created_at, id;

-- next_due :one — crosses tenants: how long until the next deferred job is due
SELECT CAST(round((julianday(min(not_before_at)) - julianday({now})) * 86400000.0) AS integer) AS ms
FROM holdfast.job
WHERE state = 'queued' AND not_before_at > {now};
