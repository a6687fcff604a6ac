-- The outbox: messages to deliver, every attempt, and the responses of the channels.

CREATE TABLE holdfast.delivery (
    org_id {uuid} NOT NULL,
    id {uuid} NOT NULL,
    -- Unique per tenant: one delivery per subject, recipient and version.
    subject text NOT NULL,
    recipient text NOT NULL,
    version integer NOT NULL,
    channel text NOT NULL,
    address text NOT NULL,
    -- A keyed hash of the address: a rejection by one endpoint does not affect another.
    endpoint text NOT NULL DEFAULT '',
    -- The id of this delivery at the channel, derived from org_id, subject, recipient and version.
    token text NOT NULL,
    -- The exact text that is sent: a JSON column would rewrite its numbers.
    content text,
    content_hash text NOT NULL,
    -- 1 if the job cannot succeed without this delivery.
    is_required smallint NOT NULL DEFAULT 1,
    state text NOT NULL DEFAULT 'pending',
    reason text,
    job_id {uuid},
    -- The job that waits for this delivery and is woken when it ends.
    awaited_by {uuid},
    -- Both are set in one write, with the state, when the channel has it.
    notification_id text,
    notified_at {instant},
    confirmed_by text,
    -- Whether the send was verified at the channel: none yet, seen, or unknowable.
    proof text NOT NULL DEFAULT 'none',
    attempts integer NOT NULL DEFAULT 0,
    -- Incremented by each claim; every later write checks it.
    fence bigint NOT NULL DEFAULT 0,
    lease_owner text,
    lease_expires_at {instant},
    first_sent_at {instant},
    reconciled_at {instant},
    not_before_at {instant},
    -- Request, project and actor that intended it.
    request_id text NOT NULL,
    correlation_id text NOT NULL,
    project_id {uuid},
    actor_type text NOT NULL DEFAULT 'system',
    actor_id text NOT NULL DEFAULT 'holdfast',
    created_at {instant} NOT NULL,
    updated_at {instant} NOT NULL,
    ended_at {instant},
    PRIMARY KEY (org_id, id),
    CONSTRAINT delivery_actor_known CHECK (actor_type IN ('user', 'system', 'api_key')),
    CONSTRAINT delivery_once UNIQUE (org_id, subject, recipient, version),
    CONSTRAINT delivery_state_known CHECK (
        state IN ('pending', 'sent', 'held', 'dropped', 'failed')),
    CONSTRAINT delivery_proof_known CHECK (proof IN ('none', 'seen', 'unknowable')),
    CONSTRAINT delivery_version_positive CHECK (version > 0),
    CONSTRAINT delivery_sent_iff_marked CHECK (
        (state = 'sent') = (notified_at IS NOT NULL)
        AND (state <> 'sent' OR notification_id IS NOT NULL OR confirmed_by IS NOT NULL)),
    CONSTRAINT delivery_ended_says_when CHECK (
        (state IN ('sent', 'dropped', 'failed')) = (ended_at IS NOT NULL)),
    CONSTRAINT delivery_not_sent_says_why CHECK (
        state NOT IN ('held', 'dropped', 'failed') OR reason IS NOT NULL)
);

-- One row per attempt: written before the call, completed once.
CREATE TABLE holdfast.delivery_attempt (
    org_id {uuid} NOT NULL,
    delivery_id {uuid} NOT NULL,
    number integer NOT NULL,
    -- Why it was sent, or sent again.
    reason text NOT NULL,
    fence bigint NOT NULL,
    worker_id text NOT NULL,
    body_hash text NOT NULL,
    began_at {instant} NOT NULL,
    -- For a channel that accepts nothing before a commit point (the final dot of SMTP): whether the
    -- attempt has passed it. NULL for other channels.
    phase text,
    outcome text,
    code text,
    provider_id text,
    ended_at {instant},
    PRIMARY KEY (org_id, delivery_id, number),
    FOREIGN KEY (org_id, delivery_id) REFERENCES holdfast.delivery (org_id, id) ON DELETE CASCADE,
    CONSTRAINT delivery_attempt_reason_known CHECK (
        reason IN ('first', 'proven_not_taken', 'idempotent_window', 'looked_up_not_found',
                   'receiver_dedupes', 'policy_resend', 'operator_resend')),
    CONSTRAINT delivery_attempt_outcome_known CHECK (
        outcome IN ('accepted', 'rejected', 'refused', 'channel_refused', 'throttled', 'unsure')),
    CONSTRAINT delivery_attempt_phase_known CHECK (phase IN ('before_commit', 'committed')),
    CONSTRAINT delivery_attempt_ended_iff_outcome CHECK (
        (outcome IS NULL) = (ended_at IS NULL))
);

-- All evidence about a delivery: late responses, lookups, statements of operators.
CREATE TABLE holdfast.delivery_evidence (
    id {identity},
    org_id {uuid} NOT NULL,
    delivery_id {uuid} NOT NULL,
    source text NOT NULL,
    verdict text NOT NULL,
    provider_id text,
    code text,
    -- The number of attempts it covers: evidence never applies to a later attempt.
    after_attempt integer NOT NULL,
    at {instant} NOT NULL,
    CONSTRAINT delivery_evidence_source_known CHECK (
        source IN ('send', 'late_answer', 'lookup', 'webhook', 'operator')),
    CONSTRAINT delivery_evidence_verdict_known CHECK (
        verdict IN ('taken', 'not_found', 'several', 'unreachable', 'undelivered', 'confirmed',
                    'resend')),
    FOREIGN KEY (org_id, delivery_id) REFERENCES holdfast.delivery (org_id, id) ON DELETE CASCADE
);
CREATE INDEX delivery_evidence_of_delivery ON holdfast.delivery_evidence (org_id, delivery_id);

-- Few rows, read in every pass.
CREATE INDEX delivery_evidence_late ON holdfast.delivery_evidence (org_id, delivery_id)
    WHERE source = 'late_answer';

CREATE INDEX delivery_due ON holdfast.delivery (not_before_at) WHERE state = 'pending';
CREATE INDEX delivery_of_job ON holdfast.delivery (org_id, job_id) WHERE job_id IS NOT NULL;
CREATE INDEX delivery_unproven ON holdfast.delivery (id) WHERE state = 'sent' AND proof = 'none';
CREATE INDEX delivery_held ON holdfast.delivery (updated_at) WHERE state = 'held';

{refuse delivery_begins_pending BEFORE INSERT ON holdfast.delivery
WHEN NEW.state <> 'pending' OR NEW.attempts <> 0 OR NEW.fence <> 0
SAYING 'a delivery must be inserted pending and without attempts'};

-- Only a reconciliation that found nothing at the channel leaves the state sent.
{refuse delivery_edge BEFORE UPDATE OF state ON holdfast.delivery
WHEN OLD.state <> NEW.state AND NOT (
    (OLD.state = 'pending' AND NEW.state IN ('sent', 'held', 'dropped', 'failed'))
    OR (OLD.state = 'held' AND NEW.state IN ('pending', 'sent', 'dropped', 'failed'))
    OR (OLD.state IN ('failed', 'dropped') AND NEW.state IN ('pending', 'sent'))
    OR (OLD.state = 'failed' AND NEW.state = 'dropped')
    OR (OLD.state = 'sent' AND NEW.state = 'pending' AND NEW.reconciled_at IS NOT NULL
        AND NEW.reconciled_at IS DISTINCT FROM OLD.reconciled_at))
SAYING 'invalid state transition of a delivery'};

{refuse delivery_write_once BEFORE UPDATE ON holdfast.delivery
WHEN NEW.subject <> OLD.subject OR NEW.recipient <> OLD.recipient OR NEW.version <> OLD.version
    OR NEW.channel <> OLD.channel OR NEW.address <> OLD.address OR NEW.token <> OLD.token
    OR NEW.content_hash <> OLD.content_hash OR NEW.created_at <> OLD.created_at
    OR NEW.endpoint <> OLD.endpoint OR NEW.request_id <> OLD.request_id
    OR NEW.correlation_id <> OLD.correlation_id
    OR NEW.project_id IS DISTINCT FROM OLD.project_id
    OR NEW.actor_type <> OLD.actor_type OR NEW.actor_id <> OLD.actor_id
    OR (NEW.content IS DISTINCT FROM OLD.content AND NEW.content IS NOT NULL)
    OR NEW.attempts < OLD.attempts OR NEW.fence < OLD.fence
SAYING 'the content and the recipient of a delivery are immutable'};

-- A delivery is marked sent only after a recorded attempt, by an operator's statement, or because a
-- lookup found it at the channel.
{refuse delivery_sent_was_tried BEFORE UPDATE OF state ON holdfast.delivery
WHEN NEW.state = 'sent' AND OLD.state <> 'sent' AND NEW.attempts = 0 AND NEW.confirmed_by IS NULL
    AND NEW.reconciled_at IS NULL
SAYING 'a delivery can be marked sent only after an attempt'};

{refuse delivery_attempt_ends_once BEFORE UPDATE ON holdfast.delivery_attempt
WHEN OLD.outcome IS NOT NULL OR NEW.reason <> OLD.reason OR NEW.began_at <> OLD.began_at
    OR NEW.fence <> OLD.fence OR NEW.body_hash <> OLD.body_hash OR NEW.worker_id <> OLD.worker_id
    OR (NEW.phase IS DISTINCT FROM OLD.phase
        AND NOT (OLD.phase = 'before_commit' AND NEW.phase = 'committed'))
SAYING 'an attempt is recorded before it is made, and its outcome once'};

{refuse delivery_evidence_never_changes BEFORE UPDATE ON holdfast.delivery_evidence
WHEN TRUE SAYING 'the evidence of a delivery is immutable'};

-- Channels that reject requests (a wrong credential, a missing permission, a wrong address) or that
-- are down or busy. Nothing is sent there until the pause is over or the channel's settings change;
-- then one message probes it. No tenant is named here.
CREATE TABLE holdfast.channel_circuit (
    channel text NOT NULL,
    -- Empty for the whole channel, or the hash of the rejected address.
    endpoint text NOT NULL,
    kind text NOT NULL,
    -- A keyed hash of the settings and the credential that were rejected.
    fingerprint text NOT NULL,
    code text NOT NULL,
    -- Number of consecutive rejections: each makes the pause longer.
    refusals integer NOT NULL,
    opened_at {instant} NOT NULL,
    open_until {instant} NOT NULL,
    -- Only one worker at a time probes the channel.
    probe_until {instant},
    PRIMARY KEY (channel, endpoint),
    CONSTRAINT channel_circuit_kind_known CHECK (kind IN ('refused', 'unavailable')),
    CONSTRAINT channel_circuit_opened CHECK (refusals > 0)
);

-- The default key for delivery tokens: a client outside cannot derive a token.
CREATE TABLE holdfast.outbox_key (
    id smallint PRIMARY KEY,
    key text NOT NULL,
    CONSTRAINT outbox_key_single CHECK (id = 1)
);
-- SQLite and PostgreSQL have different sources of random bytes.
INSERT INTO holdfast.outbox_key (id, key)
VALUES (1, {only sqlite}lower(hex(randomblob(32))){end}
    {only postgres}replace(
        CAST(gen_random_uuid() AS text) || CAST(gen_random_uuid() AS text), '-', ''){end});

{refuse outbox_key_never_changes BEFORE UPDATE ON holdfast.outbox_key
WHEN TRUE SAYING 'the outbox key is immutable: delivery tokens depend on it'};
