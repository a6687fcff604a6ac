-- The complaint rewrite: homes and what their members prefer, requests, and what they became.
-- The home is the tenant. Raw text lies in rewrite_message and in rewrite_request.rewrite_request,
-- rewritten text in rewrite_output, and nowhere else.

CREATE TABLE holdfast.home (
    org_id {uuid} NOT NULL PRIMARY KEY,
    created_at {instant} NOT NULL
);

CREATE TABLE holdfast.home_member (
    org_id {uuid} NOT NULL,
    user_id {uuid} NOT NULL,
    role text NOT NULL,
    -- As the member's profile has it; requests hold the language that it means.
    locale text,
    joined_at {instant} NOT NULL,
    left_at {instant},
    updated_at {instant} NOT NULL,
    PRIMARY KEY (org_id, user_id),
    FOREIGN KEY (org_id) REFERENCES holdfast.home (org_id),
    CONSTRAINT home_member_role_known CHECK (role IN ('owner', 'housemate'))
);
CREATE INDEX home_member_of_user ON holdfast.home_member (user_id);

CREATE TABLE holdfast.preference_answer (
    org_id {uuid} NOT NULL,
    user_id {uuid} NOT NULL,
    preference_id text NOT NULL,
    value_key text NOT NULL,
    answered_at {instant} NOT NULL,
    PRIMARY KEY (org_id, user_id, preference_id),
    FOREIGN KEY (org_id, user_id) REFERENCES holdfast.home_member (org_id, user_id)
        ON DELETE CASCADE
);

-- Who may neither send nor receive rewrites in a home.
CREATE TABLE holdfast.rewrite_block (
    org_id {uuid} NOT NULL,
    user_id {uuid} NOT NULL,
    created_at {instant} NOT NULL,
    PRIMARY KEY (org_id, user_id)
);

-- One sender's message on its way. The home's directory may be somebody else's database, so no
-- foreign key leads there.
CREATE TABLE holdfast.rewrite_request (
    org_id {uuid} NOT NULL,
    rewrite_request_id {uuid} NOT NULL,
    sender_user_id {uuid} NOT NULL,
    recipient_user_id {uuid} NOT NULL,
    -- The word that the job record allows; NULL where the surface that was asked for is none.
    surface text,
    -- The week that the sender's one full reframe is counted in.
    iso_week_year integer NOT NULL,
    iso_week integer NOT NULL,
    -- How far the orchestrator has come, and how the job stands.
    step text NOT NULL,
    status text NOT NULL,
    failure_code text,
    recipient_snapshot_id {uuid},
    recipient_preference_snapshot_id {uuid},
    -- What the directory said of the two when the message came; nobody asks it a second time.
    sender_role text,
    recipient_role text,
    sender_locale text,
    recipient_locale text,
    source_locale text,
    target_locale text,
    source_locale_raw text,
    target_locale_raw text,
    lane text,
    topics {json},
    intent text,
    rewrite_strength text,
    classifier_result {json},
    context_pack {json},
    policy {json},
    routing_decision {json},
    -- The whole RewriteRequestV1, original text included; NULL before it is made and once erased,
    -- as the pack above is when a person's data was erased.
    rewrite_request {json},
    -- SHA-256 of its canonical form: it stays when the text goes.
    request_hash text,
    -- The same without ids and times, where the route lets an output be used again. It could be
    -- guessed from the text, so it goes with it.
    content_hash text,
    classifier_version text,
    context_pack_version text,
    policy_version text,
    job_id {uuid},
    request_id text NOT NULL,
    correlation_id text NOT NULL,
    created_at {instant} NOT NULL,
    queued_at {instant},
    classified_at {instant},
    context_built_at {instant},
    routed_at {instant},
    enqueued_at {instant},
    rewrite_completed_at {instant},
    -- Set by the orchestrator alone, when it hears of the completion.
    sender_reveal_at {instant},
    revealed_at {instant},
    failed_at {instant},
    canceled_at {instant},
    -- When the orchestrator has told the audit how the request ended.
    concluded_at {instant},
    erased_at {instant},
    -- When the data of one of its people was erased, and not only its text: then its preference
    -- snapshot may leave.
    preferences_erased_at {instant},
    updated_at {instant} NOT NULL,
    -- Filled with the completion: the reference below then demands the output, at commit.
    output_recipient_user_id {uuid},
    PRIMARY KEY (org_id, rewrite_request_id),
    CONSTRAINT rewrite_request_once UNIQUE (rewrite_request_id),
    CONSTRAINT rewrite_request_one_job UNIQUE (org_id, job_id),
    CONSTRAINT rewrite_request_surface_known CHECK (
        surface IN ('weekly_harmony', 'direct_message', 'other')),
    CONSTRAINT rewrite_request_step_known CHECK (
        step IN ('received', 'queued', 'classified', 'context_built', 'routed', 'enqueued',
                 'judging', 'held', 'completed', 'revealed', 'failed', 'canceled')),
    CONSTRAINT rewrite_request_status_known CHECK (
        status IN ('queued', 'processing', 'batch_submitted', 'completed', 'failed', 'canceled')),
    CONSTRAINT rewrite_request_step_fits_status CHECK (
        (step = 'failed') = (status = 'failed') AND (step = 'canceled') = (status = 'canceled')
        AND (step IN ('completed', 'revealed')) = (status = 'completed')),
    CONSTRAINT rewrite_request_strength_known CHECK (
        rewrite_strength IN ('light_touch', 'full_reframe')),
    CONSTRAINT rewrite_request_lane_follows_locales CHECK (
        (lane IS NULL AND (source_locale IS NULL OR target_locale IS NULL))
        OR lane = CASE WHEN source_locale = target_locale THEN 'same_language'
                       ELSE 'cross_language' END),
    CONSTRAINT rewrite_request_locales_known CHECK (
        (source_locale IS NULL
         OR (source_locale NOT IN ('', 'und', 'unknown') AND source_locale = lower(source_locale)))
        AND (target_locale IS NULL
             OR (target_locale NOT IN ('', 'und', 'unknown')
                 AND target_locale = lower(target_locale)))),
    CONSTRAINT rewrite_request_whole_once_enqueued CHECK (
        job_id IS NULL
        OR (surface IS NOT NULL AND recipient_snapshot_id IS NOT NULL
            AND recipient_preference_snapshot_id IS NOT NULL AND lane IS NOT NULL
            AND topics IS NOT NULL AND intent IS NOT NULL AND rewrite_strength IS NOT NULL
            AND classifier_result IS NOT NULL
            AND routing_decision IS NOT NULL AND request_hash IS NOT NULL
            AND (erased_at IS NOT NULL
                 OR (rewrite_request IS NOT NULL AND context_pack IS NOT NULL
                     AND policy IS NOT NULL))
            AND classifier_version IS NOT NULL AND context_pack_version IS NOT NULL
            AND policy_version IS NOT NULL AND classified_at IS NOT NULL
            AND context_built_at IS NOT NULL AND routed_at IS NOT NULL
            AND enqueued_at IS NOT NULL)),
    CONSTRAINT rewrite_request_enqueued_iff_job CHECK (
        (step NOT IN ('enqueued', 'judging', 'held', 'completed', 'revealed')
         OR job_id IS NOT NULL)
        AND (step NOT IN ('received', 'queued', 'classified', 'context_built', 'routed')
             OR job_id IS NULL)),
    CONSTRAINT rewrite_request_failed_says_why CHECK (
        (step = 'failed') = (failure_code IS NOT NULL) AND (step = 'failed') = (failed_at IS NOT NULL)),
    CONSTRAINT rewrite_request_completed_says_when CHECK (
        (status = 'completed') = (rewrite_completed_at IS NOT NULL)
        AND (status = 'completed') = (output_recipient_user_id IS NOT NULL)),
    CONSTRAINT rewrite_request_content_hash_goes_with_text CHECK (
        content_hash IS NULL OR erased_at IS NULL),
    CONSTRAINT rewrite_request_preferences_erased_last CHECK (
        preferences_erased_at IS NULL
        OR (erased_at IS NOT NULL AND rewrite_request IS NULL AND context_pack IS NULL
            AND policy IS NULL)),
    CONSTRAINT rewrite_request_reveal_follows_completion CHECK (
        (sender_reveal_at IS NULL OR (status = 'completed' AND sender_reveal_at >= rewrite_completed_at))
        AND (step = 'revealed') = (revealed_at IS NOT NULL)
        AND (revealed_at IS NULL OR revealed_at >= sender_reveal_at))
    -- PostgreSQL has it under the name rewrite_request_completed_has_output, once the other is there.
    {only sqlite}, FOREIGN KEY (org_id, rewrite_request_id, output_recipient_user_id)
        REFERENCES holdfast.rewrite_output (org_id, rewrite_request_id, recipient_user_id)
        DEFERRABLE INITIALLY DEFERRED{end}
);

-- One full reframe a sender and week, whatever home it was sent in; a failed one does not count.
CREATE UNIQUE INDEX rewrite_request_cadence
    ON holdfast.rewrite_request (sender_user_id, iso_week_year, iso_week)
    WHERE rewrite_strength = 'full_reframe' AND status NOT IN ('failed', 'canceled');
CREATE INDEX rewrite_request_of_home ON holdfast.rewrite_request (org_id, status);
CREATE INDEX rewrite_request_of_recipient
    ON holdfast.rewrite_request (org_id, recipient_user_id, created_at);
CREATE INDEX rewrite_request_of_sender
    ON holdfast.rewrite_request (org_id, sender_user_id, created_at);
-- Completed requests whose output may be used again.
CREATE INDEX rewrite_request_reusable ON holdfast.rewrite_request (org_id, content_hash)
    WHERE content_hash IS NOT NULL AND status = 'completed';
-- What the orchestrator has still to do: go on after a crash, conclude, reveal.
CREATE INDEX rewrite_request_unfinished ON holdfast.rewrite_request (created_at)
    WHERE step IN ('received', 'queued', 'classified', 'context_built', 'routed');
CREATE INDEX rewrite_request_unconcluded ON holdfast.rewrite_request (updated_at)
    WHERE step IN ('completed', 'failed', 'canceled') AND concluded_at IS NULL;
CREATE INDEX rewrite_request_unrevealed ON holdfast.rewrite_request (sender_reveal_at)
    WHERE step = 'completed' AND sender_reveal_at IS NOT NULL;

CREATE TABLE holdfast.rewrite_message (
    org_id {uuid} NOT NULL,
    rewrite_request_id {uuid} NOT NULL,
    original_text text,
    emotion_context text,
    created_at {instant} NOT NULL,
    erased_at {instant},
    PRIMARY KEY (org_id, rewrite_request_id),
    FOREIGN KEY (org_id, rewrite_request_id)
        REFERENCES holdfast.rewrite_request (org_id, rewrite_request_id) ON DELETE CASCADE,
    CONSTRAINT rewrite_message_text_until_erased CHECK (
        (original_text IS NULL) = (erased_at IS NOT NULL))
);

CREATE TABLE holdfast.recipient_snapshot (
    org_id {uuid} NOT NULL,
    recipient_snapshot_id {uuid} NOT NULL,
    rewrite_request_id {uuid} NOT NULL,
    recipient_user_ids {json} NOT NULL,
    created_at {instant} NOT NULL,
    PRIMARY KEY (org_id, recipient_snapshot_id),
    FOREIGN KEY (org_id, rewrite_request_id)
        REFERENCES holdfast.rewrite_request (org_id, rewrite_request_id) ON DELETE CASCADE
);
CREATE INDEX recipient_snapshot_of_request
    ON holdfast.recipient_snapshot (org_id, rewrite_request_id);

CREATE TABLE holdfast.recipient_preference_snapshot (
    org_id {uuid} NOT NULL,
    recipient_preference_snapshot_id {uuid} NOT NULL,
    rewrite_request_id {uuid} NOT NULL,
    recipient_user_id {uuid} NOT NULL,
    preference_payload {json} NOT NULL,
    created_at {instant} NOT NULL,
    PRIMARY KEY (org_id, recipient_preference_snapshot_id),
    FOREIGN KEY (org_id, rewrite_request_id)
        REFERENCES holdfast.rewrite_request (org_id, rewrite_request_id) ON DELETE CASCADE
);
CREATE INDEX recipient_preference_snapshot_of_request
    ON holdfast.recipient_preference_snapshot (org_id, rewrite_request_id);

CREATE TABLE holdfast.rewrite_output (
    org_id {uuid} NOT NULL,
    rewrite_request_id {uuid} NOT NULL,
    recipient_user_id {uuid} NOT NULL,
    rewritten_text text,
    output_language text NOT NULL,
    target_locale text NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    prompt_version text NOT NULL,
    policy_version text NOT NULL,
    lexicon_version text NOT NULL,
    eval_result {json} NOT NULL,
    created_at {instant} NOT NULL,
    erased_at {instant},
    PRIMARY KEY (org_id, rewrite_request_id, recipient_user_id),
    FOREIGN KEY (org_id, rewrite_request_id)
        REFERENCES holdfast.rewrite_request (org_id, rewrite_request_id) ON DELETE CASCADE,
    CONSTRAINT rewrite_output_in_target_locale CHECK (output_language = target_locale),
    CONSTRAINT rewrite_output_length CHECK (length(rewritten_text) BETWEEN 1 AND 600),
    CONSTRAINT rewrite_output_text_until_erased CHECK (
        (rewritten_text IS NULL) = (erased_at IS NOT NULL))
);

{refuse rewrite_request_begins BEFORE INSERT ON holdfast.rewrite_request
WHEN NEW.step NOT IN ('received', 'queued', 'failed') OR NEW.job_id IS NOT NULL
SAYING 'a rewrite request must be inserted queued or refused'};

{refuse rewrite_request_edge BEFORE UPDATE OF step ON holdfast.rewrite_request
WHEN OLD.step <> NEW.step AND NOT (
    (OLD.step IN ('received', 'queued', 'classified', 'context_built', 'routed')
        AND NEW.step IN ('failed', 'canceled'))
    OR (OLD.step = 'received' AND NEW.step = 'queued')
    OR (OLD.step IN ('queued', 'classified', 'context_built', 'routed')
        AND NEW.step IN ('classified', 'context_built', 'routed', 'enqueued')
        AND CASE NEW.step WHEN 'classified' THEN 1 WHEN 'context_built' THEN 2 WHEN 'routed' THEN 3
                          ELSE 4 END
            > CASE OLD.step WHEN 'queued' THEN 0 WHEN 'classified' THEN 1
                            WHEN 'context_built' THEN 2 ELSE 3 END)
    OR (OLD.step = 'enqueued'
        AND NEW.step IN ('judging', 'held', 'completed', 'failed', 'canceled'))
    OR (OLD.step = 'judging' AND NEW.step IN ('held', 'completed', 'failed'))
    OR (OLD.step = 'held' AND NEW.step IN ('completed', 'failed'))
    OR (OLD.step = 'completed' AND NEW.step = 'revealed'))
SAYING 'invalid state transition of a rewrite request'};

{refuse rewrite_request_write_once BEFORE UPDATE ON holdfast.rewrite_request
WHEN NEW.sender_user_id <> OLD.sender_user_id OR NEW.recipient_user_id <> OLD.recipient_user_id
    OR NEW.surface IS DISTINCT FROM OLD.surface OR NEW.created_at <> OLD.created_at
    OR NEW.iso_week <> OLD.iso_week OR NEW.iso_week_year <> OLD.iso_week_year
    OR (OLD.recipient_snapshot_id IS NOT NULL
        AND NEW.recipient_snapshot_id IS DISTINCT FROM OLD.recipient_snapshot_id)
    OR (OLD.recipient_preference_snapshot_id IS NOT NULL
        AND NEW.recipient_preference_snapshot_id
            IS DISTINCT FROM OLD.recipient_preference_snapshot_id)
    OR NEW.sender_role IS DISTINCT FROM OLD.sender_role
    OR NEW.recipient_role IS DISTINCT FROM OLD.recipient_role
    OR NEW.sender_locale IS DISTINCT FROM OLD.sender_locale
    OR NEW.recipient_locale IS DISTINCT FROM OLD.recipient_locale
    OR (OLD.source_locale IS NOT NULL AND NEW.source_locale IS DISTINCT FROM OLD.source_locale)
    OR (OLD.target_locale IS NOT NULL AND NEW.target_locale IS DISTINCT FROM OLD.target_locale)
    OR (OLD.lane IS NOT NULL AND NEW.lane IS DISTINCT FROM OLD.lane)
    OR (OLD.rewrite_strength IS NOT NULL
        AND NEW.rewrite_strength IS DISTINCT FROM OLD.rewrite_strength)
    OR (OLD.request_hash IS NOT NULL AND NEW.request_hash IS DISTINCT FROM OLD.request_hash)
    OR (OLD.content_hash IS NOT NULL AND NEW.content_hash IS DISTINCT FROM OLD.content_hash
        AND NOT (NEW.content_hash IS NULL AND NEW.erased_at IS NOT NULL))
    OR (OLD.classifier_result IS NOT NULL
        AND NEW.classifier_result IS DISTINCT FROM OLD.classifier_result)
    OR (OLD.context_pack IS NOT NULL AND NEW.context_pack IS DISTINCT FROM OLD.context_pack
        AND NOT (NEW.context_pack IS NULL AND NEW.erased_at IS NOT NULL))
    OR (OLD.policy IS NOT NULL AND NEW.policy IS DISTINCT FROM OLD.policy
        AND NOT (NEW.policy IS NULL AND NEW.erased_at IS NOT NULL))
    OR (OLD.routing_decision IS NOT NULL
        AND NEW.routing_decision IS DISTINCT FROM OLD.routing_decision)
    OR (OLD.rewrite_request IS NOT NULL
        AND NEW.rewrite_request IS DISTINCT FROM OLD.rewrite_request
        AND NOT (NEW.rewrite_request IS NULL AND NEW.erased_at IS NOT NULL))
    OR (OLD.erased_at IS NOT NULL
        AND (NEW.erased_at IS DISTINCT FROM OLD.erased_at OR NEW.rewrite_request IS NOT NULL))
    OR (OLD.preferences_erased_at IS NOT NULL
        AND NEW.preferences_erased_at IS DISTINCT FROM OLD.preferences_erased_at)
    OR (OLD.job_id IS NOT NULL AND NEW.job_id IS DISTINCT FROM OLD.job_id)
    OR (OLD.rewrite_completed_at IS NOT NULL
        AND NEW.rewrite_completed_at IS DISTINCT FROM OLD.rewrite_completed_at)
    OR (OLD.sender_reveal_at IS NOT NULL
        AND NEW.sender_reveal_at IS DISTINCT FROM OLD.sender_reveal_at)
SAYING 'the input columns of a rewrite request are immutable'};

{refuse rewrite_message_write_once BEFORE UPDATE ON holdfast.rewrite_message
WHEN NEW.original_text IS NOT NULL AND NEW.original_text IS DISTINCT FROM OLD.original_text
    OR NEW.emotion_context IS NOT NULL
        AND NEW.emotion_context IS DISTINCT FROM OLD.emotion_context
    OR (OLD.erased_at IS NOT NULL AND NEW.erased_at IS DISTINCT FROM OLD.erased_at)
SAYING 'a message is written once; it can only be erased'};

{refuse recipient_snapshot_never_changes BEFORE UPDATE ON holdfast.recipient_snapshot
WHEN TRUE SAYING 'snapshots are immutable'};
{refuse preference_snapshot_never_changes BEFORE UPDATE ON holdfast.recipient_preference_snapshot
WHEN TRUE SAYING 'snapshots are immutable'};

{refuse recipient_snapshot_never_leaves BEFORE DELETE ON holdfast.recipient_snapshot
WHEN TRUE SAYING 'recipient snapshots cannot be deleted'};

{refuse rewrite_output_never_changes BEFORE UPDATE ON holdfast.rewrite_output
WHEN NOT (NEW.rewritten_text IS NULL AND NEW.erased_at IS NOT NULL AND OLD.erased_at IS NULL
          AND NEW.output_language = OLD.output_language AND NEW.created_at = OLD.created_at
          AND NEW.lexicon_version = OLD.lexicon_version AND NEW.model = OLD.model
          AND NEW.provider = OLD.provider AND NEW.prompt_version = OLD.prompt_version
          AND NEW.policy_version = OLD.policy_version
          AND NOT NEW.eval_result IS DISTINCT FROM OLD.eval_result)
SAYING 'an output is written once; its text can only be erased'};

-- What a frontend may know of a request: how it stands, when, and whether it failed.
CREATE VIEW holdfast.rewrite_status AS
SELECT
    org_id,
    rewrite_request_id,
    sender_user_id,
    CASE status WHEN 'batch_submitted' THEN 'processing' ELSE status END AS status,
    created_at,
    rewrite_completed_at AS completed_at,
    sender_reveal_at,
    CASE WHEN status = 'failed' THEN 1 ELSE 0 END AS has_failed
FROM holdfast.rewrite_request;

-- Known from the start, so that no process enqueues or cancels a rewrite before an application has
-- declared it: only the orchestrator enqueues one, only an admin or the system cancels one.
INSERT INTO holdfast.job_type_rule (job_type, producer, cancel_role, updated_at)
VALUES ('complaint_rewrite', 'rewrites.submit(…)', 'admin', '2000-01-01T00:00:00.000Z');
