-- The audit in the order of its ids. A row is one event, or the events of a group of jobs of one
-- tenant that were enqueued, started or completed in one statement (jobs is not NULL): then id is the
-- id of the last event, and the ids before it are those of the others, in the order of jobs. No
-- foreign key: the audit outlives the job.
CREATE TABLE holdfast.audit_event (
    id {identity},
    org_id {uuid} NOT NULL,
    project_id {uuid},
    job_id {uuid},
    job_type text,
    name text NOT NULL,
    attempt integer NOT NULL,
    actor_type text NOT NULL,
    actor_id text NOT NULL,
    request_id text,
    correlation_id text,
    at {instant} NOT NULL,
    detail {json},
    -- Digest of the written columns, for verify (digest.py).
    digest text,
    jobs {uuids},
    events integer NOT NULL DEFAULT 1,
    CONSTRAINT audit_event_of_one_or_many CHECK (
        (jobs IS NULL) = (job_id IS NOT NULL) AND (jobs IS NULL) = (job_type IS NOT NULL)
        AND (jobs IS NULL) = (request_id IS NOT NULL)
        AND (jobs IS NULL) = (correlation_id IS NOT NULL))
);
CREATE INDEX job_event_of_job ON holdfast.audit_event (job_id) WHERE jobs IS NULL;

{refuse job_event_never_changes BEFORE UPDATE ON holdfast.audit_event
WHEN TRUE SAYING 'the audit is append-only'};
{refuse job_event_never_leaves BEFORE DELETE ON holdfast.audit_event
WHEN TRUE SAYING 'the audit is append-only'};

-- What the audit needs of a job that was pruned: its first columns, the digests of its enqueue and of
-- its outcome, and its events of groups.
CREATE TABLE holdfast.job_remainder (
    org_id {uuid} NOT NULL,
    job_id {uuid} NOT NULL,
    project_id {uuid},
    job_type text NOT NULL,
    request_id text NOT NULL,
    correlation_id text NOT NULL,
    -- id, name, attempt, actor_type, actor_id, at, detail and digest of each.
    events {json} NOT NULL,
    PRIMARY KEY (org_id, job_id)
){clustered};
{refuse job_remainder_never_changes BEFORE UPDATE ON holdfast.job_remainder
WHEN TRUE SAYING 'the audit is append-only'};
{refuse job_remainder_never_leaves BEFORE DELETE ON holdfast.job_remainder
WHEN TRUE SAYING 'the audit is append-only'};

-- The events of jobs, found by the job. An event that every job has is not stored: it follows from
-- the rows of the job. Use audit_entry to read events in order.
CREATE VIEW holdfast.job_event AS
SELECT event.id, event.org_id, event.project_id, event.job_id, event.job_type, event.name,
       event.attempt, event.actor_type, event.actor_id, event.request_id, event.correlation_id,
       event.at, event.detail, event.digest
FROM holdfast.audit_event AS event
WHERE event.jobs IS NULL
UNION ALL
SELECT asked.event_id, asked.org_id, asked.project_id, asked.id, asked.job_type, 'job.enqueued', 1,
       asked.actor_type, asked.actor_id, coalesce(asked.request_id, CAST(asked.id AS text)),
       coalesce(asked.correlation_id, asked.request_id, CAST(asked.id AS text)), asked.created_at,
       {with_fields(NULL): 'queue', coalesce(asked.queue, asked.origin_queue), 'payload_hash', asked.payload_hash, 'not_before_at', {stamp(asked.not_before_at)}},
       CAST(NULL AS text)
FROM holdfast.job_envelope AS asked
UNION ALL
SELECT fact.started_event_id, asked.org_id, asked.project_id, asked.id, asked.job_type, 'job.started',
       fact.started_attempt, 'system', fact.claimed_by,
       coalesce(asked.request_id, CAST(asked.id AS text)),
       coalesce(asked.correlation_id, asked.request_id, CAST(asked.id AS text)),
       fact.claimed_at, CAST(NULL AS {json}), CAST(NULL AS text)
FROM holdfast.job_running AS fact
JOIN holdfast.job_envelope AS asked ON asked.org_id = fact.org_id AND asked.id = fact.job_id
UNION ALL
SELECT fact.started_event_id, asked.org_id, asked.project_id, asked.id, asked.job_type, 'job.started',
       fact.started_attempt, 'system', fact.claimed_by,
       coalesce(asked.request_id, CAST(asked.id AS text)),
       coalesce(asked.correlation_id, asked.request_id, CAST(asked.id AS text)),
       fact.claimed_at, CAST(NULL AS {json}), CAST(NULL AS text)
FROM holdfast.job_submitted AS fact
JOIN holdfast.job_envelope AS asked ON asked.org_id = fact.org_id AND asked.id = fact.job_id
UNION ALL
SELECT fact.started_event_id, asked.org_id, asked.project_id, asked.id, asked.job_type, 'job.started',
       fact.started_attempt, 'system', fact.claimed_by,
       coalesce(asked.request_id, CAST(asked.id AS text)),
       coalesce(asked.correlation_id, asked.request_id, CAST(asked.id AS text)),
       fact.claimed_at, CAST(NULL AS {json}), CAST(NULL AS text)
FROM holdfast.job_attempt AS fact
JOIN holdfast.job_envelope AS asked ON asked.org_id = fact.org_id AND asked.id = fact.job_id
WHERE fact.started_event_id IS NOT NULL
UNION ALL
SELECT fact.started_event_id, asked.org_id, asked.project_id, asked.id, asked.job_type, 'job.started',
       fact.started_attempt, 'system', fact.claimed_by,
       coalesce(asked.request_id, CAST(asked.id AS text)),
       coalesce(asked.correlation_id, asked.request_id, CAST(asked.id AS text)),
       fact.claimed_at, CAST(NULL AS {json}), CAST(NULL AS text)
FROM holdfast.job_outcome AS fact
JOIN holdfast.job_envelope AS asked ON asked.org_id = fact.org_id AND asked.id = fact.job_id
WHERE fact.started_event_id IS NOT NULL
UNION ALL
SELECT fact.event_id, asked.org_id, asked.project_id, asked.id, asked.job_type, 'job.succeeded',
       fact.attempt_count + 1, 'system', fact.settled_by,
       coalesce(asked.request_id, CAST(asked.id AS text)),
       coalesce(asked.correlation_id, asked.request_id, CAST(asked.id AS text)),
       fact.finished_at, CAST(NULL AS {json}), CAST(NULL AS text)
FROM holdfast.job_outcome AS fact
JOIN holdfast.job_envelope AS asked ON asked.org_id = fact.org_id AND asked.id = fact.job_id
WHERE fact.event_id IS NOT NULL
UNION ALL
SELECT CAST({field(past.value, id)} AS bigint), gone.org_id, gone.project_id, gone.job_id,
       gone.job_type, {field(past.value, name)}, CAST({field(past.value, attempt)} AS integer),
       {field(past.value, actor_type)}, {field(past.value, actor_id)}, gone.request_id,
       gone.correlation_id, CAST({field(past.value, at)} AS {instant}),
       {json_field(past.value, detail)},
       {field(past.value, digest)}
FROM holdfast.job_remainder AS gone
CROSS JOIN {elements(gone.events) AS past};

-- The events of the audit in the order of their ids: one for each job of a group. A query picks rows
-- of audit_event first, by row_id, and then their events by id.
-- It is one SELECT, because of a UNION both databases would read every row. With a LEFT JOIN of the
-- items, PostgreSQL would expect more rows and read all jobs for a page. The detail of an event is the
-- same before and after its job is pruned: the seals cover it.
CREATE VIEW holdfast.audit_entry AS
SELECT event.id AS row_id,
       event.id - event.events + item.key + 1 AS id,
       event.org_id, coalesce(event.project_id, asked.project_id, gone.project_id) AS project_id,
       coalesce(event.job_id, item.value) AS job_id,
       coalesce(event.job_type, asked.job_type, gone.job_type, 'unknown') AS job_type, event.name,
       event.attempt, event.actor_type, event.actor_id,
       coalesce(event.request_id, asked.request_id, gone.request_id, CAST(asked.id AS text), '')
           AS request_id,
       coalesce(event.correlation_id, asked.correlation_id, asked.request_id, gone.correlation_id,
                CAST(asked.id AS text), '') AS correlation_id,
       event.at,
       CASE WHEN event.jobs IS NULL THEN event.detail
            WHEN event.name = 'job.enqueued' AND asked.id IS NOT NULL THEN
           {with_fields(NULL): 'queue', coalesce(asked.queue, asked.origin_queue), 'payload_hash', asked.payload_hash, 'not_before_at', {stamp(asked.not_before_at)}}
            WHEN gone.job_id IS NOT NULL THEN (
                SELECT {json_field(past.value, detail)} FROM {elements(gone.events) AS past}
                WHERE CAST({field(past.value, id)} AS bigint) = event.id - event.events + item.key + 1)
       END AS detail, event.digest
FROM holdfast.audit_event AS event
CROSS JOIN {each_or_none(event.jobs) AS item}
LEFT JOIN holdfast.job_envelope AS asked ON asked.org_id = event.org_id AND asked.id = item.value
LEFT JOIN holdfast.job_remainder AS gone ON gone.org_id = event.org_id AND gone.job_id = item.value;

-- The idempotency record of each key. Its status is derived from the job's state, so the two cannot
-- diverge.
CREATE VIEW holdfast.idempotency_key AS
SELECT
    job.org_id,
    job.idempotency_key,
    job.id AS job_id,
    CASE
        WHEN job.state = 'queued' AND job.attempt_count = 0 THEN 'pending'
        WHEN job.state IN ('processing', 'batch_submitted') THEN 'running'
        WHEN job.state = 'completed' THEN 'succeeded'
        WHEN job.state = 'failed' THEN 'dead'
        ELSE 'failed'
    END AS status,
    job.created_at AS first_seen_at,
    job.key_last_seen_at AS last_seen_at,
    CASE WHEN job.state = 'completed' THEN 'job:' || CAST(job.id AS text) END AS result_ref,
    CASE
        WHEN job.state = 'failed' THEN 'dead_letter:' || CAST(job.id AS text)
        WHEN job.state = 'canceled' THEN 'event:' || (
            SELECT CAST(max(event.id) AS text) FROM holdfast.audit_event AS event
            WHERE event.jobs IS NULL AND event.org_id = job.org_id AND event.job_id = job.id
              AND event.name = 'job.canceled')
    END AS error_ref,
    job.key_expires_at AS expires_at
FROM holdfast.job AS job;
