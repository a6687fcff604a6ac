-- find_with_progress :maybe — one job of one tenant with its progress and its deadline
SELECT job.*, stage.progress,
       (SELECT deadline.deadline_at FROM holdfast.job_deadline AS deadline
        WHERE deadline.org_id = job.org_id AND deadline.job_id = job.id) AS deadline_at
FROM holdfast.job AS job
LEFT JOIN holdfast.job_stage AS stage
  ON stage.org_id = job.org_id AND stage.job_id = job.id AND stage.stage = job.stage
WHERE job.org_id = :org_id AND job.id = :id;

-- list_ended :many — those of the awaited jobs that have ended; crosses tenants
SELECT job.org_id, job.id
FROM {rows jobs: org_id uuid, id uuid}
JOIN holdfast.job AS job ON job.org_id = jobs.org_id AND job.id = jobs.id
WHERE job.state IN ('completed', 'failed', 'canceled');
