-- Bulk actions that wait or run.

-- find_unfinished :maybe — crosses tenants: a bulk action that has not ended
SELECT job.id
FROM holdfast.job AS job
WHERE job.queue = :queue AND job.job_type = :job_type AND job.state IN ('queued', 'processing')
LIMIT 1;
