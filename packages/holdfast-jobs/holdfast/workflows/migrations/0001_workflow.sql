-- A workflow is a graph of steps. Its row is locked by every transaction that ends a job of it, so
-- that two of them cannot both miss that the other one was the last.
CREATE TABLE holdfast.workflow (
    org_id {uuid} NOT NULL,
    id {uuid} NOT NULL,
    project_id {uuid},
    name text NOT NULL,
    workflow_key text NOT NULL,
    state text NOT NULL DEFAULT 'running',
    actor_type text NOT NULL,
    actor_id text NOT NULL,
    created_at {instant} NOT NULL,
    updated_at {instant} NOT NULL,
    ended_at {instant},
    PRIMARY KEY (org_id, id),
    CONSTRAINT workflow_once_per_key UNIQUE (org_id, workflow_key),
    CONSTRAINT workflow_state_known CHECK (
        state IN ('running', 'completed', 'failed', 'canceled')),
    CONSTRAINT workflow_running_iff_not_ended CHECK ((state = 'running') = (ended_at IS NULL))
);
CREATE INDEX workflow_ended ON holdfast.workflow (ended_at) WHERE ended_at IS NOT NULL;

-- One node of the graph. A mapped step has many items, each of them a job; any other has one. The
-- counters change with the items. *request* has the columns that its jobs share.
CREATE TABLE holdfast.workflow_step (
    org_id {uuid} NOT NULL,
    workflow_id {uuid} NOT NULL,
    step text NOT NULL,
    place integer NOT NULL,
    job_type text NOT NULL,
    is_mapped smallint NOT NULL,
    on_failure text NOT NULL,
    request {json} NOT NULL,
    delay_ms bigint,
    deadline_ms bigint,
    state text NOT NULL DEFAULT 'waiting',
    item_count integer NOT NULL,
    items_left integer NOT NULL,
    items_failed integer NOT NULL DEFAULT 0,
    released_at {instant},
    deadline_at {instant},
    ended_at {instant},
    PRIMARY KEY (org_id, workflow_id, step),
    FOREIGN KEY (org_id, workflow_id) REFERENCES holdfast.workflow (org_id, id) ON DELETE CASCADE,
    CONSTRAINT workflow_step_state_known CHECK (
        state IN ('waiting', 'released', 'running', 'completed', 'failed', 'canceled')),
    CONSTRAINT workflow_step_policy_known CHECK (on_failure IN ('fail', 'continue', 'ignore')),
    CONSTRAINT workflow_step_items_in_range CHECK (
        items_left BETWEEN 0 AND item_count AND items_failed BETWEEN 0 AND item_count)
);
CREATE INDEX workflow_step_in_state ON holdfast.workflow_step (org_id, workflow_id, state);
CREATE INDEX workflow_step_overdue ON holdfast.workflow_step (deadline_at)
    WHERE deadline_at IS NOT NULL;

-- *step* runs after *needs*. With an argument, the result of *needs* is that argument of *step*.
CREATE TABLE holdfast.workflow_edge (
    org_id {uuid} NOT NULL,
    workflow_id {uuid} NOT NULL,
    step text NOT NULL,
    needs text NOT NULL,
    argument text NOT NULL DEFAULT '',
    PRIMARY KEY (org_id, workflow_id, step, needs, argument),
    FOREIGN KEY (org_id, workflow_id) REFERENCES holdfast.workflow (org_id, id) ON DELETE CASCADE
);
CREATE INDEX workflow_edge_of_needs ON holdfast.workflow_edge (org_id, workflow_id, needs);

-- One job of a step. The payload is kept here until the step is released. The result is kept here
-- longer than the job, which retention may delete before the next step reads it.
CREATE TABLE holdfast.workflow_item (
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    workflow_id {uuid} NOT NULL,
    step text NOT NULL,
    place integer NOT NULL,
    idempotency_key text NOT NULL,
    payload {json},
    payload_hash text NOT NULL,
    turn {uuid},
    state text NOT NULL DEFAULT 'waiting',
    result {json},
    PRIMARY KEY (org_id, job_id),
    CONSTRAINT workflow_item_once_per_place UNIQUE (org_id, workflow_id, step, place),
    FOREIGN KEY (org_id, workflow_id) REFERENCES holdfast.workflow (org_id, id) ON DELETE CASCADE,
    CONSTRAINT workflow_item_state_known CHECK (
        state IN ('waiting', 'completed', 'failed', 'canceled'))
);

{refuse workflow_item_completed_once BEFORE UPDATE ON holdfast.workflow_item
WHEN OLD.state = 'completed'
SAYING 'the result of a completed item never changes'};

-- What a job waits for: an event or a time. The first wait of a stage for a name has number 1.
-- job_id is the first job of a series of replays.
CREATE TABLE holdfast.job_wait (
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    stage text NOT NULL,
    name text NOT NULL,
    number integer NOT NULL,
    workflow_id {uuid},
    event_key text,
    state text NOT NULL DEFAULT 'waiting',
    deadline_at {instant},
    payload {json},
    event_id {uuid},
    -- Whether the handler has received the payload.
    is_read smallint NOT NULL DEFAULT 0,
    created_at {instant} NOT NULL,
    ended_at {instant},
    PRIMARY KEY (org_id, job_id, stage, name, number),
    CONSTRAINT job_wait_state_known CHECK (state IN ('waiting', 'received', 'timed_out')),
    CONSTRAINT job_wait_ended_iff_not_waiting CHECK ((state = 'waiting') = (ended_at IS NULL))
);
CREATE INDEX job_wait_of_workflow ON holdfast.job_wait (org_id, workflow_id)
    WHERE workflow_id IS NOT NULL;
CREATE INDEX job_wait_of_key ON holdfast.job_wait (org_id, event_key)
    WHERE event_key IS NOT NULL;
CREATE INDEX job_wait_ended ON holdfast.job_wait (ended_at) WHERE ended_at IS NOT NULL;

-- Events that were sent to a job, a workflow or a key. Each is received by one wait.
CREATE TABLE holdfast.sent_event (
    org_id {uuid} NOT NULL,
    id {uuid} NOT NULL,
    name text NOT NULL,
    target text NOT NULL,
    payload {json} NOT NULL,
    actor_type text NOT NULL,
    actor_id text NOT NULL,
    sent_at {instant} NOT NULL,
    received_by {uuid},
    PRIMARY KEY (org_id, id)
);
CREATE INDEX sent_event_waiting ON holdfast.sent_event (org_id, target, name)
    WHERE received_by IS NULL;
CREATE INDEX sent_event_by_age ON holdfast.sent_event (sent_at);
