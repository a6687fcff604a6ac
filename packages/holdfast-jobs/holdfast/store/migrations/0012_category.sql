-- Settings that jobs of a category share. Settling reads the lifetime of a job's key here, so that
-- a process without the category's declaration cannot shorten it.
CREATE TABLE holdfast.category (
    name text NOT NULL PRIMARY KEY,
    queue text NOT NULL,
    max_attempts integer NOT NULL,
    longest_ms bigint NOT NULL,
    key_ttl_ms bigint NOT NULL,
    duty text NOT NULL,
    CONSTRAINT category_in_range CHECK (
        longest_ms > 0 AND max_attempts BETWEEN 1 AND 100
        AND key_ttl_ms BETWEEN 1 AND 316224000000),
    CONSTRAINT category_never_critical CHECK (queue NOT IN ('q:critical', 'q:deadletter')),
    CONSTRAINT category_duty_known CHECK (
        duty IN ('general', 'notification', 'audit_enrichment', 'planning', 'export', 'maintenance'))
);

INSERT INTO holdfast.category (name, queue, max_attempts, longest_ms, key_ttl_ms, duty) VALUES
    ('general', 'q:default', 5, 300000, 2592000000, 'general'),
    ('notification', 'q:notifications', 10, 1800000, 604800000, 'notification'),
    ('audit_enrichment', 'q:default', 5, 300000, 2592000000, 'audit_enrichment'),
    ('planning', 'q:planning', 3, 120000, 2592000000, 'planning'),
    ('export', 'q:exports', 5, 600000, 2592000000, 'export'),
    ('import', 'q:exports', 5, 600000, 2592000000, 'export'),
    ('maintenance', 'q:maintenance', 5, 300000, 604800000, 'maintenance');

{refuse category_built_in_stays BEFORE UPDATE ON holdfast.category
WHEN OLD.name IN ('general', 'notification', 'audit_enrichment', 'planning', 'export', 'import',
    'maintenance')
SAYING 'built-in categories cannot be changed; declare your own'};

{refuse category_never_leaves BEFORE DELETE ON holdfast.category
WHEN TRUE
SAYING 'a category cannot be deleted; its jobs need its key retention'};

-- Additions of audit enrichment to an event: a readable difference, a name for an id. The event
-- itself never changes. One note per name, job and event, so that a repeated job adds nothing.
CREATE TABLE holdfast.audit_note (
    org_id {uuid} NOT NULL,
    event_id bigint NOT NULL,
    job_id {uuid} NOT NULL,
    name text NOT NULL,
    note {json} NOT NULL,
    created_at {instant} NOT NULL,
    PRIMARY KEY (org_id, event_id, job_id, name),
    CONSTRAINT audit_note_named CHECK (length(name) BETWEEN 1 AND 100),
    CONSTRAINT audit_note_is_object CHECK ({object(note)}),
    CONSTRAINT audit_note_is_small CHECK (length(CAST(note AS text)) <= 20000)
);

{refuse audit_note_never_changes BEFORE UPDATE ON holdfast.audit_note
WHEN TRUE SAYING 'the audit is append-only'};
{refuse audit_note_never_leaves BEFORE DELETE ON holdfast.audit_note
WHEN TRUE SAYING 'the audit is append-only'};

-- Rules of a job type that bind every process, even one whose code does not declare them: the only
-- call that may enqueue its jobs, the role that may cancel them, and why they are never replayed.
CREATE TABLE holdfast.job_type_rule (
    job_type text NOT NULL PRIMARY KEY,
    producer text,
    cancel_role text,
    replay_refusal text,
    updated_at {instant} NOT NULL,
    CONSTRAINT job_type_rule_producer_bounded CHECK (length(producer) BETWEEN 1 AND 200),
    CONSTRAINT job_type_rule_role_known CHECK (cancel_role IN ('member', 'operator', 'admin')),
    CONSTRAINT job_type_rule_says_something CHECK (
        producer IS NOT NULL OR cancel_role IS NOT NULL OR replay_refusal IS NOT NULL)
);

-- The execution units of job types that have a producer. Only the producer writes them, in the
-- transaction that inserts the job. A unit stays when its job is pruned: it never gets a second
-- job.
CREATE TABLE holdfast.execution_unit (
    org_id {uuid} NOT NULL,
    job_type text NOT NULL,
    unit_key text NOT NULL,
    job_id {uuid} NOT NULL,
    created_at {instant} NOT NULL,
    PRIMARY KEY (org_id, job_type, unit_key),
    CONSTRAINT execution_unit_one_per_job UNIQUE (org_id, job_id)
);

{refuse execution_unit_never_changes BEFORE UPDATE ON holdfast.execution_unit
WHEN TRUE SAYING 'the job of an execution unit is immutable'};
