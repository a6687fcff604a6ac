-- Seals make changes of audit events detectable, off the hot path: a seal covers the next events of
-- one tenant with a short hash each, and is chained to the previous seal.
CREATE TABLE holdfast.audit_seal (
    org_id {uuid} NOT NULL,
    number integer NOT NULL,
    first_seq bigint NOT NULL,
    event_count integer NOT NULL,
    first_event_id bigint NOT NULL,
    last_event_id bigint NOT NULL,
    leaves text NOT NULL,
    digest text NOT NULL,
    sealed_at {instant} NOT NULL,
    PRIMARY KEY (org_id, number)
);
-- Finds the seal of an event. It also bounds the ids of a tenant's events: an index by tenant on
-- the events themselves would cost 1 microsecond more for every event of every job.
CREATE INDEX audit_seal_of_event ON holdfast.audit_seal (org_id, last_event_id);

{refuse audit_seal_never_changes BEFORE UPDATE ON holdfast.audit_seal
WHEN TRUE SAYING 'seals are immutable'};
{refuse audit_seal_never_leaves BEFORE DELETE ON holdfast.audit_seal
WHEN TRUE SAYING 'seals cannot be deleted'};

-- The position of sealing, and the limit for the next round, once the transactions of its time have
-- ended.
CREATE TABLE holdfast.audit_cursor (
    only_row integer NOT NULL PRIMARY KEY CHECK (only_row = 1),
    sealed_to bigint NOT NULL,
    next_to bigint NOT NULL,
    next_horizon bigint NOT NULL
);
INSERT INTO holdfast.audit_cursor VALUES (1, 0, 0, 0);
