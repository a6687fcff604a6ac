-- Statements of the pytest plugin, which reads the jobs of every tenant in a database for tests.

-- list_jobs :many — crosses tenants: all jobs in one state
SELECT * FROM holdfast.job WHERE state = :state ORDER BY created_at, id;

-- next_due :one — crosses tenants: how long until the next deferred job is due
SELECT -max({ms_since(not_before_at)}) AS ms
FROM holdfast.job
WHERE state = 'queued' AND not_before_at > {now};

-- next_tick :one — crosses tenants: when the next schedule fires
SELECT min(next_fire_at) AS at FROM holdfast.schedule WHERE paused_at IS NULL;

-- list_workers :many — crosses tenants: the workers of the database
SELECT worker_id, host, seen_at FROM holdfast.worker;

-- has_jobs :one — crosses tenants: whether the database has or had jobs
SELECT count(*) > 0 AS found FROM (SELECT id FROM holdfast.job_envelope LIMIT 1) AS job;
