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
    -- Of what the change wrote, for verify (digest.py).
    digest text
);
CREATE INDEX job_event_of_job ON holdfast.job_event (job_id);

{refuse job_event_never_changes BEFORE UPDATE ON holdfast.job_event
WHEN TRUE SAYING 'the audit is append-only'};
{refuse job_event_never_leaves BEFORE DELETE ON holdfast.job_event
WHEN TRUE SAYING 'the audit is append-only'};

-- Seals make the audit tamper-evident after the fact, off the hot path: a seal covers the next
-- events of one tenant with a short hash each, and is chained to the seal before it.
CREATE TABLE holdfast.audit_seal (
    org_id {uuid} NOT NULL,
    number integer NOT NULL,
    first_seq bigint NOT NULL,
    event_count integer NOT NULL,
    first_event_id bigint NOT NULL,
    last_event_id bigint NOT NULL,
    leaves text NOT NULL,
    digest text NOT NULL,
    sealed_at {instant} NOT NULL,
    PRIMARY KEY (org_id, number)
);
{refuse audit_seal_never_changes BEFORE UPDATE ON holdfast.audit_seal
WHEN TRUE SAYING 'a seal never changes'};
{refuse audit_seal_never_leaves BEFORE DELETE ON holdfast.audit_seal
WHEN TRUE SAYING 'a seal never leaves'};

-- How far sealing has come, and how far it may go once the transactions of its time have ended.
CREATE TABLE holdfast.audit_cursor (
    only_row integer NOT NULL PRIMARY KEY CHECK (only_row = 1),
    sealed_to bigint NOT NULL,
    next_to bigint NOT NULL,
    next_horizon bigint NOT NULL
);
INSERT INTO holdfast.audit_cursor VALUES (1, 0, 0, 0);

-- The idempotency record of each key. Its status is a word for the job's own state, so the two
-- cannot drift apart.
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
