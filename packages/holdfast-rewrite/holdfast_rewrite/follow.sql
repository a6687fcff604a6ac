-- The statements that keep requests and drafts in step with their jobs.

-- follow_jobs :affected — crosses tenants: copies the states of jobs to their requests
-- A job whose rewrite waits for a verdict has completed; its request has not.
UPDATE holdfast.rewrite_request AS request SET
    status = CASE WHEN jobs.state = 'completed' AND {field(ended.result, draft)} IS NOT NULL
                  THEN request.status ELSE jobs.state END,
    step = CASE WHEN jobs.state = 'completed' AND {field(ended.result, draft)} IS NOT NULL
                THEN {field(ended.result, draft)}
                WHEN jobs.state IN ('completed', 'failed', 'canceled')
                THEN jobs.state ELSE request.step END,
    rewrite_completed_at =
        CASE WHEN jobs.state = 'completed' AND {field(ended.result, draft)} IS NULL
             THEN ended.finished_at END,
    output_recipient_user_id =
        CASE WHEN jobs.state = 'completed' AND {field(ended.result, draft)} IS NULL
             THEN request.recipient_user_id END,
    failed_at = CASE WHEN jobs.state = 'failed' THEN ended.finished_at END,
    failure_code = CASE WHEN jobs.state = 'failed' THEN ended.error_class END,
    canceled_at = CASE WHEN jobs.state = 'canceled' THEN ended.finished_at END,
    updated_at = {now}
FROM {rows jobs: org_id uuid, job_id uuid, state text}
LEFT JOIN holdfast.job_outcome AS ended
  ON ended.org_id = jobs.org_id AND ended.job_id = jobs.job_id
WHERE request.org_id = jobs.org_id AND request.job_id = jobs.job_id;

-- follow_judges :affected — crosses tenants: the ruling of a judge's job moves the request
-- A judge's job that failed or was canceled has no verdict, so a person decides.
UPDATE holdfast.rewrite_request AS request SET
    step = CASE coalesce({field(job.result, ruling)}, 'held')
                WHEN 'stored' THEN 'completed' WHEN 'rejected' THEN 'failed' ELSE 'held' END,
    status = CASE coalesce({field(job.result, ruling)}, 'held')
                  WHEN 'stored' THEN 'completed' WHEN 'rejected' THEN 'failed'
                  ELSE request.status END,
    rewrite_completed_at =
        CASE WHEN {field(job.result, ruling)} = 'stored' THEN job.finished_at END,
    output_recipient_user_id =
        CASE WHEN {field(job.result, ruling)} = 'stored' THEN request.recipient_user_id END,
    failed_at = CASE WHEN {field(job.result, ruling)} = 'rejected' THEN job.finished_at END,
    failure_code = CASE WHEN {field(job.result, ruling)} = 'rejected' THEN 'OUTPUT_REJECTED' END,
    updated_at = {now}
FROM {rows jobs: org_id uuid, job_id uuid}
JOIN holdfast.job_outcome AS job
  ON job.org_id = jobs.org_id AND job.job_id = jobs.job_id
JOIN holdfast.rewrite_draft AS draft
  ON draft.org_id = jobs.org_id AND draft.judge_job_id = jobs.job_id
WHERE request.org_id = draft.org_id AND request.rewrite_request_id = draft.rewrite_request_id
  AND request.step = 'judging';

-- hold_drafts :affected — crosses tenants: drafts whose judge gave no verdict
UPDATE holdfast.rewrite_draft AS draft
SET state = 'held', hold_reason = 'no_verdict', held_at = {now},
    no_verdict_code = CASE WHEN job.state = 'canceled' THEN 'canceled'
                           ELSE lower(job.error_class) END,
    updated_at = {now}
FROM {rows jobs: org_id uuid, job_id uuid}
JOIN holdfast.job_outcome AS job
  ON job.org_id = jobs.org_id AND job.job_id = jobs.job_id
WHERE draft.org_id = jobs.org_id AND draft.judge_job_id = jobs.job_id
  AND draft.state = 'judging';
