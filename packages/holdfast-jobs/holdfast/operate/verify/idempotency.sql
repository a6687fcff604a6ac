-- The invariants of keys and units, I12 and I13, in the shape of lifecycle.sql.

-- find_shared_keys :many — I12, crosses tenants: keys with more than one job, here or in history
-- Within a table the unique index enforces it; between the two there is none.
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       'its idempotency key is used by two jobs' AS detail
FROM holdfast.job AS job
WHERE (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND (EXISTS (SELECT 1 FROM holdfast.job_history AS twin
               WHERE twin.org_id = job.org_id AND twin.idempotency_key = job.idempotency_key)
       OR EXISTS (SELECT 1 FROM holdfast.job AS twin
                  WHERE twin.org_id = job.org_id AND twin.idempotency_key = job.idempotency_key
                    AND twin.id <> job.id))
UNION ALL
SELECT job.org_id, 'job:' || CAST(job.id AS text), 'its idempotency key is used by two jobs'
FROM holdfast.job_history AS job
WHERE (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND EXISTS (SELECT 1 FROM holdfast.job_history AS twin
              WHERE twin.org_id = job.org_id AND twin.idempotency_key = job.idempotency_key
                AND twin.id <> job.id);

-- find_foreign_keys :many — I12, crosses tenants: keys that do not begin with the type and tenant of their job
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       'its idempotency key names another job type or tenant' AS detail
FROM holdfast.job_record AS job
WHERE (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND substr(job.idempotency_key, 1, length(job.job_type) + 38)
      <> job.job_type || ':' || CAST(job.org_id AS text) || ':';

-- find_shared_units :many — I13, crosses tenants: execution units with more than one job, not counting replays
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       'its execution unit has another job' AS detail
FROM holdfast.job AS job
WHERE (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND job.unit_key IS NOT NULL AND job.replay_of IS NULL
  AND (EXISTS (SELECT 1 FROM holdfast.job_history AS twin
               WHERE twin.org_id = job.org_id AND twin.job_type = job.job_type
                 AND twin.unit_key = job.unit_key AND twin.replay_of IS NULL)
       OR EXISTS (SELECT 1 FROM holdfast.job AS twin
                  WHERE twin.org_id = job.org_id AND twin.job_type = job.job_type
                    AND twin.unit_key = job.unit_key AND twin.replay_of IS NULL
                    AND twin.id <> job.id))
UNION ALL
SELECT job.org_id, 'job:' || CAST(job.id AS text), 'its execution unit has another job'
FROM holdfast.job_history AS job
WHERE (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND job.unit_key IS NOT NULL AND job.replay_of IS NULL
  AND EXISTS (SELECT 1 FROM holdfast.job_history AS twin
              WHERE twin.org_id = job.org_id AND twin.job_type = job.job_type
                AND twin.unit_key = job.unit_key AND twin.replay_of IS NULL
                AND twin.id <> job.id);

-- find_crowded_units :many — I13, crosses tenants: units of which more than one job or replay is active
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       'it is active together with another job of its execution unit' AS detail
FROM holdfast.job AS job
WHERE job.finished_at IS NULL AND job.unit_key IS NOT NULL AND job.replay_of IS NOT NULL
  AND (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND (EXISTS (SELECT 1 FROM holdfast.job AS twin
               WHERE twin.org_id = job.org_id AND twin.job_type = job.job_type
                 AND twin.unit_key = job.unit_key AND twin.replay_of IS NULL
                 AND twin.finished_at IS NULL)
       OR EXISTS (SELECT 1 FROM holdfast.dead_letter_replay AS replay
                  JOIN holdfast.job AS twin
                    ON twin.org_id = replay.org_id AND twin.id = replay.replay_job_id
                  WHERE replay.org_id = job.org_id AND replay.job_id = job.replay_of
                    AND twin.id <> job.id AND twin.finished_at IS NULL));
