-- Statements that read the change feed from the audit. None of them reads a detail as a whole.

-- list_after :many prepared — crosses tenants: the next events in order of their ids
SELECT event.id, event.org_id, event.job_id, event.job_type, event.name, event.attempt, event.at,
       event.correlation_id, {field(event.detail, subject)} AS subject,
       coalesce(job.origin_queue, {field(event.detail, queue)}) AS queue
FROM holdfast.audit_entry AS event
LEFT JOIN holdfast.job_envelope AS job ON job.org_id = event.org_id AND job.id = event.job_id
WHERE event.row_id IN (
      SELECT page.id FROM holdfast.audit_event AS page
      WHERE page.id > :after
      ORDER BY page.id LIMIT :limit)
  AND event.id > :after
ORDER BY event.id
LIMIT :limit;

-- list_in_ranges :many — crosses tenants: events that were not there when higher ids were read
SELECT event.id, event.org_id, event.job_id, event.job_type, event.name, event.attempt, event.at,
       event.correlation_id, {field(event.detail, subject)} AS subject,
       coalesce(job.origin_queue, {field(event.detail, queue)}) AS queue
FROM {rows ranges: low bigint, high bigint}
CROSS JOIN holdfast.audit_entry AS event
LEFT JOIN holdfast.job_envelope AS job ON job.org_id = event.org_id AND job.id = event.job_id
WHERE event.row_id IN (
      SELECT page.id FROM holdfast.audit_event AS page
      WHERE page.id >= ranges.low AND page.id - page.events < ranges.high
      ORDER BY page.id LIMIT :limit)
  AND event.id >= ranges.low AND event.id <= ranges.high
ORDER BY event.id
LIMIT :limit;

-- list_of_tenant :many — the events of one tenant between two ids
SELECT event.id, event.org_id, event.job_id, event.job_type, event.name, event.attempt, event.at,
       event.correlation_id, {field(event.detail, subject)} AS subject,
       coalesce(job.origin_queue, {field(event.detail, queue)}) AS queue
FROM holdfast.audit_entry AS event
LEFT JOIN holdfast.job_envelope AS job ON job.org_id = event.org_id AND job.id = event.job_id
WHERE event.row_id IN (
      SELECT page.id FROM holdfast.audit_event AS page
      WHERE page.org_id = :org_id AND page.id > :after
        AND page.id - page.events < :upto
      ORDER BY page.id LIMIT :limit)
  AND event.id > :after AND event.id <= :upto
ORDER BY event.id
LIMIT :limit;

-- list_of_all :many — crosses tenants: the events of all tenants between two ids
SELECT event.id, event.org_id, event.job_id, event.job_type, event.name, event.attempt, event.at,
       event.correlation_id, {field(event.detail, subject)} AS subject,
       coalesce(job.origin_queue, {field(event.detail, queue)}) AS queue
FROM holdfast.audit_entry AS event
LEFT JOIN holdfast.job_envelope AS job ON job.org_id = event.org_id AND job.id = event.job_id
WHERE event.row_id IN (
      SELECT page.id FROM holdfast.audit_event AS page
      WHERE page.id > :after AND page.id - page.events < :upto
      ORDER BY page.id LIMIT :limit)
  AND event.id > :after AND event.id <= :upto
ORDER BY event.id
LIMIT :limit;

-- find_newest :one — crosses tenants: the highest id of an event
SELECT coalesce(max(id), 0) AS newest FROM holdfast.audit_event;

-- find_gaps :many — crosses tenants: the ids that the newest events leave out
SELECT numbered.before + 1 AS low, numbered.id - numbered.events AS high
FROM (
    SELECT recent.id, recent.events, lag(recent.id) OVER (ORDER BY recent.id) AS before
    FROM (
        SELECT event.id, event.events FROM holdfast.audit_event AS event
        WHERE event.id <= :upto
        ORDER BY event.id DESC
        LIMIT :window
    ) AS recent
) AS numbered
WHERE numbered.id - numbered.events > numbered.before
ORDER BY numbered.id;

-- read_stamp :one — crosses tenants: the id of this transaction, above those of earlier events
SELECT {this_transaction} AS stamp;

-- read_oldest :one — crosses tenants: transactions with a smaller id have ended
SELECT {oldest_running} AS oldest;
