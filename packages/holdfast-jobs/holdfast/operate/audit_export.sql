-- Statements for a copy of the audit. Its events come by list_covered of engine/audit.sql.

-- list_exported_seals :many — these seals, each with the digest that it is chained to
SELECT seal.org_id, seal.number, seal.first_seq, seal.event_count, seal.first_event_id,
       seal.last_event_id, seal.leaves, seal.digest, coalesce(prior.digest, '') AS before
FROM {rows asked: org_id uuid, number integer}
JOIN holdfast.audit_seal AS seal ON seal.org_id = asked.org_id AND seal.number = asked.number
LEFT JOIN holdfast.audit_seal AS prior
  ON prior.org_id = seal.org_id AND prior.number = seal.number - 1
ORDER BY seal.org_id, seal.number;
