-- All statements about artifacts. The cleanup passes cross tenants.

-- begin_artifact :affected — insert the row before the bytes; a job it names must be this tenant's
INSERT INTO holdfast.artifact
    (org_id, id, job_id, stage, kind, name, media_type, access, owner_type, owner_id, place,
     created_at, expires_at)
SELECT begun.org_id, begun.id, begun.job_id, begun.stage, begun.kind, begun.name,
       begun.media_type, begun.access, begun.owner_type, begun.owner_id, begun.place, {now},
       {later(:keep_ms)}
FROM {rows begun: org_id uuid, id uuid, job_id uuid, stage text, kind text, name text,
      media_type text, access text, owner_type text, owner_id text, place text}
WHERE begun.job_id IS NULL OR EXISTS (
    SELECT 1 FROM holdfast.job_envelope AS job
    WHERE job.org_id = begun.org_id AND job.id = begun.job_id)
ON CONFLICT DO NOTHING;

-- store_artifact :affected — the bytes are durable; from here on they are part of the record
UPDATE holdfast.artifact
SET state = 'stored', bytes = :bytes, sha256 = :sha256, stored_at = {now}
WHERE org_id = :org_id AND id = :id AND state = 'writing';

-- abandon_artifact :affected — mark an unfinished write as removed; a stored artifact is not changed
UPDATE holdfast.artifact
SET state = 'removed', removed_at = {now}, erase_at = {now}
WHERE org_id = :org_id AND id = :id AND state = 'writing';

-- remove_artifact :affected — remove a stored artifact before it expires
UPDATE holdfast.artifact
SET state = 'removed', removed_at = {now}, erase_at = {now}
WHERE org_id = :org_id AND id = :id AND state = 'stored';

-- find_artifact :maybe — one artifact of one tenant, with the current time
SELECT org_id, id, job_id, stage, kind, name, media_type, access, owner_type, owner_id, place,
       created_at, expires_at, state, bytes, sha256, stored_at, removed_at, erase_at, {now} AS now
FROM holdfast.artifact
WHERE org_id = :org_id AND id = :id;

-- find_artifact_org :maybe — crosses tenants: the tenant of an artifact, for operators who have only an id
SELECT org_id FROM holdfast.artifact WHERE place = :place;

-- list_artifacts :many — the artifacts of a tenant, newest first, page by page
SELECT org_id, id, job_id, stage, kind, name, media_type, access, owner_type, owner_id, place,
       created_at, expires_at, state, bytes, sha256, stored_at, removed_at, erase_at
FROM holdfast.artifact
WHERE org_id = :org_id AND id < :before AND state = :state
  AND (state <> 'stored' OR expires_at > {now})
  AND (access = 'tenant' OR CAST(:sees_all AS integer) = 1
       OR (owner_type = :owner_type AND owner_id = :owner_id))
ORDER BY id DESC
LIMIT :limit;

-- list_artifacts_of_job :many — the inputs and outputs of one job
SELECT org_id, id, job_id, stage, kind, name, media_type, access, owner_type, owner_id, place,
       created_at, expires_at, state, bytes, sha256, stored_at, removed_at, erase_at
FROM holdfast.artifact
WHERE org_id = :org_id AND job_id = :job_id AND id < :before AND state = :state
  AND (state <> 'stored' OR expires_at > {now})
  AND (access = 'tenant' OR CAST(:sees_all AS integer) = 1
       OR (owner_type = :owner_type AND owner_id = :owner_id))
ORDER BY id DESC
LIMIT :limit;

-- list_all_artifacts :many — crosses tenants: the same for an operator
SELECT org_id, id, job_id, stage, kind, name, media_type, access, owner_type, owner_id, place,
       created_at, expires_at, state, bytes, sha256, stored_at, removed_at, erase_at
FROM holdfast.artifact
WHERE id < :before AND state = :state AND (state <> 'stored' OR expires_at > {now})
ORDER BY id DESC
LIMIT :limit;

-- find_missing :many — of these artifacts, those that are not stored for this tenant, or this job
SELECT wanted.id
FROM {rows wanted: id uuid, job_id uuid}
WHERE NOT EXISTS (
    SELECT 1 FROM holdfast.artifact AS artifact
    WHERE artifact.org_id = :org_id AND artifact.id = wanted.id
      AND (wanted.job_id IS NULL OR artifact.job_id = wanted.job_id)
      AND artifact.state = 'stored' AND artifact.expires_at > {now});

-- expire_artifacts :many — crosses tenants: artifacts past their retention
WITH due AS MATERIALIZED (
    SELECT org_id, id FROM holdfast.artifact
    WHERE state = 'stored' AND expires_at <= {now}
    ORDER BY expires_at
    LIMIT :limit
    {skip_locked}
)
UPDATE holdfast.artifact
SET state = 'removed', removed_at = {now}, erase_at = {now}
WHERE (org_id, id) IN (SELECT org_id, id FROM due)
RETURNING org_id, id, place, sha256;

-- sweep_artifacts :many — crosses tenants: writes that never finished
WITH due AS MATERIALIZED (
    SELECT org_id, id FROM holdfast.artifact
    WHERE state = 'writing' AND created_at <= {later(-CAST(:grace_ms AS bigint))}
    ORDER BY created_at
    LIMIT :limit
    {skip_locked}
)
UPDATE holdfast.artifact
SET state = 'removed', removed_at = {now}, erase_at = {later(:grace_ms)}
WHERE (org_id, id) IN (SELECT org_id, id FROM due)
RETURNING org_id, id, place, sha256;

-- list_to_erase :many — crosses tenants: removed artifacts whose bytes may still exist
SELECT org_id, id, place
FROM holdfast.artifact
WHERE erase_at <= {now}
ORDER BY erase_at
LIMIT :limit;

-- mark_erased :affected — crosses tenants: bytes erased, or to be retried later
UPDATE holdfast.artifact
SET erase_at = CASE WHEN CAST(:gone AS integer) = 1 THEN NULL ELSE {later(:pause_ms)} END
WHERE erase_at IS NOT NULL AND (org_id, id) IN (
    SELECT erased.org_id, erased.id FROM {rows erased: org_id uuid, id uuid});

-- prune_artifacts :affected — crosses tenants: rows whose bytes were erased long ago
DELETE FROM holdfast.artifact
WHERE (org_id, id) IN (
    SELECT org_id, id FROM holdfast.artifact
    WHERE state = 'removed' AND removed_at < {later(-CAST(:keep_ms AS bigint))}
      AND erase_at IS NULL
    ORDER BY removed_at
    LIMIT :limit
);

-- insert_artifact_events :affected — crosses tenants: in the job's own timeline, if there is a job
-- The tables are joined, because SQLite reads every job for a LEFT JOIN of the view job.
INSERT INTO holdfast.audit_event
    (org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
     correlation_id, at, detail)
SELECT artifact.org_id, job.project_id,
       coalesce(artifact.job_id, artifact.id),
       coalesce(job.job_type, 'artifact'), :name,
       coalesce(running.attempt_count + 1,
                nullif(coalesce(outcome.attempt_count, (
                    SELECT attempt.attempt_count FROM holdfast.job_attempt AS attempt
                    WHERE attempt.org_id = job.org_id AND attempt.job_id = job.id
                    ORDER BY attempt.number DESC LIMIT 1)), 0), 1),
       :actor_type, :actor_id,
       coalesce(job.request_id, CAST(job.id AS text), CAST(artifact.id AS text)),
       coalesce(job.correlation_id, job.request_id, CAST(job.id AS text),
                CAST(artifact.id AS text)), {now},
       events.detail
FROM {rows events: org_id uuid, id uuid, detail json}
JOIN holdfast.artifact AS artifact ON artifact.org_id = events.org_id AND artifact.id = events.id
LEFT JOIN holdfast.job_envelope AS job
  ON job.org_id = artifact.org_id AND job.id = artifact.job_id
LEFT JOIN holdfast.job_running AS running
  ON running.org_id = artifact.org_id AND running.job_id = artifact.job_id
LEFT JOIN holdfast.job_outcome AS outcome
  ON outcome.org_id = artifact.org_id AND outcome.job_id = artifact.job_id
WHERE {numbered};
