-- A rewrite that passed the gate and is not delivered yet: the judge or a person decides. Its text
-- stays here until the decision: then it moves to rewrite_output, or it is erased.
CREATE TABLE holdfast.rewrite_draft (
    org_id {uuid} NOT NULL,
    rewrite_request_id {uuid} NOT NULL,
    recipient_user_id {uuid} NOT NULL,
    state text NOT NULL,
    rewritten_text text,
    output_language text NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    prompt_version text NOT NULL,
    policy_version text NOT NULL,
    lexicon_version text NOT NULL,
    gate text NOT NULL,
    eval_result {json} NOT NULL,
    -- The judge's request is one job, and its verdict is codes: never a quote.
    judge_job_id {uuid},
    judge_model text,
    judge_version text,
    findings {json},
    no_verdict_code text,
    hold_reason text,
    held_at {instant},
    decision text,
    decided_by text,
    decided_at {instant},
    -- When the orchestrator has told the audit of the verdict.
    told_at {instant},
    created_at {instant} NOT NULL,
    updated_at {instant} NOT NULL,
    erased_at {instant},
    PRIMARY KEY (org_id, rewrite_request_id),
    FOREIGN KEY (org_id, rewrite_request_id)
        REFERENCES holdfast.rewrite_request (org_id, rewrite_request_id) ON DELETE CASCADE,
    CONSTRAINT rewrite_draft_one_judge UNIQUE (org_id, judge_job_id),
    CONSTRAINT rewrite_draft_state_known CHECK (
        state IN ('judging', 'held', 'stored', 'rejected')),
    CONSTRAINT rewrite_draft_gate_known CHECK (gate IN ('pass', 'warn')),
    CONSTRAINT rewrite_draft_length CHECK (length(rewritten_text) BETWEEN 1 AND 600),
    CONSTRAINT rewrite_draft_text_until_decided CHECK (
        (rewritten_text IS NOT NULL) = (state IN ('judging', 'held'))),
    CONSTRAINT rewrite_draft_held_says_why CHECK (
        (hold_reason IS NULL OR hold_reason IN ('no_verdict', 'disagreement', 'policy'))
        AND (hold_reason IS NULL) = (held_at IS NULL)
        AND (state <> 'held' OR hold_reason IS NOT NULL)),
    CONSTRAINT rewrite_draft_decision_known CHECK (
        (decision IS NULL OR decision IN ('approve', 'edit', 'reject', 'expire'))
        AND (decision IS NULL) = (decided_at IS NULL) AND (decision IS NULL) = (decided_by IS NULL)
        AND (decision IS NULL OR (hold_reason IS NOT NULL
             AND state = CASE WHEN decision IN ('approve', 'edit') THEN 'stored'
                              ELSE 'rejected' END))),
    -- Without a person's word, a rewrite is stored on a verdict without findings only.
    CONSTRAINT rewrite_draft_stored_has_verdict CHECK (
        state <> 'stored' OR coalesce(decision, '') IN ('approve', 'edit')
        OR coalesce(CAST(findings AS text), '') = '[]')
);

-- What the orchestrator has still to do: enqueue the judge's jobs, tell the audit, expire.
CREATE INDEX rewrite_draft_unjudged ON holdfast.rewrite_draft (created_at)
    WHERE state = 'judging' AND judge_job_id IS NULL;
CREATE INDEX rewrite_draft_untold ON holdfast.rewrite_draft (updated_at)
    WHERE state <> 'judging' AND told_at IS NULL;
CREATE INDEX rewrite_draft_held ON holdfast.rewrite_draft (held_at) WHERE state = 'held';

{refuse rewrite_draft_edge BEFORE UPDATE ON holdfast.rewrite_draft
WHEN NEW.recipient_user_id <> OLD.recipient_user_id
    OR NEW.output_language <> OLD.output_language OR NEW.created_at <> OLD.created_at
    OR NEW.provider <> OLD.provider OR NEW.model <> OLD.model OR NEW.gate <> OLD.gate
    OR NEW.prompt_version <> OLD.prompt_version OR NEW.policy_version <> OLD.policy_version
    OR (NEW.rewritten_text IS NOT NULL
        AND NEW.rewritten_text IS DISTINCT FROM OLD.rewritten_text)
    OR (OLD.judge_job_id IS NOT NULL AND NEW.judge_job_id IS DISTINCT FROM OLD.judge_job_id)
    OR (OLD.findings IS NOT NULL AND NEW.findings IS DISTINCT FROM OLD.findings)
    OR (OLD.decision IS NOT NULL AND NEW.decision IS DISTINCT FROM OLD.decision)
    OR (NEW.state <> OLD.state AND OLD.state IN ('stored', 'rejected'))
    OR (NEW.state = 'judging' AND OLD.state = 'held')
SAYING 'a draft is judged once and decided once'};

-- Only the orchestrator enqueues a judge's job, only an admin or the system cancels one.
INSERT INTO holdfast.job_type_rule (job_type, producer, cancel_role, updated_at)
VALUES ('rewrite_judge', 'rewrites.submit(…)', 'admin', '2000-01-01T00:00:00.000Z');
