-- Statements that seal the audit, check the seals and read them.

-- find_newest :one — crosses tenants: the newest event, and the position of sealing
SELECT (SELECT coalesce(max(event.id), 0) FROM holdfast.audit_event AS event) AS newest,
       sealed_to, next_to
FROM holdfast.audit_cursor
WHERE only_row = 1;

-- lock_cursor :maybe — crosses tenants: one pass at a time; a second one finds nothing to do
SELECT sealed_to, next_to, next_horizon, {oldest_running} AS oldest_running,
       {this_transaction} AS this_transaction
FROM holdfast.audit_cursor
WHERE only_row = 1
{skip_locked};

-- list_unsealed :many — crosses tenants: the next events in order
-- It reads the rows that have :limit events, not :limit rows: a row may have the events of many jobs.
SELECT id, org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
       correlation_id, at, detail, digest
FROM holdfast.audit_entry AS event
WHERE event.row_id > :after AND event.row_id <= (
      SELECT coalesce(min(CASE WHEN page.total >= :limit THEN page.id END), max(page.id))
      FROM (SELECT next.id, sum(CASE WHEN next.id - next.events < :after THEN next.id - :after
                                     ELSE next.events END) OVER (ORDER BY next.id) AS total
            FROM (SELECT id, events FROM holdfast.audit_event
                  WHERE id > :after AND id - events < :upto
                  ORDER BY id LIMIT :limit) AS next) AS page)
  AND id > :after AND id <= :upto
ORDER BY id
LIMIT :limit;

-- find_heads :many — the newest seal of each of these tenants; crosses tenants
SELECT seal.org_id, seal.number, seal.first_seq, seal.event_count, seal.digest
FROM {rows orgs: org_id uuid}
JOIN holdfast.audit_seal AS seal ON seal.org_id = orgs.org_id
WHERE seal.number = (
    SELECT max(newest.number) FROM holdfast.audit_seal AS newest WHERE newest.org_id = orgs.org_id);

-- insert_seals :affected — crosses tenants: one seal per tenant
INSERT INTO holdfast.audit_seal
    (org_id, number, first_seq, event_count, first_event_id, last_event_id, leaves, digest, sealed_at)
SELECT seals.org_id, seals.number, seals.first_seq, seals.event_count, seals.first_event_id,
       seals.last_event_id, seals.leaves, seals.digest, {now}
FROM {rows seals: org_id uuid, number integer, first_seq bigint, event_count integer,
      first_event_id bigint, last_event_id bigint, leaves text, digest text}
WHERE TRUE;

-- move_cursor :affected — crosses tenants: complete a round; store the limit of the next one, and its horizon
UPDATE holdfast.audit_cursor
SET sealed_to = :sealed_to, next_to = :next_to, next_horizon = {this_transaction}
WHERE only_row = 1;

-- step_cursor :affected — crosses tenants: part of the round is sealed
UPDATE holdfast.audit_cursor SET sealed_to = :sealed_to WHERE only_row = 1;

-- read_cursor :one — crosses tenants: the position of sealing
SELECT sealed_to, next_to, next_horizon FROM holdfast.audit_cursor WHERE only_row = 1;

-- read_reach :one — crosses tenants: the recorded position of sealing, and the last event under a seal
SELECT sealed_to, (SELECT coalesce(max(last_event_id), 0) FROM holdfast.audit_seal) AS newest
FROM holdfast.audit_cursor
WHERE only_row = 1;

-- list_seals :many — crosses tenants: the chains, seal by seal, and whether each still covers any event
SELECT seal.org_id, seal.number, seal.first_seq, seal.event_count, seal.first_event_id,
       seal.last_event_id, seal.leaves, seal.digest,
       EXISTS (
           SELECT 1 FROM holdfast.audit_event AS event
           WHERE event.org_id = seal.org_id AND event.id - event.events < seal.last_event_id
             AND event.id > coalesce(
                 (SELECT max(before.last_event_id) FROM holdfast.audit_seal AS before
                  WHERE before.org_id = seal.org_id
                    AND before.last_event_id < seal.last_event_id), 0)) AS has_events
FROM holdfast.audit_seal AS seal
WHERE (seal.org_id, seal.number) > (:after_org, :after_number) AND seal.org_id <= :to_org
ORDER BY seal.org_id, seal.number
LIMIT :limit;

-- list_covered :many — crosses tenants unless one is named: events in order, each with the seal over it
SELECT event.id, event.org_id, event.project_id, event.job_id, event.job_type, event.name,
       event.attempt, event.actor_type, event.actor_id, event.request_id, event.correlation_id,
       event.at, event.detail, event.digest,
       (SELECT seal.number FROM holdfast.audit_seal AS seal
        WHERE seal.org_id = event.org_id AND seal.last_event_id >= event.id
        ORDER BY seal.last_event_id LIMIT 1) AS seal
FROM holdfast.audit_entry AS event
WHERE event.row_id > :after AND event.row_id <= (
      SELECT coalesce(min(CASE WHEN page.total >= :limit THEN page.id END), max(page.id))
      FROM (SELECT next.id, sum(CASE WHEN next.id - next.events < :after THEN next.id - :after
                                     ELSE next.events END) OVER (ORDER BY next.id) AS total
            FROM (SELECT id, events FROM holdfast.audit_event
                  WHERE id > :after AND id - events < :upto
                    AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
                  ORDER BY id LIMIT :limit) AS next) AS page)
  AND (CAST(:org_id AS {uuid}) IS NULL OR event.org_id = :org_id)
  AND event.id > :after AND event.id <= :upto
ORDER BY event.id
LIMIT :limit;

-- find_seals :many — these seals
SELECT seal.org_id, seal.number, seal.first_seq, seal.last_event_id, seal.leaves
FROM {rows asked: org_id uuid, number integer}
JOIN holdfast.audit_seal AS seal ON seal.org_id = asked.org_id AND seal.number = asked.number;

-- find_digests :many — the digests of these seals
SELECT seal.org_id, seal.number, seal.digest
FROM {rows asked: org_id uuid, number integer}
JOIN holdfast.audit_seal AS seal ON seal.org_id = asked.org_id AND seal.number = asked.number;

-- list_exported_seals :many — these seals, each with the digest of the seal before it
SELECT seal.org_id, seal.number, seal.first_seq, seal.event_count, seal.first_event_id,
       seal.last_event_id, seal.leaves, seal.digest, coalesce(prior.digest, '') AS before
FROM {rows asked: org_id uuid, number integer}
JOIN holdfast.audit_seal AS seal ON seal.org_id = asked.org_id AND seal.number = asked.number
LEFT JOIN holdfast.audit_seal AS prior
  ON prior.org_id = seal.org_id AND prior.number = seal.number - 1
ORDER BY seal.org_id, seal.number;

-- list_reach :many — the id ranges of a tenant's events: under its seals, newest first
SELECT seal.first_event_id AS low, seal.last_event_id AS high
FROM holdfast.audit_seal AS seal
WHERE seal.org_id = :org_id AND seal.last_event_id > :above
  AND seal.last_event_id <= coalesce(
      (SELECT min(next.last_event_id) FROM holdfast.audit_seal AS next
       WHERE next.org_id = :org_id AND next.last_event_id >= :before), :before)
ORDER BY seal.last_event_id DESC
LIMIT :limit;

-- count_cover :one — crosses tenants unless one is named: the number of sealed and unsealed events
SELECT (SELECT sealed_to FROM holdfast.audit_cursor WHERE only_row = 1) AS sealed_to,
       (SELECT coalesce(max(id), 0) FROM holdfast.audit_event) AS newest,
       (SELECT count(*) FROM holdfast.audit_seal AS seal
        WHERE CAST(:org_id AS {uuid}) IS NULL OR seal.org_id = :org_id) AS seals,
       (SELECT coalesce(sum(seal.event_count), 0) FROM holdfast.audit_seal AS seal
        WHERE CAST(:org_id AS {uuid}) IS NULL OR seal.org_id = :org_id) AS sealed,
       (SELECT coalesce(sum(event.events), 0) FROM holdfast.audit_event AS event
        WHERE event.id > (SELECT sealed_to FROM holdfast.audit_cursor WHERE only_row = 1)
          AND (CAST(:org_id AS {uuid}) IS NULL OR event.org_id = :org_id)) AS unsealed;
