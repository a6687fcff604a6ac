-- find_with_progress :maybe — one job of one tenant with its progress and its deadline
SELECT job.*, coalesce(stage.progress, archived.progress) AS progress,
       (SELECT deadline.deadline_at FROM holdfast.job_deadline AS deadline
        WHERE deadline.org_id = job.org_id AND deadline.job_id = job.id) AS deadline_at
FROM holdfast.job_record AS job
LEFT JOIN holdfast.job_stage AS stage
  ON stage.org_id = job.org_id AND stage.job_id = job.id AND stage.stage = job.stage
LEFT JOIN holdfast.job_stage_history AS archived
  ON archived.org_id = job.org_id AND archived.job_id = job.id AND archived.stage = job.stage
WHERE job.org_id = :org_id AND job.id = :id;

-- list_ended :many — those of the awaited jobs that have ended; crosses tenants
SELECT job.org_id, job.id
FROM {rows jobs: org_id uuid, id uuid}
JOIN holdfast.job_record AS job ON job.org_id = jobs.org_id AND job.id = jobs.id
WHERE job.state IN ('completed', 'failed', 'canceled');
