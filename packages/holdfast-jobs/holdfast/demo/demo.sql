-- Statements of the demo on its own database. It is the operator of all its tenants.

-- count_states :many — crosses tenants: the jobs of every tenant by state
SELECT org_id, state, count(*) AS jobs FROM holdfast.job GROUP BY org_id, state;

-- count_held :many — crosses tenants: the claimed jobs of each worker
SELECT claimed_by, count(*) AS jobs FROM holdfast.job_running GROUP BY claimed_by;

-- list_news :many — crosses tenants: the audit events since the last read, except enqueued
SELECT event.id, event.org_id, event.job_id, event.job_type, event.name, event.attempt,
       event.actor_id, event.at, event.detail, job.created_at
FROM holdfast.audit_entry AS event
JOIN holdfast.job_envelope AS job ON job.org_id = event.org_id AND job.id = event.job_id
WHERE event.row_id IN (SELECT page.id FROM holdfast.audit_event AS page WHERE page.id > :after)
  AND event.id > :after AND event.name <> 'job.enqueued'
ORDER BY event.id
LIMIT 2000;

-- list_waits :many — crosses tenants: when each job was accepted and when a worker first took it
SELECT job.org_id, job.created_at, min(event.at) AS at
FROM holdfast.job AS job
JOIN holdfast.job_event AS event ON event.org_id = job.org_id AND event.job_id = job.id
WHERE event.name = 'job.started'
GROUP BY job.org_id, job.id, job.created_at;

-- list_accounts :many — crosses tenants: every job with counts of its audit events
SELECT job.id, job.org_id, job.state,
       sum(CASE WHEN event.name = 'job.started' THEN 1 ELSE 0 END) AS starts,
       sum(CASE WHEN event.name = 'job.succeeded' THEN 1 ELSE 0 END) AS successes,
       sum(CASE WHEN event.name IN ('job.succeeded', 'job.deadlettered', 'job.canceled')
                THEN 1 ELSE 0 END) AS ends,
       sum(CASE WHEN event.name = 'job.failed' AND event.actor_id = 'upkeep'
                THEN 1 ELSE 0 END) AS crashes,
       sum(CASE WHEN event.name = 'job.failed' AND event.actor_id <> 'upkeep'
                THEN 1 ELSE 0 END) AS failures
FROM holdfast.job AS job
JOIN holdfast.job_event AS event ON event.org_id = job.org_id AND event.job_id = job.id
GROUP BY job.id, job.org_id, job.state;

-- count_letters :one — crosses tenants: how many dead letters there are
SELECT count(*) AS letters FROM holdfast.dead_letter;
