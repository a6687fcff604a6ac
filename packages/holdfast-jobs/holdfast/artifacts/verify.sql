-- The invariants of artifacts. Each statement selects violations: org_id, subject and detail.

-- find_foreign :many — I29, crosses tenants: artifacts of another tenant than their job
SELECT artifact.org_id, 'artifact:' || CAST(artifact.id AS text) AS subject,
       'it refers to a job of another tenant' AS detail
FROM holdfast.artifact AS artifact
JOIN (
    SELECT org_id, id AS job_id FROM holdfast.job_envelope
    UNION ALL
    SELECT org_id, job_id FROM holdfast.job_remainder
) AS made ON made.job_id = artifact.job_id AND made.org_id <> artifact.org_id
WHERE (CAST(:org_id AS {uuid}) IS NULL OR artifact.org_id = :org_id);

-- find_ahead :many — I36, crosses tenants: artifacts with a timestamp in the future
SELECT org_id, 'artifact:' || CAST(id AS text) AS subject,
       'one of its timestamps is in the future' AS detail
FROM holdfast.artifact
WHERE (created_at > CAST(:ahead AS {instant}) OR stored_at > CAST(:ahead AS {instant})
       OR removed_at > CAST(:ahead AS {instant}))
  AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id);

-- find_changed :many — I49, crosses tenants: artifacts that differ from their stored event
SELECT artifact.org_id, 'artifact:' || CAST(artifact.id AS text) AS subject,
       'it is not what event ' || CAST(event.id AS text) || ' says was stored' AS detail
FROM holdfast.artifact AS artifact
CROSS JOIN holdfast.audit_event AS event
WHERE event.jobs IS NULL AND artifact.sha256 IS NOT NULL AND (CAST(:org_id AS {uuid}) IS NULL OR artifact.org_id = :org_id)
  AND event.job_id = coalesce(artifact.job_id, artifact.id) AND event.org_id = artifact.org_id
  AND event.name = 'artifact.stored'
  AND {field(event.detail, artifact_id)} = CAST(artifact.id AS text)
  AND (artifact.sha256 IS DISTINCT FROM {field(event.detail, sha256)}
       OR CAST(artifact.bytes AS text) <> CAST({field(event.detail, bytes)} AS text)
       OR artifact.kind <> {field(event.detail, kind)}
       OR artifact.stage <> {field(event.detail, stage)});
