-- Bulk actions that wait or run.

-- find_unfinished :maybe — crosses tenants: a bulk action that has not ended
SELECT job.id
FROM (SELECT org_id, job_id FROM holdfast.job_ready WHERE queue = :queue
      UNION ALL
      SELECT org_id, job_id FROM holdfast.job_waiting WHERE queue = :queue
      UNION ALL
      SELECT org_id, job_id FROM holdfast.job_running WHERE queue = :queue) AS place
JOIN holdfast.job_envelope AS job ON job.org_id = place.org_id AND job.id = place.job_id
WHERE job.job_type = :job_type
LIMIT 1;
