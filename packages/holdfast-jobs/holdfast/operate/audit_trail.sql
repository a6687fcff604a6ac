-- Audit queries. Each uses a different index: SQLite would not choose one from optional filters. A
-- filter that is NULL matches everything.

-- find_first_at :one — crosses tenants: the id up to which events are older than a timestamp
-- Ids increase with the clock, so a binary search finds it.
WITH RECURSIVE span (low, high) AS (
    SELECT CAST(0 AS bigint), coalesce((SELECT max(id) FROM holdfast.audit_event), 0)
    UNION ALL
    SELECT CASE WHEN (SELECT event.at FROM holdfast.audit_event AS event
                      WHERE event.id > (span.low + span.high) / 2
                      ORDER BY event.id LIMIT 1) < CAST(:instant AS {instant})
                THEN (span.low + span.high) / 2 + 1 ELSE span.low END,
           CASE WHEN (SELECT event.at FROM holdfast.audit_event AS event
                      WHERE event.id > (span.low + span.high) / 2
                      ORDER BY event.id LIMIT 1) < CAST(:instant AS {instant})
                THEN span.high ELSE (span.low + span.high) / 2 END
    FROM span
    WHERE span.low < span.high
)
SELECT low FROM span WHERE low >= high LIMIT 1;

-- find_subject :maybe — crosses tenants unless one is named: the tenant of a job or object with events
-- One lookup by the primary key for each tenant.
WITH RECURSIVE tenants (org_id) AS (
    SELECT coalesce(CAST(:org_id AS {uuid}),
                    (SELECT job.org_id FROM holdfast.job_envelope AS job
                     ORDER BY job.org_id LIMIT 1))
    UNION ALL
    SELECT (SELECT job.org_id FROM holdfast.job_envelope AS job
            WHERE job.org_id > tenants.org_id ORDER BY job.org_id LIMIT 1)
    FROM tenants
    WHERE tenants.org_id IS NOT NULL AND CAST(:org_id AS {uuid}) IS NULL
)
SELECT found.org_id
FROM (SELECT tenants.org_id FROM tenants
      WHERE EXISTS (SELECT 1 FROM holdfast.job_envelope AS job
                    WHERE job.org_id = tenants.org_id AND job.id = CAST(:job_id AS {uuid}))
      UNION ALL
      SELECT event.org_id FROM holdfast.audit_event AS event
      WHERE event.job_id = CAST(:job_id AS {uuid}) AND event.jobs IS NULL
        AND (CAST(:org_id AS {uuid}) IS NULL OR event.org_id = :org_id)) AS found
LIMIT 1;

-- list_of_jobs :many — crosses tenants unless one is named: by job or by correlation
-- The view job_event, written out: in a join SQLite would read the whole view.
WITH subject (job_id, org_id) AS MATERIALIZED (
    SELECT jobs.id, jobs.org_id FROM {rows jobs: id uuid, org_id uuid}
    WHERE jobs.org_id IS NOT NULL
    UNION
    SELECT event.job_id, event.org_id
    FROM {rows jobs: id uuid, org_id uuid}
    JOIN holdfast.audit_event AS event ON event.job_id = jobs.id AND event.jobs IS NULL
    UNION
    SELECT asked.id, asked.org_id FROM holdfast.job_envelope AS asked
    WHERE coalesce(asked.correlation_id, asked.request_id) = CAST(:by_correlation AS text)
      AND (asked.correlation_id IS NOT NULL OR asked.request_id IS NOT NULL)
    UNION
    SELECT gone.job_id, gone.org_id FROM holdfast.job_remainder AS gone
    WHERE gone.correlation_id = CAST(:by_correlation AS text)
)
SELECT told.id, told.org_id, told.project_id, told.job_id, told.job_type, told.name,
       told.attempt, told.actor_type, told.actor_id, told.request_id, told.correlation_id,
       told.at, told.detail
FROM (
    SELECT event.id, event.org_id, event.project_id, event.job_id, event.job_type, event.name,
           event.attempt, event.actor_type, event.actor_id, event.request_id, event.correlation_id,
           event.at, event.detail
    FROM subject
    JOIN holdfast.audit_event AS event
      ON event.job_id = subject.job_id AND event.org_id = subject.org_id AND event.jobs IS NULL
    UNION ALL
    SELECT asked.event_id, asked.org_id, asked.project_id, asked.id, asked.job_type, 'job.enqueued', 1,
           asked.actor_type, asked.actor_id,
           coalesce(asked.request_id, CAST(asked.id AS text)),
           coalesce(asked.correlation_id, asked.request_id, CAST(asked.id AS text)),
           asked.created_at,
           {with_fields(NULL): 'queue', coalesce(asked.queue, asked.origin_queue), 'payload_hash', asked.payload_hash, 'not_before_at', {stamp(asked.not_before_at)}}
    FROM subject
    JOIN holdfast.job_envelope AS asked
      ON asked.org_id = subject.org_id AND asked.id = subject.job_id
    UNION ALL
    SELECT fact.started_event_id, asked.org_id, asked.project_id, asked.id, asked.job_type, 'job.started',
           fact.started_attempt, 'system', fact.claimed_by,
           coalesce(asked.request_id, CAST(asked.id AS text)),
           coalesce(asked.correlation_id, asked.request_id, CAST(asked.id AS text)),
           fact.claimed_at, NULL
    FROM subject
    JOIN holdfast.job_running AS fact
      ON fact.org_id = subject.org_id AND fact.job_id = subject.job_id
    JOIN holdfast.job_envelope AS asked ON asked.org_id = fact.org_id AND asked.id = fact.job_id
    UNION ALL
    SELECT fact.started_event_id, asked.org_id, asked.project_id, asked.id, asked.job_type, 'job.started',
           fact.started_attempt, 'system', fact.claimed_by,
           coalesce(asked.request_id, CAST(asked.id AS text)),
           coalesce(asked.correlation_id, asked.request_id, CAST(asked.id AS text)),
           fact.claimed_at, NULL
    FROM subject
    JOIN holdfast.job_submitted AS fact
      ON fact.org_id = subject.org_id AND fact.job_id = subject.job_id
    JOIN holdfast.job_envelope AS asked ON asked.org_id = fact.org_id AND asked.id = fact.job_id
    UNION ALL
    SELECT fact.started_event_id, asked.org_id, asked.project_id, asked.id, asked.job_type, 'job.started',
           fact.started_attempt, 'system', fact.claimed_by,
           coalesce(asked.request_id, CAST(asked.id AS text)),
           coalesce(asked.correlation_id, asked.request_id, CAST(asked.id AS text)),
           fact.claimed_at, NULL
    FROM subject
    JOIN holdfast.job_attempt AS fact
      ON fact.org_id = subject.org_id AND fact.job_id = subject.job_id
      AND fact.started_event_id IS NOT NULL
    JOIN holdfast.job_envelope AS asked ON asked.org_id = fact.org_id AND asked.id = fact.job_id
    UNION ALL
    SELECT fact.started_event_id, asked.org_id, asked.project_id, asked.id, asked.job_type, 'job.started',
           fact.started_attempt, 'system', fact.claimed_by,
           coalesce(asked.request_id, CAST(asked.id AS text)),
           coalesce(asked.correlation_id, asked.request_id, CAST(asked.id AS text)),
           fact.claimed_at, NULL
    FROM subject
    JOIN holdfast.job_outcome AS fact
      ON fact.org_id = subject.org_id AND fact.job_id = subject.job_id
      AND fact.started_event_id IS NOT NULL
    JOIN holdfast.job_envelope AS asked ON asked.org_id = fact.org_id AND asked.id = fact.job_id
    UNION ALL
    SELECT fact.event_id, asked.org_id, asked.project_id, asked.id, asked.job_type, 'job.succeeded',
           fact.attempt_count + 1, 'system', fact.settled_by,
           coalesce(asked.request_id, CAST(asked.id AS text)),
           coalesce(asked.correlation_id, asked.request_id, CAST(asked.id AS text)),
           fact.finished_at, NULL
    FROM subject
    JOIN holdfast.job_outcome AS fact
      ON fact.org_id = subject.org_id AND fact.job_id = subject.job_id
      AND fact.event_id IS NOT NULL
    JOIN holdfast.job_envelope AS asked ON asked.org_id = fact.org_id AND asked.id = fact.job_id
    UNION ALL
    SELECT CAST({field(past.value, id)} AS bigint), gone.org_id, gone.project_id, gone.job_id,
           gone.job_type, {field(past.value, name)}, CAST({field(past.value, attempt)} AS integer),
           {field(past.value, actor_type)}, {field(past.value, actor_id)}, gone.request_id,
           gone.correlation_id, CAST({field(past.value, at)} AS {instant}),
           {json_field(past.value, detail)}
    FROM subject
    JOIN holdfast.job_remainder AS gone
      ON gone.org_id = subject.org_id AND gone.job_id = subject.job_id
    CROSS JOIN {elements(gone.events) AS past}
) AS told
WHERE told.id < :before
  AND (CAST(:org_id AS {uuid}) IS NULL OR told.org_id = :org_id)
  AND (CAST(:actor_type AS text) IS NULL OR told.actor_type = :actor_type)
  AND (CAST(:actor_id AS text) IS NULL OR told.actor_id = :actor_id)
  AND (CAST(:correlation_id AS text) IS NULL OR told.correlation_id = :correlation_id)
  AND (CAST(:request_id AS text) IS NULL OR told.request_id = :request_id)
  AND (CAST(:name AS text) IS NULL OR told.name = :name)
  AND (CAST(:since AS {instant}) IS NULL OR told.at >= :since)
  AND (CAST(:until AS {instant}) IS NULL OR told.at < :until)
ORDER BY told.id DESC
LIMIT :limit;

-- list_of_person :many — crosses tenants unless one is named: actions of a user or an API key
SELECT event.id, event.org_id, event.project_id, event.job_id, event.job_type, event.name,
       event.attempt, event.actor_type, event.actor_id, event.request_id, event.correlation_id,
       event.at, event.detail
FROM holdfast.audit_entry AS event
WHERE event.row_id IN (
      SELECT page.id FROM holdfast.audit_event AS page
      WHERE page.actor_type <> 'system' AND page.actor_id = :actor_id
        AND page.actor_type = :actor_type AND page.id - page.events + 1 < :before
        AND (CAST(:org_id AS {uuid}) IS NULL OR page.org_id = :org_id)
        AND (CAST(:name AS text) IS NULL OR page.name = :name)
        AND (CAST(:since AS {instant}) IS NULL OR page.at >= :since)
        AND (CAST(:until AS {instant}) IS NULL OR page.at < :until)
        AND (CAST(:request_id AS text) IS NULL OR page.jobs IS NOT NULL
             OR page.request_id = :request_id)
      ORDER BY page.id DESC LIMIT :reach)
  AND event.id < :before
  AND (CAST(:org_id AS {uuid}) IS NULL OR event.org_id = :org_id)
  AND (CAST(:request_id AS text) IS NULL OR event.request_id = :request_id)
  AND (CAST(:name AS text) IS NULL OR event.name = :name)
  AND (CAST(:since AS {instant}) IS NULL OR event.at >= :since)
  AND (CAST(:until AS {instant}) IS NULL OR event.at < :until)
ORDER BY event.id DESC
LIMIT :limit;

-- list_between :many — crosses tenants unless one is named: between two ids, newest first
SELECT event.id, event.org_id, event.project_id, event.job_id, event.job_type, event.name,
       event.attempt, event.actor_type, event.actor_id, event.request_id, event.correlation_id,
       event.at, event.detail
FROM holdfast.audit_entry AS event
WHERE event.row_id IN (
      SELECT page.id FROM holdfast.audit_event AS page
      WHERE page.id > :above AND page.id - page.events + 1 < :before
        AND (CAST(:org_id AS {uuid}) IS NULL OR page.org_id = :org_id)
        AND (CAST(:actor_type AS text) IS NULL OR page.actor_type = :actor_type)
        AND (CAST(:actor_id AS text) IS NULL OR page.actor_id = :actor_id)
        AND (CAST(:name AS text) IS NULL OR page.name = :name)
        AND (CAST(:since AS {instant}) IS NULL OR page.at >= :since)
        AND (CAST(:until AS {instant}) IS NULL OR page.at < :until)
        AND (CAST(:request_id AS text) IS NULL OR page.jobs IS NOT NULL
             OR page.request_id = :request_id)
      ORDER BY page.id DESC LIMIT :reach)
  AND event.id > :above AND event.id < :before
  AND (CAST(:actor_type AS text) IS NULL OR event.actor_type = :actor_type)
  AND (CAST(:actor_id AS text) IS NULL OR event.actor_id = :actor_id)
  AND (CAST(:request_id AS text) IS NULL OR event.request_id = :request_id)
  AND (CAST(:name AS text) IS NULL OR event.name = :name)
  AND (CAST(:since AS {instant}) IS NULL OR event.at >= :since)
  AND (CAST(:until AS {instant}) IS NULL OR event.at < :until)
ORDER BY event.id DESC
LIMIT :limit;
