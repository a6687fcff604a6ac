-- Jobs have no index by id alone: the ids of each tenant are read. The audit also has those of pruned
-- jobs.

-- find_jobs :many — crosses tenants: ids of jobs in a range
WITH RECURSIVE tenants (org_id) AS (
    SELECT (SELECT job.org_id FROM holdfast.job_envelope AS job ORDER BY job.org_id LIMIT 1)
    UNION ALL
    SELECT (SELECT job.org_id FROM holdfast.job_envelope AS job
            WHERE job.org_id > tenants.org_id
            ORDER BY job.org_id LIMIT 1)
    FROM tenants
    WHERE tenants.org_id IS NOT NULL
)
SELECT found.id
FROM (SELECT job.id
      FROM tenants
      {lateral job: holdfast.job_envelope (org_id, id)}
          SELECT own.org_id, own.id FROM holdfast.job_envelope AS own
          WHERE own.org_id = tenants.org_id AND own.id >= :low AND own.id <= :high
          ORDER BY own.org_id, own.id LIMIT :limit
      {end}
      UNION
      SELECT * FROM (
          SELECT DISTINCT event.job_id FROM holdfast.audit_event AS event
          WHERE event.jobs IS NULL AND event.job_id >= :low AND event.job_id <= :high
          ORDER BY event.job_id
          LIMIT :limit) AS told) AS found
ORDER BY found.id
LIMIT :limit;

-- find_jobs_beside :many — crosses tenants: the next smaller and the next larger id of each
WITH RECURSIVE tenants (org_id) AS (
    SELECT (SELECT job.org_id FROM holdfast.job_envelope AS job ORDER BY job.org_id LIMIT 1)
    UNION ALL
    SELECT (SELECT job.org_id FROM holdfast.job_envelope AS job
            WHERE job.org_id > tenants.org_id
            ORDER BY job.org_id LIMIT 1)
    FROM tenants
    WHERE tenants.org_id IS NOT NULL
)
SELECT ids.id,
       (SELECT near.id FROM (
           SELECT (SELECT job.id FROM holdfast.job_envelope AS job
                   WHERE job.org_id = tenants.org_id AND job.id < ids.id
                   ORDER BY job.org_id DESC, job.id DESC LIMIT 1) AS id
           FROM tenants WHERE tenants.org_id IS NOT NULL
           UNION ALL
           SELECT (SELECT event.job_id FROM holdfast.audit_event AS event
                   WHERE event.jobs IS NULL AND event.job_id < ids.id
                   ORDER BY event.job_id DESC LIMIT 1)) AS near
        WHERE near.id IS NOT NULL
        ORDER BY near.id DESC LIMIT 1) AS below,
       (SELECT near.id FROM (
           SELECT (SELECT job.id FROM holdfast.job_envelope AS job
                   WHERE job.org_id = tenants.org_id AND job.id > ids.id
                   ORDER BY job.org_id, job.id LIMIT 1) AS id
           FROM tenants WHERE tenants.org_id IS NOT NULL
           UNION ALL
           SELECT (SELECT event.job_id FROM holdfast.audit_event AS event
                   WHERE event.jobs IS NULL AND event.job_id > ids.id
                   ORDER BY event.job_id LIMIT 1)) AS near
        WHERE near.id IS NOT NULL
        ORDER BY near.id LIMIT 1) AS above
FROM {rows ids: id uuid};

-- find_deliveries :many — crosses tenants: ids of deliveries in a range
SELECT id FROM holdfast.delivery
WHERE id >= :low AND id <= :high
ORDER BY id
LIMIT :limit;

-- find_runs :many — crosses tenants: ids of bounded runs in a range
SELECT run_id AS id FROM holdfast.worker_run
WHERE run_id >= :low AND run_id <= :high
ORDER BY run_id
LIMIT :limit;

-- find_runs_beside :many — crosses tenants: the next smaller and the next larger id of each
SELECT ids.id,
       (SELECT run.run_id FROM holdfast.worker_run AS run WHERE run.run_id < ids.id
        ORDER BY run.run_id DESC LIMIT 1) AS below,
       (SELECT run.run_id FROM holdfast.worker_run AS run WHERE run.run_id > ids.id
        ORDER BY run.run_id LIMIT 1) AS above
FROM {rows ids: id uuid};

-- find_names :many — crosses tenants: the names that ids of tenants and projects were derived from
SELECT known.id, known.name
FROM {rows ids: id uuid}
JOIN holdfast.id_name AS known ON known.id = ids.id;

-- find_tenants :many — crosses tenants: the first two tenants with jobs in a range
-- DISTINCT would read every job of a tenant.
WITH first AS (
    SELECT org_id FROM holdfast.job_envelope WHERE org_id >= :low AND org_id <= :high
    ORDER BY org_id LIMIT 1
), following AS (
    SELECT job.org_id FROM holdfast.job_envelope AS job
    WHERE job.org_id > (SELECT org_id FROM first) AND job.org_id <= :high
    ORDER BY job.org_id LIMIT 1
)
SELECT org_id AS id FROM first
UNION ALL
SELECT org_id FROM following
LIMIT :limit;

-- find_tenants_beside :many — crosses tenants: the next smaller and the next larger id of each
SELECT ids.id,
       (SELECT job.org_id FROM holdfast.job_envelope AS job WHERE job.org_id < ids.id
        ORDER BY job.org_id DESC LIMIT 1) AS below,
       (SELECT job.org_id FROM holdfast.job_envelope AS job WHERE job.org_id > ids.id
        ORDER BY job.org_id LIMIT 1) AS above
FROM {rows ids: id uuid};
