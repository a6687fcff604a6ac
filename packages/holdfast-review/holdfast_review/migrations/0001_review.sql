-- The review critic: changelists, the versions of them that are reviewed, what was found, who is told.

CREATE TABLE holdfast.changelist (
    org_id {uuid} NOT NULL,
    changelist_id text NOT NULL,
    -- The highest version whose review succeeded; whoever asks for a review holds this row.
    succeeded_version integer,
    created_at {instant} NOT NULL,
    PRIMARY KEY (org_id, changelist_id)
);

CREATE TABLE holdfast.review (
    org_id {uuid} NOT NULL,
    review_id {uuid} NOT NULL,
    changelist_id text NOT NULL,
    review_version integer NOT NULL,
    idempotency_key text NOT NULL,
    -- Of all that was asked for, to tell a repeated request from another one under its key.
    request_hash text NOT NULL,
    source {json} NOT NULL,
    is_rerun smallint NOT NULL DEFAULT 0,
    -- Its first job. Replays of that one point at it.
    job_id {uuid} NOT NULL,
    -- As its last job stands, in the word of the job.
    status text NOT NULL DEFAULT 'queued',
    summary text,
    finding_count integer,
    criticised_at {instant},
    -- How much of the change was reviewed: counts, no text.
    coverage {json},
    -- Author, title and commit ids of the change.
    origin {json},
    -- Since then its deliveries are in the outbox, and its recipients are fixed.
    intended_at {instant},
    succeeded_at {instant},
    -- Since then nothing is left of what was found and who was told; it is not gone on with.
    erased_at {instant},
    request_id text NOT NULL,
    correlation_id text NOT NULL,
    created_at {instant} NOT NULL,
    updated_at {instant} NOT NULL,
    PRIMARY KEY (org_id, review_id),
    FOREIGN KEY (org_id, changelist_id) REFERENCES holdfast.changelist (org_id, changelist_id),
    CONSTRAINT review_once UNIQUE (org_id, changelist_id, review_version),
    CONSTRAINT review_once_per_key UNIQUE (org_id, idempotency_key),
    CONSTRAINT review_once_per_job UNIQUE (org_id, job_id),
    CONSTRAINT review_version_positive CHECK (review_version > 0),
    CONSTRAINT review_status_known CHECK (
        status IN ('queued', 'processing', 'batch_submitted', 'completed', 'failed', 'canceled')),
    CONSTRAINT review_succeeded_says_when CHECK (
        (status = 'completed') = (succeeded_at IS NOT NULL)),
    CONSTRAINT review_criticised_whole CHECK (
        (finding_count IS NULL) = (criticised_at IS NULL)),
    CONSTRAINT review_told_after_criticised CHECK (
        intended_at IS NULL OR criticised_at IS NOT NULL),
    CONSTRAINT review_erased_says_nothing CHECK (
        erased_at IS NULL OR (summary IS NULL AND origin IS NULL))
);

-- What is over leaves after its time, oldest first.
CREATE INDEX review_ended ON holdfast.review (updated_at)
    WHERE erased_at IS NULL AND status IN ('completed', 'failed', 'canceled');

-- What the critic says of a change. It may quote the change.
CREATE TABLE holdfast.finding (
    org_id {uuid} NOT NULL,
    review_id {uuid} NOT NULL,
    number integer NOT NULL,
    file text NOT NULL,
    line integer,
    severity text NOT NULL,
    message text NOT NULL,
    confidence text NOT NULL,
    -- 0 if the file that the model named is not in the change.
    is_placed smallint NOT NULL DEFAULT 1,
    -- The line that it is about, redacted.
    quote text NOT NULL DEFAULT '',
    PRIMARY KEY (org_id, review_id, number),
    FOREIGN KEY (org_id, review_id) REFERENCES holdfast.review (org_id, review_id)
        ON DELETE CASCADE,
    CONSTRAINT finding_numbered CHECK (number > 0),
    CONSTRAINT finding_line_positive CHECK (line > 0),
    CONSTRAINT finding_severity_known CHECK (
        severity IN ('info', 'low', 'medium', 'high', 'critical')),
    CONSTRAINT finding_confidence_known CHECK (confidence IN ('low', 'medium', 'high'))
);

CREATE TABLE holdfast.review_recipient (
    org_id {uuid} NOT NULL,
    review_id {uuid} NOT NULL,
    recipient text NOT NULL,
    channel text NOT NULL,
    -- Until the delivery holds it.
    address text,
    is_required smallint NOT NULL,
    created_at {instant} NOT NULL,
    PRIMARY KEY (org_id, review_id, recipient),
    FOREIGN KEY (org_id, review_id) REFERENCES holdfast.review (org_id, review_id)
        ON DELETE CASCADE
);

-- By which a posted patch is encrypted until the first stage has redacted it.
CREATE TABLE holdfast.review_seal (
    org_id {uuid} NOT NULL,
    review_id {uuid} NOT NULL,
    seal_key text NOT NULL,
    created_at {instant} NOT NULL,
    PRIMARY KEY (org_id, review_id),
    FOREIGN KEY (org_id, review_id) REFERENCES holdfast.review (org_id, review_id)
        ON DELETE CASCADE
);

-- What the batch lane is asked about a change, until its answers are put together.
CREATE TABLE holdfast.review_part (
    org_id {uuid} NOT NULL,
    review_id {uuid} NOT NULL,
    number integer NOT NULL,
    -- Of the change, the prompt and the division: another one has other parts.
    change_key text NOT NULL,
    -- The part itself.
    artifact_id {uuid} NOT NULL,
    -- The job that asks, and the review's job that wants to know.
    job_id {uuid},
    asked_by {uuid},
    -- What was found in it. It may quote the change.
    answer {json},
    created_at {instant} NOT NULL,
    PRIMARY KEY (org_id, review_id, number),
    FOREIGN KEY (org_id, review_id) REFERENCES holdfast.review (org_id, review_id)
        ON DELETE CASCADE,
    CONSTRAINT review_part_numbered CHECK (number >= 0),
    CONSTRAINT review_part_asked_whole CHECK ((job_id IS NULL) = (asked_by IS NULL))
);

{refuse review_part_never_changes BEFORE UPDATE ON holdfast.review_part
WHEN NEW.change_key <> OLD.change_key OR NEW.artifact_id <> OLD.artifact_id
    OR (OLD.answer IS NOT NULL AND NEW.answer IS DISTINCT FROM OLD.answer)
SAYING 'review parts and their findings are immutable'};

{refuse review_begins_queued BEFORE INSERT ON holdfast.review
WHEN NEW.status <> 'queued' OR NEW.criticised_at IS NOT NULL OR NEW.intended_at IS NOT NULL
    OR NEW.erased_at IS NOT NULL
SAYING 'a review must be inserted queued, without findings and notifications'};

{refuse review_write_once BEFORE UPDATE ON holdfast.review
WHEN NEW.changelist_id <> OLD.changelist_id OR NEW.review_version <> OLD.review_version
    OR NEW.idempotency_key <> OLD.idempotency_key OR NEW.request_hash <> OLD.request_hash
    OR NEW.job_id <> OLD.job_id
    OR (NEW.source IS DISTINCT FROM OLD.source
        AND ({field(OLD.source, sealed)} IS NULL OR {field(NEW.source, sealed)} IS NOT NULL))
    OR NEW.is_rerun <> OLD.is_rerun OR NEW.created_at <> OLD.created_at
    OR (OLD.intended_at IS NOT NULL AND NEW.intended_at IS DISTINCT FROM OLD.intended_at)
    OR (OLD.erased_at IS NOT NULL AND NEW.erased_at IS DISTINCT FROM OLD.erased_at)
SAYING 'the subject of a review is immutable'};

{refuse review_succeeded_stays BEFORE UPDATE OF status ON holdfast.review
WHEN OLD.status = 'completed' AND NEW.status <> 'completed'
SAYING 'a succeeded review is final; submit a higher version'};

{refuse changelist_version_grows BEFORE UPDATE ON holdfast.changelist
WHEN OLD.succeeded_version IS NOT NULL
    AND (NEW.succeeded_version IS NULL OR NEW.succeeded_version < OLD.succeeded_version)
SAYING 'the highest succeeded version cannot decrease'};

{refuse review_recipient_never_changes BEFORE UPDATE ON holdfast.review_recipient
WHEN NEW.recipient <> OLD.recipient OR NEW.channel <> OLD.channel
    OR NEW.is_required <> OLD.is_required OR NEW.created_at <> OLD.created_at
    OR (NEW.address IS NOT NULL AND NEW.address IS DISTINCT FROM OLD.address)
SAYING 'the recipients of a review are immutable'};
