-- The applied migrations of the core and of each extension, which numbers its own.
CREATE TABLE holdfast.migration (
    component text NOT NULL DEFAULT 'core',
    version integer NOT NULL,
    name text NOT NULL,
    applied_at {instant} NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (component, version)
);

-- What an enqueue asked for. The row never changes: what happens to the job afterwards is a row of
-- another table. Columns that are NULL have the default that the view holdfast.job shows.
CREATE TABLE holdfast.job_envelope (
    org_id {uuid} NOT NULL,
    id {uuid} NOT NULL,
    turn {uuid},
    -- The id of its event job.enqueued.
    event_id bigint NOT NULL,
    created_at {instant} NOT NULL,
    not_before_at {instant},
    scheduled_for {instant},
    project_id {uuid},
    replay_of {uuid},
    max_attempts smallint NOT NULL,
    priority smallint NOT NULL,
    job_type text NOT NULL,
    category text NOT NULL,
    origin_queue text NOT NULL,
    -- Where it waits until not_before_at, if that is another queue.
    queue text,
    limit_key text NOT NULL DEFAULT '',
    stage text NOT NULL DEFAULT '',
    pipeline_version text NOT NULL DEFAULT '',
    actor_type text NOT NULL,
    actor_id text NOT NULL,
    request_id text,
    correlation_id text,
    idempotency_key text,
    unit_key text,
    payload_hash text NOT NULL,
    traceparent text,
    routing_decision {json},
    payload {json} NOT NULL,

    PRIMARY KEY (org_id, id),
    CONSTRAINT job_actor_known CHECK (actor_type IN ('user', 'system', 'api_key')),
    CONSTRAINT job_attempts_positive CHECK (max_attempts > 0),
    CONSTRAINT job_not_enqueued_dead CHECK (
        origin_queue <> 'q:deadletter' AND (queue IS NULL OR queue <> 'q:deadletter')),
    CONSTRAINT job_payload_is_object CHECK ({object(payload)}),
    -- An idempotency key starts with the job type and the tenant.
    CONSTRAINT job_key_names_its_tenant CHECK (
        substr(idempotency_key, 1, length(job_type) + 38)
        = job_type || ':' || CAST(org_id AS text) || ':')
);
CREATE UNIQUE INDEX job_once_per_key ON holdfast.job_envelope (org_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
-- A replay has the unit of the job that it repeats, which stays the one job of its unit.
CREATE UNIQUE INDEX job_once_per_unit ON holdfast.job_envelope (org_id, job_type, unit_key)
    WHERE unit_key IS NOT NULL AND replay_of IS NULL;
CREATE INDEX job_replay ON holdfast.job_envelope (org_id, replay_of) WHERE replay_of IS NOT NULL;

{refuse job_envelope_never_changes BEFORE UPDATE ON holdfast.job_envelope
WHEN TRUE SAYING 'the columns that enqueue writes are immutable'};

-- Where a job is until it has ended: in one of job_ready, job_waiting, job_running and
-- job_submitted. The triggers of 0004 move it when a row of a fact is inserted, and refuse every
-- other change.

-- Jobs that a worker can claim now, by backlog: the jobs of one tenant in one queue under one limit
-- key, ordered by their turn. That is the job's id, shifted by its priority: an urgent job overtakes
-- only jobs that were enqueued within the time that its priority is worth.
CREATE TABLE holdfast.job_ready (
    queue text NOT NULL,
    limit_key text NOT NULL,
    org_id {uuid} NOT NULL,
    turn {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    created_at {instant} NOT NULL,
    -- The token of the last claim; 0 before the first.
    lease_token integer NOT NULL,
    -- The type and the key of its execution unit, which one claim locks at a time; or ''.
    unit text NOT NULL,
    PRIMARY KEY (queue, limit_key, org_id, turn)
){clustered};
-- The predicate is always true. Because of it, PostgreSQL finds single rows by the primary key: if the
-- table was empty when it was analyzed, both indexes look equally good, and this one reads the queue.
CREATE INDEX job_ready_oldest ON holdfast.job_ready (queue, created_at, job_id)
    WHERE lease_token >= 0;

-- Jobs that wait for a time. A pass moves those that are due to job_ready: it sets not_before_at to
-- NULL.
CREATE TABLE holdfast.job_waiting (
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    queue text NOT NULL,
    limit_key text NOT NULL,
    turn {uuid} NOT NULL,
    created_at {instant} NOT NULL,
    not_before_at {instant},
    lease_token integer NOT NULL,
    unit text NOT NULL,
    PRIMARY KEY (org_id, job_id)
){clustered};
CREATE INDEX job_waiting_due ON holdfast.job_waiting (queue, not_before_at);
CREATE INDEX job_waiting_due_of_tenant ON holdfast.job_waiting (queue, org_id, not_before_at);

-- Claimed jobs. Each claim raises the lease token by one; an outcome with another token is refused.
CREATE TABLE holdfast.job_running (
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    turn {uuid} NOT NULL,
    -- The id of its event job.started, and the attempt that the event names.
    started_event_id bigint NOT NULL,
    claimed_at {instant} NOT NULL,
    lease_expires_at {instant} NOT NULL,
    lease_token integer NOT NULL,
    started_attempt smallint NOT NULL,
    attempt_count smallint NOT NULL,
    max_attempts smallint NOT NULL,
    queue text NOT NULL,
    limit_key text NOT NULL,
    stage text NOT NULL,
    claimed_by text NOT NULL,
    PRIMARY KEY (org_id, job_id)
){clustered};

-- Jobs whose request was sent to a provider in a batch.
CREATE TABLE holdfast.job_submitted (
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    started_event_id bigint NOT NULL,
    claimed_at {instant} NOT NULL,
    submitted_at {instant} NOT NULL,
    lease_token integer NOT NULL,
    started_attempt smallint NOT NULL,
    queue text NOT NULL,
    stage text NOT NULL,
    claimed_by text NOT NULL,
    provider_batch_id text NOT NULL,
    PRIMARY KEY (org_id, job_id)
){clustered};

-- A claim that ended without an outcome, or a stage that ended within a claim. The newest row of a
-- job is its state for the next claim.
CREATE TABLE holdfast.job_attempt (
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    number integer NOT NULL,
    lease_token integer NOT NULL,
    -- The claim that has ended; NULL if it goes on.
    started_event_id bigint,
    claimed_at {instant},
    ended_at {instant} NOT NULL,
    not_before_at {instant},
    first_failed_at {instant},
    last_error_at {instant},
    started_attempt smallint,
    attempt_count smallint NOT NULL,
    max_attempts smallint NOT NULL,
    -- Whether the claim goes on, with the next stage.
    keeps_lease boolean NOT NULL,
    claimed_by text,
    stage text NOT NULL,
    pipeline_version text NOT NULL,
    error_class text,
    last_error text,
    provider_batch_id text,
    PRIMARY KEY (org_id, job_id, number),
    CONSTRAINT job_attempt_ends_its_claim CHECK (
        keeps_lease = (started_event_id IS NULL) AND keeps_lease = (claimed_at IS NULL)
        AND keeps_lease = (claimed_by IS NULL) AND keeps_lease = (started_attempt IS NULL)),
    CONSTRAINT job_attempts_in_budget CHECK (attempt_count BETWEEN 0 AND max_attempts),
    CONSTRAINT job_attempt_says_why CHECK (
        (last_error IS NULL) = (error_class IS NULL)
        AND (last_error IS NULL) = (last_error_at IS NULL)
        AND (last_error IS NULL) = (first_failed_at IS NULL))
){clustered};
{refuse job_attempt_never_changes BEFORE UPDATE ON holdfast.job_attempt
WHEN TRUE SAYING 'an attempt is recorded once'};

-- How a job ended. The primary key allows one outcome.
CREATE TABLE holdfast.job_outcome (
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    -- The id of its event job.succeeded, and who settled it; NULL if the event is a row of its own.
    event_id bigint,
    -- The claim that has ended; NULL if the job was waiting.
    started_event_id bigint,
    claimed_at {instant},
    finished_at {instant} NOT NULL,
    key_expires_at {instant} NOT NULL,
    lease_token integer NOT NULL,
    started_attempt smallint,
    attempt_count smallint NOT NULL,
    state text NOT NULL,
    settled_by text,
    claimed_by text,
    -- The last stage, if the claim did not name it.
    stage text,
    error_class text,
    last_error text,
    provider_batch_id text,
    result {json},
    PRIMARY KEY (org_id, job_id),
    CONSTRAINT job_outcome_known CHECK (state IN ('completed', 'failed', 'canceled')),
    CONSTRAINT job_completed_iff_result CHECK ((state = 'completed') = (result IS NOT NULL)),
    CONSTRAINT job_failed_says_why CHECK (
        (state = 'failed') = (last_error IS NOT NULL) AND (state = 'failed') = (error_class IS NOT NULL)),
    CONSTRAINT job_outcome_was_claimed CHECK (
        (state = 'canceled' OR (lease_token > 0 AND started_event_id IS NOT NULL))
        AND (started_event_id IS NULL) = (claimed_at IS NULL)
        AND (started_event_id IS NULL) = (claimed_by IS NULL)
        AND (started_event_id IS NULL) = (started_attempt IS NULL)),
    CONSTRAINT job_outcome_event_names_its_actor CHECK (
        (event_id IS NULL) = (settled_by IS NULL) AND (event_id IS NULL OR state = 'completed'))
){clustered};
{refuse job_outcome_never_changes BEFORE UPDATE ON holdfast.job_outcome
WHEN TRUE SAYING 'the outcome of a job is recorded once'};
CREATE INDEX job_outcome_ended ON holdfast.job_outcome (finished_at) WHERE state <> 'failed';
CREATE INDEX job_outcome_failed ON holdfast.job_outcome (finished_at) WHERE state = 'failed';

-- The first cancel request of a job.
CREATE TABLE holdfast.job_cancel (
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    requested_at {instant} NOT NULL,
    PRIMARY KEY (org_id, job_id),
    FOREIGN KEY (org_id, job_id) REFERENCES holdfast.job_envelope (org_id, id) ON DELETE CASCADE
){clustered};
{refuse job_cancel_never_changes BEFORE UPDATE ON holdfast.job_cancel
WHEN TRUE SAYING 'a cancel request is recorded once'};

-- When the key of a job was requested again.
CREATE TABLE holdfast.job_key_seen (
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    last_seen_at {instant} NOT NULL,
    PRIMARY KEY (org_id, job_id)
){clustered};

-- The record of each job: what was asked for, where it is, and how it ended.
CREATE VIEW holdfast.job AS
SELECT
    envelope.id, envelope.org_id, envelope.project_id, envelope.job_type, envelope.category,
    envelope.actor_type, envelope.actor_id,
    coalesce(envelope.request_id, CAST(envelope.id AS text)) AS request_id,
    coalesce(envelope.correlation_id, envelope.request_id, CAST(envelope.id AS text))
        AS correlation_id,
    coalesce(envelope.idempotency_key,
             envelope.job_type || ':' || CAST(envelope.org_id AS text) || ':'
             || coalesce(CAST(envelope.project_id AS text), '') || ':'
             || replace(CAST(envelope.id AS text), '-', '')) AS idempotency_key,
    envelope.payload, envelope.payload_hash, envelope.priority, envelope.unit_key,
    envelope.scheduled_for, envelope.traceparent, envelope.routing_decision, envelope.replay_of,
    envelope.origin_queue, envelope.created_at,
    CASE WHEN outcome.state IS NOT NULL THEN outcome.state
         WHEN running.job_id IS NOT NULL THEN 'processing'
         WHEN submitted.job_id IS NOT NULL THEN 'batch_submitted'
         ELSE 'queued' END AS state,
    CASE WHEN outcome.state = 'failed' THEN 'q:deadletter'
         ELSE coalesce(running.queue, waiting.queue, submitted.queue, envelope.origin_queue)
         END AS queue,
    coalesce(outcome.stage, attempt.stage, running.stage, submitted.stage, envelope.stage) AS stage,
    coalesce(attempt.pipeline_version, envelope.pipeline_version) AS pipeline_version,
    coalesce(outcome.attempt_count, attempt.attempt_count, 0) AS attempt_count,
    coalesce(attempt.max_attempts, envelope.max_attempts) AS max_attempts,
    waiting.not_before_at,
    coalesce(outcome.lease_token, running.lease_token, submitted.lease_token, attempt.lease_token,
             0) AS lease_token,
    running.lease_expires_at, running.claimed_at, running.claimed_by,
    (SELECT cancel.requested_at FROM holdfast.job_cancel AS cancel
     WHERE cancel.org_id = envelope.org_id AND cancel.job_id = envelope.id) AS cancel_requested_at,
    coalesce(attempt.provider_batch_id, submitted.provider_batch_id, outcome.provider_batch_id)
        AS provider_batch_id,
    CASE WHEN outcome.last_error IS NOT NULL
              AND (attempt.first_failed_at IS NULL OR outcome.finished_at < attempt.first_failed_at)
         THEN outcome.finished_at ELSE attempt.first_failed_at END AS first_failed_at,
    coalesce(outcome.last_error, attempt.last_error) AS last_error,
    CASE WHEN outcome.last_error IS NOT NULL THEN outcome.finished_at
         ELSE attempt.last_error_at END AS last_error_at,
    coalesce(outcome.error_class, attempt.error_class) AS error_class,
    outcome.result,
    coalesce(outcome.finished_at, (
        SELECT max(change.at) FROM (
            SELECT coalesce(running.claimed_at, submitted.submitted_at, envelope.created_at) AS at
            UNION ALL
            SELECT attempt.ended_at
            UNION ALL
            SELECT cancel.requested_at FROM holdfast.job_cancel AS cancel
            WHERE cancel.org_id = envelope.org_id AND cancel.job_id = envelope.id) AS change))
        AS updated_at,
    outcome.finished_at,
    coalesce((SELECT seen.last_seen_at FROM holdfast.job_key_seen AS seen
              WHERE seen.org_id = envelope.org_id AND seen.job_id = envelope.id),
             envelope.created_at) AS key_last_seen_at,
    outcome.key_expires_at,
    coalesce(envelope.turn, envelope.id) AS turn,
    envelope.limit_key
FROM holdfast.job_envelope AS envelope
LEFT JOIN holdfast.job_outcome AS outcome
  ON outcome.org_id = envelope.org_id AND outcome.job_id = envelope.id
LEFT JOIN holdfast.job_running AS running
  ON running.org_id = envelope.org_id AND running.job_id = envelope.id
LEFT JOIN holdfast.job_waiting AS waiting
  ON waiting.org_id = envelope.org_id AND waiting.job_id = envelope.id
LEFT JOIN holdfast.job_submitted AS submitted
  ON submitted.org_id = envelope.org_id AND submitted.job_id = envelope.id
{last_attempt attempt: envelope.org_id, envelope.id};

-- A lease that was extended while another transaction holds the row of its job. On SQLite another
-- transaction holds every row: there the same table is in a file beside the database, and this one
-- stays empty.
CREATE TABLE holdfast.lease_extension (
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    lease_token bigint NOT NULL,
    lease_expires_at {instant} NOT NULL,
    PRIMARY KEY (org_id, job_id, lease_token)
);

-- The result of a finished stage, or the checkpoint of a running one.
CREATE TABLE holdfast.job_stage (
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    stage text NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    output {json},
    checkpoint {json},
    progress {json},
    updated_at {instant} NOT NULL,
    finished_at {instant},
    PRIMARY KEY (org_id, job_id, stage),
    FOREIGN KEY (org_id, job_id) REFERENCES holdfast.job_envelope (org_id, id) ON DELETE CASCADE,
    CONSTRAINT job_stage_output_iff_finished CHECK ((output IS NULL) = (finished_at IS NULL))
);

{refuse job_stage_output_write_once BEFORE UPDATE ON holdfast.job_stage
WHEN OLD.finished_at IS NOT NULL
SAYING 'the result of a finished stage is immutable'};

CREATE TABLE holdfast.dead_letter (
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    job_type text NOT NULL,
    queue text NOT NULL,
    stage text NOT NULL,
    error_class text NOT NULL,
    last_error text NOT NULL,
    last_stack text NOT NULL,
    sanitized_context {json} NOT NULL,
    attempts integer NOT NULL,
    first_failure_at {instant} NOT NULL,
    last_failure_at {instant} NOT NULL,
    created_at {instant} NOT NULL,
    PRIMARY KEY (org_id, job_id),
    FOREIGN KEY (org_id, job_id) REFERENCES holdfast.job_envelope (org_id, id) ON DELETE CASCADE,
    CONSTRAINT dead_letter_times_in_order CHECK (first_failure_at <= last_failure_at)
);
