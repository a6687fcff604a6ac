-- The applied migrations of the core and of each extension, which numbers its own.
CREATE TABLE holdfast.migration (
    component text NOT NULL DEFAULT 'core',
    version integer NOT NULL,
    name text NOT NULL,
    applied_at {instant} NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (component, version)
);

-- One row per job, with its complete state. The columns that an enqueue wrote never change; the
-- others change only along the transitions below.
CREATE TABLE holdfast.job (
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

    state text NOT NULL DEFAULT 'queued',
    queue text NOT NULL,
    stage text NOT NULL DEFAULT '',
    pipeline_version text NOT NULL DEFAULT '',
    attempt_count integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL,
    not_before_at {instant},
    lease_token bigint NOT NULL DEFAULT 0,
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
    finished_at {instant},
    key_last_seen_at {instant} NOT NULL,
    key_expires_at {instant},

    PRIMARY KEY (org_id, id),
    CONSTRAINT job_once_per_key UNIQUE (org_id, idempotency_key),
    CONSTRAINT job_state_known CHECK (
        state IN ('queued', 'processing', 'batch_submitted', 'completed', 'failed', 'canceled')),
    CONSTRAINT job_actor_known CHECK (actor_type IN ('user', 'system', 'api_key')),
    CONSTRAINT job_attempts_in_budget CHECK (attempt_count BETWEEN 0 AND max_attempts),
    CONSTRAINT job_lease_iff_processing CHECK (
        (state = 'processing') = (lease_expires_at IS NOT NULL)
        AND (state = 'processing') = (claimed_at IS NOT NULL)
        AND (state = 'processing') = (claimed_by IS NOT NULL)),
    CONSTRAINT job_finished_iff_terminal CHECK (
        (state IN ('completed', 'failed', 'canceled')) = (finished_at IS NOT NULL)
        AND (finished_at IS NULL) = (key_expires_at IS NULL)),
    CONSTRAINT job_completed_iff_result CHECK ((state = 'completed') = (result IS NOT NULL)),
    CONSTRAINT job_failed_says_why CHECK (
        state <> 'failed'
        OR (error_class IS NOT NULL AND last_error IS NOT NULL AND last_error_at IS NOT NULL)),
    CONSTRAINT job_failed_iff_dead_letter_queue CHECK ((state = 'failed') = (queue = 'q:deadletter')),
    CONSTRAINT job_submitted_names_its_batch CHECK (
        state <> 'batch_submitted' OR provider_batch_id IS NOT NULL)
);

CREATE UNIQUE INDEX job_once_per_unit ON holdfast.job (org_id, job_type, unit_key)
    WHERE unit_key IS NOT NULL;
-- A job is eligible if it is queued and not_before_at is null or past. Two indexes, so that a claim
-- does not scan deferred jobs.
CREATE INDEX job_claimable ON holdfast.job (queue, priority, created_at, id)
    WHERE state = 'queued' AND not_before_at IS NULL;
CREATE INDEX job_deferred ON holdfast.job (queue, not_before_at)
    WHERE state = 'queued' AND not_before_at IS NOT NULL;
CREATE INDEX job_leased ON holdfast.job (lease_expires_at) WHERE state = 'processing';
CREATE INDEX job_finished ON holdfast.job (finished_at) WHERE finished_at IS NOT NULL;

{refuse job_begins_queued BEFORE INSERT ON holdfast.job
WHEN NEW.state <> 'queued' OR NEW.attempt_count <> 0 OR NEW.lease_token <> 0
SAYING 'a job must be inserted queued, without attempts and without a lease'};

-- Immutable columns are checked once, here: a CHECK would run again at every update, and would
-- fetch a large payload from its TOAST table.
{refuse job_payload_is_object BEFORE INSERT ON holdfast.job
WHEN NOT {object(NEW.payload)}
SAYING 'the payload must be a JSON object'};

{refuse job_key_names_its_tenant BEFORE INSERT ON holdfast.job
WHEN substr(NEW.idempotency_key, 1, length(NEW.job_type) + 38)
    <> NEW.job_type || ':' || CAST(NEW.org_id AS text) || ':'
SAYING 'an idempotency key must start with the job type and the tenant'};

{refuse job_edge BEFORE UPDATE OF state ON holdfast.job
WHEN OLD.state <> NEW.state AND NOT (
    (OLD.state = 'queued' AND NEW.state IN ('processing', 'canceled'))
    OR (OLD.state = 'processing'
        AND NEW.state IN ('queued', 'batch_submitted', 'completed', 'failed', 'canceled'))
    OR (OLD.state = 'batch_submitted'
        AND NEW.state IN ('queued', 'completed', 'failed', 'canceled')))
SAYING 'invalid state transition of a job; completed, failed and canceled are final'};

{refuse job_ended BEFORE UPDATE OF stage, attempt_count, max_attempts, last_error, last_error_at,
    error_class, result, finished_at, queue, not_before_at, first_failed_at, provider_batch_id,
    cancel_requested_at, lease_token ON holdfast.job
WHEN OLD.finished_at IS NOT NULL
SAYING 'the job has ended; its outcome is recorded once'};

{refuse job_lease_token BEFORE UPDATE OF state, lease_token ON holdfast.job
WHEN NEW.lease_token <> OLD.lease_token
    + CASE WHEN OLD.state = 'queued' AND NEW.state = 'processing' THEN 1 ELSE 0 END
SAYING 'each claim raises the lease token by one, and nothing else changes it'};

{refuse job_attempts BEFORE UPDATE OF attempt_count, stage ON holdfast.job
WHEN NOT (NEW.attempt_count - OLD.attempt_count IN (0, 1)
    OR (NEW.attempt_count = 0 AND NEW.stage <> OLD.stage))
SAYING 'attempt_count grows by one and resets only at the next stage'};

{refuse job_write_once BEFORE UPDATE OF id, org_id, project_id, job_type, category, actor_type,
    actor_id, request_id, correlation_id, idempotency_key, payload, payload_hash, unit_key,
    scheduled_for, traceparent, routing_decision, replay_of, origin_queue, created_at ON holdfast.job
WHEN NEW.id <> OLD.id OR NEW.org_id <> OLD.org_id OR NEW.job_type <> OLD.job_type
    OR NEW.project_id IS DISTINCT FROM OLD.project_id
    OR NEW.category <> OLD.category OR NEW.actor_type <> OLD.actor_type
    OR NEW.actor_id <> OLD.actor_id OR NEW.request_id <> OLD.request_id
    OR NEW.correlation_id <> OLD.correlation_id OR NEW.idempotency_key <> OLD.idempotency_key
    OR NEW.payload <> OLD.payload OR NEW.payload_hash <> OLD.payload_hash
    OR NEW.unit_key IS DISTINCT FROM OLD.unit_key
    OR NEW.scheduled_for IS DISTINCT FROM OLD.scheduled_for
    OR NEW.traceparent IS DISTINCT FROM OLD.traceparent
    OR NEW.routing_decision IS DISTINCT FROM OLD.routing_decision
    OR NEW.replay_of IS DISTINCT FROM OLD.replay_of
    OR NEW.origin_queue <> OLD.origin_queue OR NEW.created_at <> OLD.created_at
SAYING 'the columns that enqueue writes are immutable'};

{refuse job_batch_write_once BEFORE UPDATE OF provider_batch_id ON holdfast.job
WHEN OLD.provider_batch_id IS NOT NULL
    AND NEW.provider_batch_id IS DISTINCT FROM OLD.provider_batch_id
SAYING 'the first provider batch of a job is immutable'};

{refuse job_leaves_only_when_ended BEFORE DELETE ON holdfast.job
WHEN OLD.finished_at IS NULL
SAYING 'a job that has not ended cannot be deleted'};

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
    FOREIGN KEY (org_id, job_id) REFERENCES holdfast.job (org_id, id) ON DELETE CASCADE,
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
    FOREIGN KEY (org_id, job_id) REFERENCES holdfast.job (org_id, id) ON DELETE CASCADE,
    CONSTRAINT dead_letter_times_in_order CHECK (first_failure_at <= last_failure_at)
);
