-- Statements of category rules: audit events and notes of handlers.

-- append_events :affected — once per job and content, so that a repeated attempt adds nothing
INSERT INTO holdfast.audit_event
    (org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
     correlation_id, at, detail)
SELECT job.org_id, job.project_id, job.id, job.job_type, events.name, events.attempt, 'system',
       job.claimed_by, job.request_id, job.correlation_id, {now}, events.detail
FROM {rows events: org_id uuid, id uuid, name text, attempt integer, detail json}
JOIN holdfast.job AS job ON job.org_id = events.org_id AND job.id = events.id
WHERE {numbered} AND NOT EXISTS (
    SELECT 1 FROM holdfast.audit_event AS event
    WHERE event.org_id = job.org_id AND event.job_id = job.id AND event.jobs IS NULL
      AND event.name = events.name AND event.detail = events.detail);

-- insert_notes :affected — notes that a job derived about events of its tenant
INSERT INTO holdfast.audit_note (org_id, event_id, job_id, name, note, created_at)
SELECT notes.org_id, notes.event_id, notes.id, notes.name, notes.note, {now}
FROM {rows notes: org_id uuid, id uuid, event_id bigint, name text, note json}
WHERE TRUE
ON CONFLICT (org_id, event_id, job_id, name) DO NOTHING;

-- list_notes :many — notes on the events of one job
SELECT note.event_id, event.name AS event_name, note.job_id, note.name, note.note, note.created_at
FROM holdfast.audit_note AS note
JOIN holdfast.job_event AS event ON event.id = note.event_id AND event.org_id = note.org_id
WHERE note.org_id = :org_id AND event.org_id = :org_id AND event.job_id = :subject_id
ORDER BY note.event_id, note.created_at;
