-- Audit queries. Each uses a different index: SQLite would not choose one from optional filters. A
-- filter that is NULL matches everything.

-- find_first_at :one — crosses tenants: the id up to which events are older than a timestamp
-- Ids increase with the clock, so a binary search finds it.
WITH RECURSIVE span (low, high) AS (
    SELECT CAST(0 AS bigint), coalesce((SELECT max(id) FROM holdfast.job_event), 0)
    UNION ALL
    SELECT CASE WHEN (SELECT event.at FROM holdfast.job_event AS event
                      WHERE event.id > (span.low + span.high) / 2
                      ORDER BY event.id LIMIT 1) < CAST(:instant AS {instant})
                THEN (span.low + span.high) / 2 + 1 ELSE span.low END,
           CASE WHEN (SELECT event.at FROM holdfast.job_event AS event
                      WHERE event.id > (span.low + span.high) / 2
                      ORDER BY event.id LIMIT 1) < CAST(:instant AS {instant})
                THEN span.high ELSE (span.low + span.high) / 2 END
    FROM span
    WHERE span.low < span.high
)
SELECT low FROM span WHERE low >= high LIMIT 1;

-- find_subject :maybe — crosses tenants unless one is named: whether this job has any event
SELECT job_id FROM holdfast.job_event
WHERE job_id = :job_id AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
LIMIT 1;

-- list_of_jobs :many — crosses tenants unless one is named: by job or by correlation
WITH subject (job_id) AS (
    SELECT jobs.id FROM {rows jobs: id uuid}
    UNION
    SELECT event.job_id FROM holdfast.job_event AS event
    WHERE event.name = 'job.enqueued' AND event.correlation_id <> CAST(event.job_id AS text)
      AND event.correlation_id = CAST(:by_correlation AS text)
)
SELECT event.id, event.org_id, event.project_id, event.job_id, event.job_type, event.name,
       event.attempt, event.actor_type, event.actor_id, event.request_id, event.correlation_id,
       event.at, event.detail
FROM subject
CROSS JOIN holdfast.job_event AS event
WHERE event.job_id = subject.job_id AND event.id < :before
  AND (CAST(:org_id AS {uuid}) IS NULL OR event.org_id = :org_id)
  AND (CAST(:actor_type AS text) IS NULL OR event.actor_type = :actor_type)
  AND (CAST(:actor_id AS text) IS NULL OR event.actor_id = :actor_id)
  AND (CAST(:correlation_id AS text) IS NULL OR event.correlation_id = :correlation_id)
  AND (CAST(:request_id AS text) IS NULL OR event.request_id = :request_id)
  AND (CAST(:name AS text) IS NULL OR event.name = :name)
  AND (CAST(:since AS {instant}) IS NULL OR event.at >= :since)
  AND (CAST(:until AS {instant}) IS NULL OR event.at < :until)
ORDER BY event.id DESC
LIMIT :limit;

-- list_of_person :many — crosses tenants unless one is named: actions of a user or an API key
SELECT event.id, event.org_id, event.project_id, event.job_id, event.job_type, event.name,
       event.attempt, event.actor_type, event.actor_id, event.request_id, event.correlation_id,
       event.at, event.detail
FROM holdfast.job_event AS event
WHERE event.actor_type <> 'system' AND event.actor_id = :actor_id AND event.id < :before
  AND event.actor_type = :actor_type
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
FROM holdfast.job_event AS event
WHERE event.id > :above AND event.id < :before
  AND (CAST(:org_id AS {uuid}) IS NULL OR event.org_id = :org_id)
  AND (CAST(:actor_type AS text) IS NULL OR event.actor_type = :actor_type)
  AND (CAST(:actor_id AS text) IS NULL OR event.actor_id = :actor_id)
  AND (CAST(:request_id AS text) IS NULL OR event.request_id = :request_id)
  AND (CAST(:name AS text) IS NULL OR event.name = :name)
  AND (CAST(:since AS {instant}) IS NULL OR event.at >= :since)
  AND (CAST(:until AS {instant}) IS NULL OR event.at < :until)
ORDER BY event.id DESC
LIMIT :limit;
