-- A dead letter is an item that operators work on. It stays one row through all attempts: each step
-- of the workflow increments the version, and a failed replay returns it to the first step.
ALTER TABLE holdfast.dead_letter ADD COLUMN state text NOT NULL DEFAULT 'open'
    CONSTRAINT dead_letter_state_known CHECK (state IN (
        'open', 'triaged', 'remediated', 'validated', 'replaying', 'replayed', 'resolved',
        'discarded', 'fixed_forward'));
ALTER TABLE holdfast.dead_letter ADD COLUMN version integer NOT NULL DEFAULT 1;
ALTER TABLE holdfast.dead_letter ADD COLUMN kind text
    CONSTRAINT dead_letter_kind_known CHECK (
        kind IN ('transient', 'data', 'auth_config', 'defect'));
ALTER TABLE holdfast.dead_letter ADD COLUMN checklist {json}
    CONSTRAINT dead_letter_checklist_is_object CHECK (checklist IS NULL OR {object(checklist)});
ALTER TABLE holdfast.dead_letter ADD COLUMN evidence_ref text
    CONSTRAINT dead_letter_evidence_bounded CHECK (length(evidence_ref) BETWEEN 1 AND 500);
ALTER TABLE holdfast.dead_letter ADD COLUMN is_safe_to_repeat boolean;
ALTER TABLE holdfast.dead_letter ADD COLUMN replay_count integer NOT NULL DEFAULT 0;
-- The replay whose failure is shown; NULL for the job's own failure.
ALTER TABLE holdfast.dead_letter ADD COLUMN failed_replay_id {uuid};
ALTER TABLE holdfast.dead_letter ADD COLUMN escalated_at {instant};
ALTER TABLE holdfast.dead_letter ADD COLUMN verified_at {instant};
ALTER TABLE holdfast.dead_letter ADD COLUMN fixed_by text
    CONSTRAINT dead_letter_fix_bounded CHECK (length(fixed_by) BETWEEN 1 AND 500);
ALTER TABLE holdfast.dead_letter ADD COLUMN ending text
    CONSTRAINT dead_letter_ending_bounded CHECK (length(ending) BETWEEN 1 AND 4000);
ALTER TABLE holdfast.dead_letter ADD COLUMN ended_at {instant}
    CONSTRAINT dead_letter_ended_says_why CHECK (
        (state IN ('resolved', 'discarded', 'fixed_forward')) = (ended_at IS NOT NULL)
        AND (ended_at IS NULL) = (ending IS NULL)
        AND (state = 'fixed_forward') = (fixed_by IS NOT NULL))
    -- No step without the previous one. The audit keeps the earlier steps of a reopened item.
    CONSTRAINT dead_letter_steps_in_order CHECK (
        state IN ('discarded', 'fixed_forward')
        OR ((state = 'open') = (kind IS NULL)
            AND (state IN ('open', 'triaged')) = (checklist IS NULL)
            AND (state IN ('open', 'triaged', 'remediated')) = (evidence_ref IS NULL)
            AND (evidence_ref IS NULL) = (is_safe_to_repeat IS NOT TRUE)
            AND (state <> 'resolved' OR verified_at IS NOT NULL)
            AND (state IN ('replayed', 'resolved') OR verified_at IS NULL)));
ALTER TABLE holdfast.dead_letter ADD COLUMN updated_at {instant} NOT NULL
    DEFAULT '2000-01-01T00:00:00.000Z';
UPDATE holdfast.dead_letter SET updated_at = created_at;

CREATE INDEX dead_letter_newest ON holdfast.dead_letter (created_at, job_id);
CREATE INDEX dead_letter_newest_of_tenant ON holdfast.dead_letter (org_id, created_at, job_id);
CREATE INDEX dead_letter_unended ON holdfast.dead_letter (created_at, job_id)
    WHERE ended_at IS NULL;
-- Items that may be pruned, so that a prune does not scan open items.
CREATE INDEX dead_letter_over ON holdfast.dead_letter (job_type, ended_at)
    WHERE ended_at IS NOT NULL;

{refuse dead_letter_begins_open BEFORE INSERT ON holdfast.dead_letter
WHEN NEW.state <> 'open' OR NEW.version <> 1 OR NEW.replay_count <> 0
SAYING 'a dead letter must be inserted open and without replays'};

{refuse dead_letter_edge BEFORE UPDATE OF state ON holdfast.dead_letter
WHEN OLD.state <> NEW.state AND NOT (
    (OLD.state = 'open' AND NEW.state = 'triaged')
    OR (OLD.state = 'triaged' AND NEW.state = 'remediated')
    OR (OLD.state = 'remediated' AND NEW.state IN ('validated', 'triaged'))
    OR (OLD.state = 'validated' AND NEW.state IN ('replaying', 'triaged'))
    OR (OLD.state = 'replaying' AND NEW.state IN ('replayed', 'open'))
    OR (OLD.state = 'replayed' AND NEW.state = 'resolved')
    OR (OLD.state <> 'replaying' AND NEW.state IN ('discarded', 'fixed_forward')))
SAYING 'invalid state transition of a dead letter'};

{refuse dead_letter_ended BEFORE UPDATE ON holdfast.dead_letter
WHEN OLD.ended_at IS NOT NULL
SAYING 'the dead letter is closed; its outcome is final'};

{refuse dead_letter_version BEFORE UPDATE ON holdfast.dead_letter
WHEN NEW.version <> OLD.version + 1
SAYING 'each change of a dead letter raises its version by one'};

{refuse dead_letter_write_once BEFORE UPDATE ON holdfast.dead_letter
WHEN NEW.org_id <> OLD.org_id OR NEW.job_id <> OLD.job_id OR NEW.job_type <> OLD.job_type
    OR NEW.queue <> OLD.queue OR NEW.first_failure_at <> OLD.first_failure_at
    OR NEW.created_at <> OLD.created_at
SAYING 'the job of a dead letter is immutable'};

{refuse dead_letter_failure_stands BEFORE UPDATE OF stage, error_class, last_error, last_stack,
    sanitized_context, attempts, last_failure_at, failed_replay_id, escalated_at
    ON holdfast.dead_letter
WHEN NOT (OLD.state = 'replaying' AND NEW.state = 'open') AND (
    NEW.stage <> OLD.stage OR NEW.error_class <> OLD.error_class
    OR NEW.last_error <> OLD.last_error OR NEW.last_stack <> OLD.last_stack
    OR NEW.sanitized_context <> OLD.sanitized_context OR NEW.attempts <> OLD.attempts
    OR NEW.last_failure_at <> OLD.last_failure_at
    OR NEW.failed_replay_id IS DISTINCT FROM OLD.failed_replay_id
    OR NEW.escalated_at IS DISTINCT FROM OLD.escalated_at)
SAYING 'the failure columns of a dead letter change only with a failed replay'};

{refuse dead_letter_replays_counted BEFORE UPDATE OF state, replay_count ON holdfast.dead_letter
WHEN NEW.replay_count <> OLD.replay_count
    + CASE WHEN OLD.state = 'validated' AND NEW.state = 'replaying' THEN 1 ELSE 0 END
SAYING 'replay_count grows by one with each replay'};

{refuse dead_letter_leaves_only_when_ended BEFORE DELETE ON holdfast.dead_letter
WHEN OLD.ended_at IS NULL
SAYING 'a dead letter cannot be deleted before it is closed'};

-- One row per replay of an item. Its job may be pruned: no foreign key.
CREATE TABLE holdfast.dead_letter_replay (
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    number integer NOT NULL,
    replay_job_id {uuid} NOT NULL,
    full_restart boolean NOT NULL,
    failed_stage text NOT NULL,
    stage text NOT NULL,
    reason text NOT NULL,
    actor_type text NOT NULL,
    actor_id text NOT NULL,
    requested_at {instant} NOT NULL,
    outcome text,
    error_class text,
    ended_at {instant},
    PRIMARY KEY (org_id, job_id, number),
    FOREIGN KEY (org_id, job_id) REFERENCES holdfast.dead_letter (org_id, job_id) ON DELETE CASCADE,
    CONSTRAINT dead_letter_replay_once_per_job UNIQUE (org_id, replay_job_id),
    CONSTRAINT dead_letter_replay_numbered CHECK (number > 0),
    CONSTRAINT dead_letter_replay_is_another_job CHECK (replay_job_id <> job_id),
    CONSTRAINT dead_letter_replay_at_failed_stage CHECK (full_restart OR stage = failed_stage),
    CONSTRAINT dead_letter_replay_says_why CHECK (length(reason) BETWEEN 1 AND 1000),
    CONSTRAINT dead_letter_replay_actor_known CHECK (actor_type IN ('user', 'system', 'api_key')),
    CONSTRAINT dead_letter_replay_outcome_known CHECK (
        outcome IN ('completed', 'failed', 'canceled')),
    CONSTRAINT dead_letter_replay_ended_iff_outcome CHECK (
        (outcome IS NULL) = (ended_at IS NULL)
        AND (error_class IS NOT NULL) = (outcome IS NOT NULL AND outcome = 'failed'))
);
CREATE UNIQUE INDEX dead_letter_replay_one_at_a_time ON holdfast.dead_letter_replay (org_id, job_id)
    WHERE ended_at IS NULL;

{refuse dead_letter_replay_ended BEFORE UPDATE ON holdfast.dead_letter_replay
WHEN OLD.ended_at IS NOT NULL
SAYING 'the outcome of a replay is recorded once'};

{refuse dead_letter_replay_write_once BEFORE UPDATE ON holdfast.dead_letter_replay
WHEN NEW.org_id <> OLD.org_id OR NEW.job_id <> OLD.job_id OR NEW.number <> OLD.number
    OR NEW.replay_job_id <> OLD.replay_job_id OR NEW.full_restart <> OLD.full_restart
    OR NEW.failed_stage <> OLD.failed_stage OR NEW.stage <> OLD.stage OR NEW.reason <> OLD.reason
    OR NEW.actor_type <> OLD.actor_type OR NEW.actor_id <> OLD.actor_id
    OR NEW.requested_at <> OLD.requested_at
SAYING 'the actor and the reason of a replay are immutable'};

-- Notes of operators about an item.
CREATE TABLE holdfast.dead_letter_note (
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    id {uuid} NOT NULL,
    body text NOT NULL,
    actor_type text NOT NULL,
    actor_id text NOT NULL,
    created_at {instant} NOT NULL,
    PRIMARY KEY (org_id, job_id, id),
    FOREIGN KEY (org_id, job_id) REFERENCES holdfast.dead_letter (org_id, job_id) ON DELETE CASCADE,
    CONSTRAINT dead_letter_note_bounded CHECK (length(body) BETWEEN 1 AND 4000),
    CONSTRAINT dead_letter_note_actor_known CHECK (actor_type IN ('user', 'system', 'api_key'))
);

{refuse dead_letter_note_never_changes BEFORE UPDATE ON holdfast.dead_letter_note
WHEN TRUE SAYING 'notes are immutable; add another note'};

-- Why dead letters of a category are never replayed; NULL if they may be.
ALTER TABLE holdfast.category ADD COLUMN replay_refusal text
    CONSTRAINT category_refusal_bounded CHECK (length(replay_refusal) BETWEEN 1 AND 300);
