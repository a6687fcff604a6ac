-- Statements that keep reviews in step with their jobs and with replays of those.

-- follow_jobs :affected — crosses tenants: copies the state of the last job to its review
UPDATE holdfast.review AS review SET
    status = jobs.state,
    succeeded_at = CASE WHEN jobs.state = 'completed' THEN ended.finished_at END,
    updated_at = {now}
FROM {rows jobs: org_id uuid, job_id uuid, state text}
JOIN holdfast.job_envelope AS job ON job.org_id = jobs.org_id AND job.id = jobs.job_id
LEFT JOIN holdfast.job_outcome AS ended ON ended.org_id = job.org_id AND ended.job_id = job.id
WHERE review.org_id = jobs.org_id AND review.job_id = coalesce(job.replay_of, job.id);

-- delete_seals :affected — crosses tenants: a canceled review never resumes; its patch stays sealed
DELETE FROM holdfast.review_seal
WHERE (org_id, review_id) IN (
    SELECT review.org_id, review.review_id
    FROM {rows jobs: org_id uuid, job_id uuid}
    JOIN holdfast.job_envelope AS job ON job.org_id = jobs.org_id AND job.id = jobs.job_id
    JOIN holdfast.review AS review
      ON review.org_id = job.org_id AND review.job_id = coalesce(job.replay_of, job.id));
