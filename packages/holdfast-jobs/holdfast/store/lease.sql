-- Leases that were extended outside the job's row, because another transaction holds that row or,
-- on SQLite, the only writer. On PostgreSQL in a table, on SQLite in a file beside the database.

-- create_extensions :affected — crosses tenants: the table in the file beside a SQLite database
CREATE TABLE IF NOT EXISTS holdfast.lease_extension (
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    lease_token bigint NOT NULL,
    lease_expires_at {instant} NOT NULL,
    PRIMARY KEY (org_id, job_id, lease_token)
);

-- extend_leases :affected — crosses tenants: extend leases without writing the rows of their jobs
INSERT INTO holdfast.lease_extension (org_id, job_id, lease_token, lease_expires_at)
SELECT claims.org_id, claims.id, claims.lease_token, {later(:lease_ms)}
FROM {rows claims: org_id uuid, id uuid, lease_token bigint}
WHERE TRUE
ON CONFLICT (org_id, job_id, lease_token) DO UPDATE SET lease_expires_at = excluded.lease_expires_at;

-- list_extensions :many — crosses tenants: all extensions that have not expired
SELECT org_id, job_id, lease_token, lease_expires_at FROM holdfast.lease_extension
WHERE lease_expires_at >= {now};

-- find_extensions :many — crosses tenants: of these claims, those with an extended lease that is in force
SELECT extension.org_id, extension.job_id AS id, extension.lease_token
FROM {rows claims: org_id uuid, id uuid, lease_token bigint}
JOIN holdfast.lease_extension AS extension
  ON extension.org_id = claims.org_id AND extension.job_id = claims.id
 AND extension.lease_token = claims.lease_token
WHERE extension.lease_expires_at >= {now};

-- prune_extensions :affected — crosses tenants: expired extensions
DELETE FROM holdfast.lease_extension WHERE lease_expires_at < {now};

-- apply_extensions :affected — crosses tenants: copy extensions to the leases once they can be written
UPDATE holdfast.job_running AS job
SET lease_expires_at = extended.lease_expires_at
FROM {rows extended: org_id uuid, job_id uuid, lease_token integer, lease_expires_at instant}
WHERE job.org_id = extended.org_id AND job.job_id = extended.job_id
  AND job.lease_token = extended.lease_token
  AND job.lease_expires_at < extended.lease_expires_at;
