-- The statement that keeps requests in step with their jobs.

-- follow_jobs :affected — crosses tenants: copies the states of jobs to their requests
UPDATE holdfast.rewrite_request AS request SET
    status = job.state,
    step = CASE WHEN job.state IN ('completed', 'failed', 'canceled')
                THEN job.state ELSE request.step END,
    rewrite_completed_at = CASE WHEN job.state = 'completed' THEN job.finished_at END,
    output_recipient_user_id =
        CASE WHEN job.state = 'completed' THEN request.recipient_user_id END,
    failed_at = CASE WHEN job.state = 'failed' THEN job.finished_at END,
    failure_code = CASE WHEN job.state = 'failed' THEN job.error_class END,
    canceled_at = CASE WHEN job.state = 'canceled' THEN job.finished_at END,
    updated_at = job.updated_at
FROM {rows jobs: org_id uuid, job_id uuid}
JOIN holdfast.job AS job ON job.org_id = jobs.org_id AND job.id = jobs.job_id
WHERE request.org_id = jobs.org_id AND request.job_id = jobs.job_id;
