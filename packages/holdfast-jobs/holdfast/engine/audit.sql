-- Statements that write the audit. A sealing pass waits for transactions that have a transaction
-- id. So a transaction that writes only events gets its id before the ids of the events
-- ({numbered}).

-- insert_actions :affected — actions on things other than jobs, each in its tenant
INSERT INTO holdfast.audit_event
    (org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
     correlation_id, at, detail)
SELECT actions.org_id, actions.project_id, actions.subject_id, actions.kind, actions.name, 1,
       actions.actor_type, actions.actor_id, coalesce(actions.request_id, actions.subject),
       coalesce(actions.correlation_id, actions.subject), {now}, actions.detail
FROM {rows actions: place integer, org_id uuid, project_id uuid, subject_id uuid, kind text,
      name text, actor_type text, actor_id text, request_id text, correlation_id text,
      subject text, detail json}
WHERE {numbered}
ORDER BY actions.place;
