-- The invariant of tenants, I29, in the shape of letters.sql. Every job was enqueued for a tenant,
-- and its envelope or its remainder names it: every row that names the job is compared with those.

-- find_foreign_events :many — I29, crosses tenants: events of a job under another tenant
SELECT event.org_id, 'event:' || CAST(event.id AS text) AS subject,
       'it refers to job ' || CAST(event.job_id AS text) || ' of another tenant' AS detail
FROM holdfast.audit_event AS event
JOIN (
    SELECT org_id, id AS job_id FROM holdfast.job_envelope
    UNION ALL
    SELECT org_id, job_id FROM holdfast.job_remainder
) AS made ON made.job_id = event.job_id AND made.org_id <> event.org_id
WHERE event.jobs IS NULL AND (CAST(:org_id AS {uuid}) IS NULL OR event.org_id = :org_id);

-- find_foreign_jobs :many — I29, crosses tenants: jobs under another tenant than they were enqueued for
-- CROSS JOIN makes SQLite start with the job.
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       'it was enqueued for another tenant' AS detail
FROM holdfast.job_envelope AS job
CROSS JOIN holdfast.audit_event AS told
WHERE told.id = (
      SELECT min(event.id) FROM holdfast.audit_event AS event WHERE event.id >= job.event_id)
  AND (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND told.org_id <> job.org_id AND told.name = 'job.enqueued'
  AND told.id - told.events < job.event_id;

-- find_foreign_parts :many — I29, crosses tenants: rows that name a job of another tenant
SELECT part.org_id, part.subject, 'it refers to a job of another tenant' AS detail
FROM (
    SELECT org_id, job_id, 'stage:' || CAST(job_id AS text) || ':' || stage AS subject
    FROM holdfast.job_stage
    UNION ALL
    SELECT org_id, replay_of, 'job:' || CAST(id AS text)
    FROM holdfast.job_envelope WHERE replay_of IS NOT NULL
    UNION ALL
    SELECT org_id, job_id, 'dead_letter:' || CAST(job_id AS text) FROM holdfast.dead_letter
    UNION ALL
    SELECT org_id, failed_replay_id, 'dead_letter:' || CAST(job_id AS text)
    FROM holdfast.dead_letter WHERE failed_replay_id IS NOT NULL
    UNION ALL
    SELECT org_id, job_id, 'replay:' || CAST(replay_job_id AS text)
    FROM holdfast.dead_letter_replay
    UNION ALL
    SELECT org_id, replay_job_id, 'replay:' || CAST(replay_job_id AS text)
    FROM holdfast.dead_letter_replay
    UNION ALL
    SELECT org_id, job_id, 'note:' || CAST(id AS text) FROM holdfast.dead_letter_note
    UNION ALL
    -- A tick of a schedule of several tenants belongs to the platform and names the first job.
    SELECT org_id, job_id, 'tick:' || schedule FROM holdfast.schedule_tick
    WHERE job_id IS NOT NULL AND org_id <> '00000000-0000-0000-0000-000000000000'
    UNION ALL
    SELECT org_id, job_id, 'audit_note:' || CAST(event_id AS text) FROM holdfast.audit_note
    UNION ALL
    SELECT org_id, job_id, 'delivery:' || CAST(id AS text)
    FROM holdfast.delivery WHERE job_id IS NOT NULL
    UNION ALL
    SELECT org_id, deliver_job_id, 'delivery:' || CAST(id AS text)
    FROM holdfast.delivery WHERE deliver_job_id IS NOT NULL
) AS part
JOIN (
    SELECT org_id, id AS job_id FROM holdfast.job_envelope
    UNION ALL
    SELECT org_id, job_id FROM holdfast.job_remainder
) AS made ON made.job_id = part.job_id AND made.org_id <> part.org_id
WHERE (CAST(:org_id AS {uuid}) IS NULL OR part.org_id = :org_id)
UNION ALL
SELECT note.org_id, 'audit_note:' || CAST(note.event_id AS text),
       'it refers to an event of another tenant'
FROM holdfast.audit_note AS note
CROSS JOIN holdfast.audit_event AS event
WHERE event.id = (
      SELECT min(told.id) FROM holdfast.audit_event AS told WHERE told.id >= note.event_id)
  AND event.org_id <> note.org_id AND event.id - event.events < note.event_id
  AND (CAST(:org_id AS {uuid}) IS NULL OR note.org_id = :org_id);

-- find_orphans :many — I29, crosses tenants: rows whose parent does not exist in their tenant
SELECT part.org_id, part.subject, 'its tenant has no such job' AS detail
FROM (
    SELECT org_id, job_id, 'outcome:' || CAST(job_id AS text) AS subject FROM holdfast.job_outcome
    UNION ALL
    SELECT org_id, job_id, 'attempt:' || CAST(job_id AS text) || ':' || CAST(number AS text)
    FROM holdfast.job_attempt
    UNION ALL
    SELECT org_id, job_id, 'cancel:' || CAST(job_id AS text) FROM holdfast.job_cancel
    UNION ALL
    SELECT org_id, job_id, 'key_seen:' || CAST(job_id AS text) FROM holdfast.job_key_seen
    UNION ALL
    SELECT org_id, job_id, 'ready:' || CAST(job_id AS text) FROM holdfast.job_ready
    UNION ALL
    SELECT org_id, job_id, 'waiting:' || CAST(job_id AS text) FROM holdfast.job_waiting
    UNION ALL
    SELECT org_id, job_id, 'running:' || CAST(job_id AS text) FROM holdfast.job_running
    UNION ALL
    SELECT org_id, job_id, 'submitted:' || CAST(job_id AS text) FROM holdfast.job_submitted
    UNION ALL
    SELECT org_id, job_id, 'stage:' || CAST(job_id AS text) || ':' || stage
    FROM holdfast.job_stage
) AS part
WHERE (CAST(:org_id AS {uuid}) IS NULL OR part.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_envelope AS job
                  WHERE job.org_id = part.org_id AND job.id = part.job_id)
UNION ALL
SELECT replay.org_id, 'replay:' || CAST(replay.replay_job_id AS text),
       'its tenant has no such dead letter'
FROM holdfast.dead_letter_replay AS replay
WHERE (CAST(:org_id AS {uuid}) IS NULL OR replay.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.dead_letter AS letter
                  WHERE letter.org_id = replay.org_id AND letter.job_id = replay.job_id)
UNION ALL
SELECT note.org_id, 'note:' || CAST(note.id AS text), 'its tenant has no such dead letter'
FROM holdfast.dead_letter_note AS note
WHERE (CAST(:org_id AS {uuid}) IS NULL OR note.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.dead_letter AS letter
                  WHERE letter.org_id = note.org_id AND letter.job_id = note.job_id);
