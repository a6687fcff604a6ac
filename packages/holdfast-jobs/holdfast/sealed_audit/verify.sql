-- Invariants of seals, in the shape of operate/verify/letters.sql.

-- find_ahead :many — I36, crosses tenants: seals with a timestamp in the future
SELECT seal.org_id, 'seal:' || CAST(seal.number AS text) AS subject,
       'one of its timestamps is in the future' AS detail
FROM holdfast.audit_seal AS seal
WHERE seal.sealed_at > CAST(:ahead AS {instant})
  AND (CAST(:org_id AS {uuid}) IS NULL OR seal.org_id = :org_id);
