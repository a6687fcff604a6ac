-- The invariants of keys and units, I12 and I13, in the shape of lifecycle.sql. Unique indexes keep
-- a key and a unit for one job; I38 and I47 check the indexes.

-- find_shared_keys :many — I12, crosses tenants: keys that are also the key of a job without a stored key
-- A job without a stored key has the key that ends with its id, which no index covers.
SELECT given.org_id, 'job:' || CAST(given.id AS text) AS subject,
       'its idempotency key is used by two jobs' AS detail
FROM (
    SELECT job.org_id, job.id, job.idempotency_key,
           CASE WHEN length(job.idempotency_key) > 32
                     AND trim(substr(job.idempotency_key, length(job.idempotency_key) - 31),
                              '0123456789abcdef') = ''
                THEN substr(job.idempotency_key, length(job.idempotency_key) - 31) END AS ending
    FROM holdfast.job_envelope AS job
    WHERE job.idempotency_key IS NOT NULL
      AND (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
) AS given
JOIN holdfast.job_envelope AS own
  ON own.org_id = given.org_id AND own.idempotency_key IS NULL
 AND own.id = CAST(substr(given.ending, 1, 8) || '-' || substr(given.ending, 9, 4) || '-'
                   || substr(given.ending, 13, 4) || '-' || substr(given.ending, 17, 4) || '-'
                   || substr(given.ending, 21) AS {uuid})
WHERE given.idempotency_key = own.job_type || ':' || CAST(own.org_id AS text) || ':'
          || coalesce(CAST(own.project_id AS text), '') || ':' || given.ending;

-- find_foreign_keys :many — I12, crosses tenants: keys that do not begin with the type and tenant of their job
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       'its idempotency key names another job type or tenant' AS detail
FROM holdfast.job_envelope AS job
WHERE job.idempotency_key IS NOT NULL
  AND (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND substr(job.idempotency_key, 1, length(job.job_type) + 38)
      <> job.job_type || ':' || CAST(job.org_id AS text) || ':';

-- find_crowded_units :many — I13, crosses tenants: units of which more than one job or replay is active
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       'it is active together with another job of its execution unit' AS detail
FROM holdfast.job_envelope AS job
WHERE job.replay_of IS NOT NULL AND job.unit_key IS NOT NULL
  AND (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_outcome AS outcome
                  WHERE outcome.org_id = job.org_id AND outcome.job_id = job.id)
  AND (EXISTS (SELECT 1 FROM holdfast.job_envelope AS twin
               WHERE twin.org_id = job.org_id AND twin.job_type = job.job_type
                 AND twin.unit_key = job.unit_key AND twin.replay_of IS NULL
                 AND NOT EXISTS (SELECT 1 FROM holdfast.job_outcome AS outcome
                                 WHERE outcome.org_id = twin.org_id AND outcome.job_id = twin.id))
       OR EXISTS (SELECT 1 FROM holdfast.job_envelope AS twin
                  WHERE twin.org_id = job.org_id AND twin.replay_of = job.replay_of
                    AND twin.id <> job.id
                    AND NOT EXISTS (SELECT 1 FROM holdfast.job_outcome AS outcome
                                    WHERE outcome.org_id = twin.org_id
                                      AND outcome.job_id = twin.id)));
