-- Ended jobs are moved out of the job table and stay readable here until their retention is over.
-- The columns are those of job, in the same order: rows are moved unchanged.
CREATE TABLE holdfast.job_history (
    id {uuid} NOT NULL,
    org_id {uuid} NOT NULL,
    project_id {uuid},
    job_type text NOT NULL,
    category text NOT NULL,
    actor_type text NOT NULL,
    actor_id text NOT NULL,
    request_id text NOT NULL,
    correlation_id text NOT NULL,
    idempotency_key text NOT NULL,
    payload {json} NOT NULL,
    payload_hash text NOT NULL,
    priority smallint NOT NULL,
    unit_key text,
    scheduled_for {instant},
    traceparent text,
    routing_decision {json},
    replay_of {uuid},
    origin_queue text NOT NULL,
    created_at {instant} NOT NULL,

    state text NOT NULL,
    queue text NOT NULL,
    stage text NOT NULL,
    pipeline_version text NOT NULL,
    attempt_count integer NOT NULL,
    max_attempts integer NOT NULL,
    not_before_at {instant},
    lease_token bigint NOT NULL,
    lease_expires_at {instant},
    claimed_at {instant},
    claimed_by text,
    cancel_requested_at {instant},
    provider_batch_id text,
    first_failed_at {instant},
    last_error text,
    last_error_at {instant},
    error_class text,
    result {json},
    updated_at {instant} NOT NULL,
    finished_at {instant} NOT NULL,
    key_last_seen_at {instant} NOT NULL,
    key_expires_at {instant} NOT NULL,
    turn {uuid},
    limit_key text NOT NULL,

    PRIMARY KEY (org_id, id),
    CONSTRAINT job_history_once_per_key UNIQUE (org_id, idempotency_key),
    CONSTRAINT job_history_ended CHECK (
        state IN ('completed', 'canceled') AND lease_expires_at IS NULL
        AND (state = 'completed') = (result IS NOT NULL))
);
CREATE UNIQUE INDEX job_history_once_per_unit ON holdfast.job_history (org_id, job_type, unit_key)
    WHERE unit_key IS NOT NULL;
-- By type first: a prune does not scan types with a longer retention.
CREATE INDEX job_history_of_kind ON holdfast.job_history (category, job_type, state, finished_at);

-- Naming one of these columns in an update is refused, even if the value does not change.
{refuse job_history_never_changes BEFORE UPDATE OF id, org_id, project_id, job_type, category,
    actor_type, actor_id, request_id, correlation_id, idempotency_key, payload, payload_hash,
    priority, unit_key, scheduled_for, traceparent, routing_decision, replay_of, origin_queue,
    created_at, state, queue, stage, pipeline_version, attempt_count, max_attempts, not_before_at,
    lease_token, lease_expires_at, claimed_at, claimed_by, cancel_requested_at, provider_batch_id,
    first_failed_at, last_error, last_error_at, error_class, result, updated_at, finished_at,
    key_expires_at, turn, limit_key ON holdfast.job_history
WHEN TRUE
SAYING 'history is immutable; only the last request for a key is updated'};

CREATE TABLE holdfast.job_stage_history (
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    stage text NOT NULL,
    attempts integer NOT NULL,
    output {json},
    checkpoint {json},
    progress {json},
    updated_at {instant} NOT NULL,
    finished_at {instant},
    PRIMARY KEY (org_id, job_id, stage),
    FOREIGN KEY (org_id, job_id) REFERENCES holdfast.job_history (org_id, id) ON DELETE CASCADE
);
{refuse job_stage_history_never_changes BEFORE UPDATE ON holdfast.job_stage_history
WHEN TRUE
SAYING 'history is immutable'};

-- Operators work on dead letters, so failed jobs stay in the job table until they are pruned. Each
-- ended job is in one of these two indexes: an archive pass does not scan failed jobs.
DROP INDEX holdfast.job_finished;
CREATE INDEX job_archivable ON holdfast.job (finished_at) WHERE state IN ('completed', 'canceled');
CREATE INDEX job_failed ON holdfast.job (category, job_type, finished_at) WHERE state = 'failed';

-- A job in either table.
CREATE VIEW holdfast.job_record AS
SELECT id, org_id, project_id, job_type, category, actor_type, actor_id, request_id,
       correlation_id, idempotency_key, payload, payload_hash, priority, unit_key, scheduled_for,
       traceparent, routing_decision, replay_of, origin_queue, created_at, state, queue, stage,
       pipeline_version, attempt_count, max_attempts, not_before_at, lease_token,
       lease_expires_at, claimed_at, claimed_by, cancel_requested_at, provider_batch_id,
       first_failed_at, last_error, last_error_at, error_class, result, updated_at, finished_at,
       key_last_seen_at, key_expires_at, turn, limit_key
FROM holdfast.job
UNION ALL
SELECT id, org_id, project_id, job_type, category, actor_type, actor_id, request_id,
       correlation_id, idempotency_key, payload, payload_hash, priority, unit_key, scheduled_for,
       traceparent, routing_decision, replay_of, origin_queue, created_at, state, queue, stage,
       pipeline_version, attempt_count, max_attempts, not_before_at, lease_token,
       lease_expires_at, claimed_at, claimed_by, cancel_requested_at, provider_batch_id,
       first_failed_at, last_error, last_error_at, error_class, result, updated_at, finished_at,
       key_last_seen_at, key_expires_at, turn, limit_key
FROM holdfast.job_history;

-- The idempotency record of each key. Its status is derived from the job's state, so the two cannot
-- diverge. Keys in history are included.
DROP VIEW holdfast.idempotency_key;
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
FROM holdfast.job_record AS job;
