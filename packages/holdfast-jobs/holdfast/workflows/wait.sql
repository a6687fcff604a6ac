-- Statements for jobs that wait for an event or for a time, and for the events that are sent.

-- find_wait :maybe — what a handler waits for, and whether its time is over
SELECT state, payload, deadline_at, is_read,
       CASE WHEN deadline_at <= {now} THEN 1 ELSE 0 END AS is_over,
       {ms_since(deadline_at)} AS over_ms
FROM holdfast.job_wait
WHERE org_id = :org_id AND job_id = :job_id AND stage = :stage AND name = :name
  AND number = :number;

-- insert_wait :affected — a handler waits for the first time
INSERT INTO holdfast.job_wait
    (org_id, job_id, stage, name, number, workflow_id, event_key, deadline_at, created_at)
SELECT made.org_id, made.job_id, made.stage, made.name, made.number, made.workflow_id,
       made.event_key,
       CASE WHEN made.timeout_ms IS NULL THEN made.until ELSE {later(made.timeout_ms)} END, {now}
FROM {rows made: org_id uuid, job_id uuid, stage text, name text, number integer,
      workflow_id uuid, event_key text, timeout_ms bigint, until instant}
WHERE TRUE;

-- take_event :maybe — the oldest event with this name that was sent to one of these targets
-- The caller holds the locks of the targets.
UPDATE holdfast.sent_event
SET received_by = :job_id
WHERE org_id = :org_id AND received_by IS NULL AND id = (
    SELECT sent.id FROM holdfast.sent_event AS sent
    WHERE sent.org_id = :org_id AND sent.name = :name AND sent.received_by IS NULL
      AND sent.target IN (SELECT targets.target FROM {rows targets: target text})
    ORDER BY sent.id LIMIT 1)
RETURNING id, payload;

-- end_wait :affected — a wait has received an event, or its time is over
UPDATE holdfast.job_wait
SET state = :state, payload = :payload, event_id = :event_id, is_read = :is_read,
    ended_at = {now}
WHERE org_id = :org_id AND job_id = :job_id AND stage = :stage AND name = :name
  AND number = :number AND state = 'waiting';

-- read_wait :affected — the handler has received the payload
UPDATE holdfast.job_wait SET is_read = 1
WHERE org_id = :org_id AND job_id = :job_id AND stage = :stage AND name = :name
  AND number = :number;

-- insert_event :affected — an event that was sent
INSERT INTO holdfast.sent_event
    (org_id, id, name, target, payload, actor_type, actor_id, sent_at, received_by)
SELECT made.org_id, made.id, made.name, made.target, made.payload, made.actor_type, made.actor_id,
       {now}, made.received_by
FROM {rows made: org_id uuid, id uuid, name text, target text, payload json, actor_type text,
      actor_id text, received_by uuid}
WHERE TRUE;

-- find_waiting :maybe — the oldest wait for an event with this name and target
SELECT job_id, stage, number
FROM holdfast.job_wait
WHERE org_id = :org_id AND name = :name AND state = 'waiting'
  AND (job_id = CAST(:job_id AS {uuid}) OR workflow_id = CAST(:workflow_id AS {uuid})
       OR event_key = CAST(:event_key AS text))
ORDER BY created_at, job_id
LIMIT 1;

-- find_first :maybe — the first job of a series of replays
SELECT coalesce(replay_of, id) AS first_id FROM holdfast.job_envelope
WHERE org_id = :org_id AND id = :job_id;

-- hold_jobs :many — lock the unended jobs of a series of replays, so that none is settled now
SELECT held.job_id AS id
FROM holdfast.job_running AS held
WHERE held.org_id = :org_id
  AND (held.job_id = CAST(:first_id AS {uuid}) OR held.job_id IN (
       SELECT replay.id FROM holdfast.job_envelope AS replay
       WHERE replay.org_id = :org_id AND replay.replay_of = :first_id))
ORDER BY held.job_id
{hold_row};

-- wake_job :many — make a job due that snoozes until an event
UPDATE holdfast.job_waiting
SET not_before_at = {now}
WHERE org_id = :org_id
  AND (job_id = CAST(:first_id AS {uuid}) OR job_id IN (
       SELECT replay.id FROM holdfast.job_envelope AS replay
       WHERE replay.org_id = :org_id AND replay.replay_of = :first_id))
  AND not_before_at > {now}
RETURNING org_id, job_id AS id, queue;

-- wake_received :many — crosses tenants: jobs whose event arrived before they were snoozed
UPDATE holdfast.job_waiting AS job
SET not_before_at = {now}
WHERE (job.org_id, job.job_id) IN (
    SELECT jobs.org_id, jobs.job_id
    FROM {rows jobs: org_id uuid, job_id uuid, first_id uuid}
    JOIN holdfast.job_wait AS held
      ON held.org_id = jobs.org_id AND held.job_id = jobs.first_id
         AND held.state = 'received' AND held.is_read = 0)
RETURNING job.queue;

-- list_waits :many — what a job waits for or has waited for
SELECT stage, name, number, state, deadline_at, event_key, created_at, ended_at
FROM holdfast.job_wait
WHERE org_id = :org_id AND job_id = :job_id
ORDER BY created_at, name, number;
