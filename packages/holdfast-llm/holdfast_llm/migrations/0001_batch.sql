-- Batch processing: the batches at providers, and the job of each item.

-- One batch at a provider. It may hold items of many tenants, so it has no tenant column and no
-- request or answer text. A worker changes a row under a lease, and every write names its fence.
CREATE TABLE holdfast.provider_batch (
    id {uuid} NOT NULL PRIMARY KEY,
    -- Provider, address and a hash of the credential: recovery never asks another account.
    account text NOT NULL,
    provider text NOT NULL,
    adapter_kind text NOT NULL,
    model text NOT NULL,
    execution_mode text NOT NULL,
    group_key text NOT NULL,
    state text NOT NULL,
    items integer NOT NULL,
    bytes bigint NOT NULL,
    content_hash text,
    -- What it takes of the account's enqueued tokens until it has ended.
    input_tokens bigint NOT NULL,
    -- How often a create was begun; part of every name we give at the provider.
    create_attempt integer NOT NULL DEFAULT 0,
    creating_at {instant},
    -- When the provider answered the create with an error that does not say whether it was made.
    answered_at {instant},
    fenced_at {instant},
    scanned_at {instant},
    rounds integer NOT NULL DEFAULT 0,
    input_file_id text,
    -- 1 where a worker that lost the batch may have left an input at the provider.
    strays smallint NOT NULL DEFAULT 0,
    provider_batch_id text,
    provider_status text,
    result_files {json},
    counts {json},
    error_class text,
    error_code text,
    polls integer NOT NULL DEFAULT 0,
    next_at {instant} NOT NULL,
    deadline_at {instant},
    cancel_requested_at {instant},
    submitted_at {instant},
    ended_at {instant},
    collected_at {instant},
    files_deleted_at {instant},
    lease_owner text,
    lease_expires_at {instant},
    fence bigint NOT NULL DEFAULT 0,
    created_at {instant} NOT NULL,
    updated_at {instant} NOT NULL,
    CONSTRAINT provider_batch_state_known CHECK (
        state IN ('prepared', 'uploaded', 'creating', 'submitted', 'ended', 'collected', 'released',
                  'quarantined')),
    CONSTRAINT provider_batch_mode_known CHECK (execution_mode IN ('batch', 'async')),
    CONSTRAINT provider_batch_submitted_is_named CHECK (
        state NOT IN ('submitted', 'ended', 'collected') OR execution_mode = 'async'
        OR (provider_batch_id IS NOT NULL AND submitted_at IS NOT NULL)),
    CONSTRAINT provider_batch_creating_says_when CHECK (
        state <> 'creating' OR (creating_at IS NOT NULL AND create_attempt > 0)),
    CONSTRAINT provider_batch_collected_says_when CHECK (
        (state = 'collected') = (collected_at IS NOT NULL)),
    CONSTRAINT provider_batch_size CHECK (items > 0 AND bytes >= 0 AND input_tokens >= 0),
    CONSTRAINT provider_batch_once UNIQUE (account, provider_batch_id)
);

-- The batches that are due for a pass.
CREATE INDEX provider_batch_due ON holdfast.provider_batch (next_at)
    WHERE state IN ('prepared', 'uploaded', 'creating', 'submitted', 'ended')
        OR (state IN ('collected', 'released') AND files_deleted_at IS NULL);
CREATE INDEX provider_batch_strays ON holdfast.provider_batch (updated_at) WHERE strays = 1;
CREATE INDEX provider_batch_reserve ON holdfast.provider_batch (account, model)
    WHERE state IN ('prepared', 'uploaded', 'creating', 'submitted');

{refuse provider_batch_edge BEFORE UPDATE OF state ON holdfast.provider_batch
WHEN OLD.state <> NEW.state AND NOT (
    (OLD.state = 'prepared' AND NEW.state IN ('uploaded', 'creating', 'submitted', 'released'))
    OR (OLD.state = 'uploaded' AND NEW.state IN ('prepared', 'creating', 'submitted', 'released'))
    OR (OLD.state = 'creating'
        AND NEW.state IN ('prepared', 'uploaded', 'submitted', 'released', 'quarantined'))
    OR (OLD.state = 'submitted' AND NEW.state IN ('ended', 'quarantined'))
    OR (OLD.state = 'ended' AND NEW.state IN ('collected', 'quarantined'))
    OR (OLD.state = 'quarantined' AND NEW.state IN ('submitted', 'ended', 'released')))
SAYING 'invalid state transition of a provider batch'};

{refuse provider_batch_write_once BEFORE UPDATE OF provider_batch_id, account, model, group_key, items
    ON holdfast.provider_batch
WHEN (OLD.provider_batch_id IS NOT NULL
      AND NEW.provider_batch_id IS DISTINCT FROM OLD.provider_batch_id)
    OR NEW.account <> OLD.account OR NEW.model <> OLD.model OR NEW.group_key <> OLD.group_key
    OR (NEW.items <> OLD.items AND (NEW.items < OLD.items OR OLD.content_hash IS NOT NULL
                                    OR OLD.state <> 'prepared' OR NEW.state <> 'prepared'))
SAYING 'the items and the provider of a batch are immutable'};

{refuse provider_batch_released_was_not_created BEFORE UPDATE OF state ON holdfast.provider_batch
WHEN NEW.state = 'released' AND OLD.state <> 'quarantined' AND NEW.provider_batch_id IS NOT NULL
SAYING 'a batch that exists at the provider is collected, not released'};

-- The job of each item, stored before anything is sent; answers are assigned by this table only. No
-- foreign key to the job: an ended job moves to history, its items stay.
CREATE TABLE holdfast.batch_item (
    batch_id {uuid} NOT NULL,
    batch_item_index integer NOT NULL,
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    job_type text NOT NULL,
    execution_mode text NOT NULL,
    -- What must not be paid for twice: the job's execution unit, or the job itself.
    unit text NOT NULL,
    attempt integer NOT NULL,
    lease_token bigint NOT NULL,
    custom_id text NOT NULL,
    -- What the model has to say back, so that an answer under another item's name is noticed.
    echo text NOT NULL,
    group_key text NOT NULL,
    input_tokens bigint NOT NULL,
    state text NOT NULL DEFAULT 'open',
    -- 1 while the provider may still run it: one number for the index below, on both databases.
    is_open smallint NOT NULL DEFAULT 1,
    result_hash text,
    error_class text,
    error_code text,
    provider_request_id text,
    submitted_at {instant},
    finished_at {instant},
    recorded_at {instant},
    created_at {instant} NOT NULL,
    PRIMARY KEY (org_id, batch_id, batch_item_index),
    FOREIGN KEY (batch_id) REFERENCES holdfast.provider_batch (id),
    CONSTRAINT batch_item_custom_id_once UNIQUE (org_id, batch_id, custom_id),
    CONSTRAINT batch_item_state_known CHECK (
        state IN ('open', 'succeeded', 'failed', 'not_run', 'missing', 'conflict', 'released',
                  'unknown')),
    CONSTRAINT batch_item_mode_known CHECK (execution_mode IN ('batch', 'async')),
    CONSTRAINT batch_item_open_iff_open CHECK ((state = 'open') = (is_open = 1)),
    CONSTRAINT batch_item_recorded_iff_ended CHECK ((state = 'open') = (recorded_at IS NULL))
);

-- Prevents that one execution unit is in two open batches.
CREATE UNIQUE INDEX batch_item_one_open_per_unit ON holdfast.batch_item (org_id, job_type, unit)
    WHERE is_open = 1;
CREATE INDEX batch_item_of_job ON holdfast.batch_item (org_id, job_id);
-- A batch is read as a whole, and an answer names only its place: both cross tenants.
CREATE INDEX batch_item_of_batch ON holdfast.batch_item (batch_id, batch_item_index);

{refuse batch_item_begins_open BEFORE INSERT ON holdfast.batch_item
WHEN NEW.state <> 'open'
SAYING 'a batch item must be inserted open'};

{refuse batch_item_write_once BEFORE UPDATE OF batch_id, batch_item_index, org_id, job_id, job_type,
    unit, attempt, lease_token, custom_id, echo, group_key ON holdfast.batch_item
WHEN NEW.batch_id <> OLD.batch_id OR NEW.batch_item_index <> OLD.batch_item_index
    OR NEW.org_id <> OLD.org_id OR NEW.job_id <> OLD.job_id OR NEW.job_type <> OLD.job_type
    OR NEW.unit <> OLD.unit OR NEW.attempt <> OLD.attempt OR NEW.lease_token <> OLD.lease_token
    OR NEW.custom_id <> OLD.custom_id OR NEW.echo <> OLD.echo OR NEW.group_key <> OLD.group_key
SAYING 'the job of a batch item is immutable'};

-- A second, different answer turns the recorded outcome into a conflict; nothing else reopens an
-- item.
{refuse batch_item_edge BEFORE UPDATE OF state ON holdfast.batch_item
WHEN OLD.state <> NEW.state AND OLD.state <> 'open'
    AND NOT (OLD.state IN ('succeeded', 'failed') AND NEW.state = 'conflict')
SAYING 'the outcome of a batch item is recorded once'};

-- The raw line of a paid answer whose result could not be committed, compressed and, if there is a
-- key, encrypted. It is deleted when its item is recorded or its job is canceled.
CREATE TABLE holdfast.batch_answer (
    batch_id {uuid} NOT NULL,
    batch_item_index integer NOT NULL,
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    job_type text NOT NULL,
    line text NOT NULL,
    error_class text NOT NULL,
    kept_at {instant} NOT NULL,
    expires_at {instant} NOT NULL,
    PRIMARY KEY (org_id, batch_id, batch_item_index)
);
CREATE INDEX batch_answer_of_batch ON holdfast.batch_answer (batch_id, batch_item_index);
CREATE INDEX batch_answer_of_job ON holdfast.batch_answer (org_id, job_id);
CREATE INDEX batch_answer_expires ON holdfast.batch_answer (expires_at);

{refuse batch_item_stays BEFORE DELETE ON holdfast.batch_item
WHEN OLD.is_open = 1
SAYING 'an item that the provider may still run cannot be deleted'};
