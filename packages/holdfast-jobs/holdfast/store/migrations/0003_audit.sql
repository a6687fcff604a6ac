-- One row per change, in the transaction of the change. No foreign key: the audit outlives the job.
CREATE TABLE holdfast.job_event (
    id {identity},
    org_id {uuid} NOT NULL,
    project_id {uuid},
    job_id {uuid} NOT NULL,
    job_type text NOT NULL,
    name text NOT NULL,
    attempt integer NOT NULL,
    actor_type text NOT NULL,
    actor_id text NOT NULL,
    request_id text NOT NULL,
    correlation_id text NOT NULL,
    at {instant} NOT NULL,
    detail {json},
    -- Digest of the written columns, for verify (digest.py).
    digest text
);
CREATE INDEX job_event_of_job ON holdfast.job_event (job_id);

{refuse job_event_never_changes BEFORE UPDATE ON holdfast.job_event
WHEN TRUE SAYING 'the audit is append-only'};
{refuse job_event_never_leaves BEFORE DELETE ON holdfast.job_event
WHEN TRUE SAYING 'the audit is append-only'};

-- The idempotency record of each key. Its status is derived from the job's state, so the two cannot
-- diverge.
CREATE VIEW holdfast.idempotency_key AS
SELECT
    job.org_id,
    job.idempotency_key,
    job.id AS job_id,
    CASE
        WHEN job.state = 'queued' AND job.attempt_count = 0 THEN 'pending'
        WHEN job.state IN ('processing', 'batch_submitted') THEN 'running'
        WHEN job.state = 'completed' THEN 'succeeded'
        WHEN job.state = 'failed' THEN 'dead'
        ELSE 'failed'
    END AS status,
    job.created_at AS first_seen_at,
    job.key_last_seen_at AS last_seen_at,
    CASE WHEN job.state = 'completed' THEN 'job:' || CAST(job.id AS text) END AS result_ref,
    CASE
        WHEN job.state = 'failed' THEN 'dead_letter:' || CAST(job.id AS text)
        WHEN job.state = 'canceled' THEN 'event:' || (
            SELECT CAST(max(event.id) AS text) FROM holdfast.job_event AS event
            WHERE event.job_id = job.id AND event.name = 'job.canceled')
    END AS error_ref,
    job.key_expires_at AS expires_at
FROM holdfast.job AS job;
