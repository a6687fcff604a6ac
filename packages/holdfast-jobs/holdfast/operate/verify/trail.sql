-- The invariants of the audit, I33 and I34, in the shape of letters.sql. The extension "seal" checks
-- the seals.

-- find_incomplete :many — I33, crosses tenants: events without a required column
SELECT org_id, 'event:' || CAST(id AS text) AS subject,
       'the event has no name, job type, request id or attempt' AS detail
FROM holdfast.audit_event
WHERE (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
  AND (trim(name) = '' OR trim(job_type) = '' OR trim(request_id) = ''
       OR trim(correlation_id) = '' OR attempt < 1 OR events < 1
       OR (jobs IS NULL AND events > 1)
       OR (jobs IS NOT NULL AND events <> (SELECT count(*) FROM {each(jobs) AS item}))
       OR (jobs IS NULL) <> (job_id IS NOT NULL));

-- find_out_of_order :many — I33, crosses tenants: events that are older than earlier ones
SELECT told.org_id, 'event:' || CAST(told.id AS text) AS subject,
       'it is older than an event with a lower number' AS detail
FROM (
    SELECT id, org_id, at, max(at) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) AS newest
    FROM holdfast.audit_event
) AS told
WHERE told.at < told.newest
  AND {ms_since(told.at)} - {ms_since(told.newest)} > CAST(:tolerance_ms AS bigint)
  AND (CAST(:org_id AS {uuid}) IS NULL OR told.org_id = :org_id);

-- find_unattributed :many — I34, crosses tenants: events without an actor
SELECT org_id, 'event:' || CAST(id AS text) AS subject,
       'the event has no actor' AS detail
FROM holdfast.audit_event
WHERE (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
  AND (trim(actor_id) = '' OR actor_type NOT IN ('user', 'system', 'api_key'));

-- find_roles :many — I34, crosses tenants: actions with an insufficient role, or without one
SELECT told.org_id, 'event:' || CAST(told.id AS text) AS subject,
       'it records ' || told.name || ' by ' || coalesce(told.role, 'no role') AS detail
FROM (
    SELECT id, org_id, name, {field(detail, role)} AS role
    FROM holdfast.audit_event
    WHERE (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
      AND name IN ('operator.refused', 'audit.exported', 'table.granted', 'dead_letter.triaged',
                   'dead_letter.remediated', 'dead_letter.validated',
                   'dead_letter.replay_requested', 'dead_letter.verified', 'dead_letter.resolved',
                   'dead_letter.discarded', 'dead_letter.fixed_forward', 'dead_letter.noted',
                   'batch.cancel_requested', 'batch.adopted', 'batch.released')
) AS told
WHERE coalesce(told.role, '') <> 'admin'
  AND NOT (told.name NOT IN ('audit.exported', 'table.granted')
           AND coalesce(told.role, '') = 'operator')
  AND NOT (told.name = 'operator.refused' AND coalesce(told.role, '') IN ('member', 'viewer'));
