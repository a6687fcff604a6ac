-- Unique keys and deadlines of jobs. The statements of an enqueue name the tenant of every row.

-- lock_keys :many — lock the row of each key until the transaction ends, and return its job
INSERT INTO holdfast.unique_key AS mine
    (org_id, job_type, unique_key, job_id, waiting_since, updated_at)
SELECT keys.org_id, keys.job_type, keys.unique_key, keys.job_id, {now}, {now}
FROM {rows keys: org_id uuid, job_type text, unique_key text, job_id uuid}
WHERE TRUE
ORDER BY keys.org_id, keys.job_type, keys.unique_key
ON CONFLICT (org_id, job_type, unique_key) DO UPDATE SET updated_at = excluded.updated_at
RETURNING org_id, job_type, unique_key, job_id, waiting_since;

-- find_holders :many — the jobs that hold keys; after lock_keys, to see what that has waited for
-- The keys without a job come second: SQLite would read every job for a LEFT JOIN of the view job.
SELECT keys.place, mine.job_id, mine.waiting_since, job.state, job.lease_token,
       job.idempotency_key, job.created_at
FROM {rows keys: place bigint, org_id uuid, job_type text, unique_key text}
JOIN holdfast.unique_key AS mine ON mine.org_id = keys.org_id AND mine.job_type = keys.job_type
 AND mine.unique_key = keys.unique_key
JOIN holdfast.job AS job ON job.org_id = mine.org_id AND job.id = mine.job_id
UNION ALL
SELECT keys.place, mine.job_id, mine.waiting_since, CAST(NULL AS text), CAST(NULL AS integer),
       CAST(NULL AS text), CAST(NULL AS {instant})
FROM {rows keys: place bigint, org_id uuid, job_type text, unique_key text}
JOIN holdfast.unique_key AS mine ON mine.org_id = keys.org_id AND mine.job_type = keys.job_type
 AND mine.unique_key = keys.unique_key
WHERE NOT EXISTS (SELECT 1 FROM holdfast.job_envelope AS job
                  WHERE job.org_id = mine.org_id AND job.id = mine.job_id);

-- supersede_jobs :many — cancel waiting jobs that no worker has claimed
-- It waits for a claim of one of them, and then leaves that job out. A job that becomes ready
-- meanwhile is left out too; the next call finds it.
INSERT INTO holdfast.job_outcome
    (org_id, job_id, finished_at, key_expires_at, lease_token, attempt_count, state)
WITH held_waiting AS MATERIALIZED (
    SELECT place.org_id, place.job_id
    FROM {rows jobs: org_id uuid, id uuid}
    JOIN holdfast.job_waiting AS place ON place.org_id = jobs.org_id AND place.job_id = jobs.id
    WHERE place.lease_token = 0
    ORDER BY place.org_id, place.job_id
    {lock_row(place)}
),
held_ready AS MATERIALIZED (
    SELECT place.org_id, place.job_id
    FROM {rows jobs: org_id uuid, id uuid}
    JOIN holdfast.job_envelope AS asked ON asked.org_id = jobs.org_id AND asked.id = jobs.id
    JOIN holdfast.job_ready AS place
      ON place.queue IN (asked.origin_queue, asked.queue)
     AND place.limit_key = asked.limit_key AND place.org_id = asked.org_id
     AND place.turn = coalesce(asked.turn, asked.id) AND place.job_id = asked.id
    WHERE place.lease_token = 0
    ORDER BY place.org_id, place.job_id
    {lock_row(place)}
)
SELECT job.org_id, job.id, {now}, {later(coalesce(category.key_ttl_ms, 2592000000))}, 0, 0,
       'canceled'
FROM (SELECT org_id, job_id FROM held_waiting UNION ALL SELECT org_id, job_id FROM held_ready) AS place
JOIN holdfast.job_envelope AS job ON job.org_id = place.org_id AND job.id = place.job_id
LEFT JOIN holdfast.category AS category ON category.name = job.category
WHERE TRUE
RETURNING org_id, job_id AS id;

-- hold_keys :affected — the jobs that hold keys from now on
UPDATE holdfast.unique_key AS mine
SET job_id = holds.job_id, waiting_since = coalesce(holds.waiting_since, {now}), updated_at = {now}
FROM {rows holds: org_id uuid, job_type text, unique_key text, job_id uuid, waiting_since instant}
WHERE mine.org_id = holds.org_id AND mine.job_type = holds.job_type
  AND mine.unique_key = holds.unique_key;

-- insert_deadlines :affected — the deadlines of new jobs
INSERT INTO holdfast.job_deadline (org_id, job_id, deadline_at)
SELECT deadlines.org_id, deadlines.job_id, deadlines.deadline_at
FROM {rows deadlines: org_id uuid, job_id uuid, deadline_at instant}
WHERE TRUE
ON CONFLICT DO NOTHING;

-- lock_keys_as_caller :many — crosses tenants: lock_keys and find_holders on a caller's connection
SELECT place, job_id, waiting_since, state, lease_token, idempotency_key, created_at
FROM holdfast.lock_keys(CAST(CAST(:keys AS text) AS json), CAST(:now AS timestamptz));

-- write_flow_as_caller :many — crosses tenants: the other statements on a caller's connection
SELECT org_id, id
FROM holdfast.write_flow(
    CAST(CAST(:holds AS text) AS json), CAST(CAST(:deadlines AS text) AS json),
    CAST(:now AS timestamptz));

-- find_expired :many — crosses tenants: waiting jobs whose deadline has passed, oldest deadline first
SELECT job.org_id, job.id, job.project_id, job.job_type, job.queue, job.stage, job.attempt_count,
       job.request_id, job.correlation_id, job.idempotency_key, job.replay_of,
       {stamp(deadline.deadline_at)} AS deadline_at
FROM holdfast.job_deadline AS deadline
JOIN holdfast.job AS job ON job.org_id = deadline.org_id AND job.id = deadline.job_id
WHERE deadline.closed_at IS NULL AND deadline.deadline_at <= {now} AND job.state = 'queued'
ORDER BY deadline.deadline_at
LIMIT :limit
{skip_held(deadline)};

-- close_deadlines :affected — crosses tenants: deadlines that have passed and whose job has ended
-- A job that runs at its deadline keeps it open: its retry is not started.
UPDATE holdfast.job_deadline AS deadline
SET closed_at = {now}
WHERE deadline.closed_at IS NULL AND deadline.deadline_at <= {now}
  AND NOT EXISTS (SELECT 1 FROM holdfast.job AS job
                  WHERE job.org_id = deadline.org_id AND job.id = deadline.job_id
                    AND job.finished_at IS NULL);

-- prune_deadlines :affected — crosses tenants: closed deadlines past their retention
DELETE FROM holdfast.job_deadline
WHERE (org_id, job_id) IN (
    SELECT org_id, job_id FROM holdfast.job_deadline
    WHERE closed_at < {later(-CAST(:keep_ms AS bigint))}
    ORDER BY closed_at
    LIMIT :limit);

-- prune_keys :affected — crosses tenants: keys that no unfinished job holds
DELETE FROM holdfast.unique_key
WHERE (org_id, job_type, unique_key) IN (
    SELECT mine.org_id, mine.job_type, mine.unique_key FROM holdfast.unique_key AS mine
    WHERE mine.updated_at < {later(-CAST(:keep_ms AS bigint))}
      AND NOT EXISTS (SELECT 1 FROM holdfast.job AS job
                      WHERE job.org_id = mine.org_id AND job.id = mine.job_id
                        AND job.finished_at IS NULL)
    ORDER BY mine.updated_at
    LIMIT :limit
    {skip_locked});
