-- Pruning. The statements serve every tenant: retention depends on the kind of a job,
-- never on its tenant.

-- delete_jobs :affected — delete finished jobs that are past their retention, with their facts
DELETE FROM holdfast.job_envelope
WHERE (org_id, id) IN (
    SELECT ended.org_id, ended.id FROM {rows ended: org_id uuid, id uuid});

-- rules :fragment — the rules of retention
WITH rules AS MATERIALIZED (
    SELECT category, job_type, state, {later(-keep_ms)} AS ended_before
    FROM {rows rules: category text, job_type text, state text, keep_ms bigint}
)

-- end_of_retention :fragment — the time before which a job of this kind is deleted
SELECT rules.ended_before FROM rules
WHERE (rules.category IS NULL OR rules.category = asked.category)
  AND (rules.job_type IS NULL OR rules.job_type = asked.job_type)
  AND (rules.state IS NULL OR rules.state = past.state)
ORDER BY CASE WHEN rules.job_type IS NULL THEN 1 ELSE 0 END,
         CASE WHEN rules.category IS NULL THEN 1 ELSE 0 END,
         CASE WHEN rules.state IS NULL THEN 1 ELSE 0 END
LIMIT 1)

-- find_prunable :many — crosses tenants: completed and canceled jobs past their retention
-- The most specific rule of a kind counts: its end is the time before which a job is deleted. Never
-- before the key has expired, and never a job with a unit, which stays unique forever.
{use rules}
SELECT past.org_id, past.job_id AS id
FROM holdfast.job_outcome AS past
JOIN holdfast.job_envelope AS asked ON asked.org_id = past.org_id AND asked.id = past.job_id
WHERE past.state <> 'failed' AND past.finished_at < {later(-CAST(:shortest_ms AS bigint))}
  AND past.key_expires_at < {now} AND asked.unit_key IS NULL
  AND past.finished_at < (
      {use end_of_retention}
ORDER BY past.finished_at
LIMIT :limit
{skip_held(asked)};

-- find_prunable_failed :many — crosses tenants: failed jobs past their retention
-- They are kept while the dead letter is open, and the retention starts when it is closed.
{use rules}
SELECT past.org_id, past.job_id AS id
FROM holdfast.dead_letter AS letter
JOIN holdfast.job_outcome AS past
  ON past.org_id = letter.org_id AND past.job_id = letter.job_id
JOIN holdfast.job_envelope AS asked ON asked.org_id = past.org_id AND asked.id = past.job_id
WHERE letter.ended_at < {later(-CAST(:shortest_ms AS bigint))}
  AND past.key_expires_at < {now} AND asked.unit_key IS NULL
  AND letter.ended_at < (
      {use end_of_retention}
ORDER BY letter.ended_at
LIMIT :limit
{skip_held(asked)};

-- find_prunable_replays :many — crosses tenants: failed replays whose dead letter is closed
{use rules}
SELECT past.org_id, past.job_id AS id
FROM holdfast.job_outcome AS past
JOIN holdfast.job_envelope AS asked ON asked.org_id = past.org_id AND asked.id = past.job_id
WHERE past.state = 'failed' AND asked.replay_of IS NOT NULL
  AND past.finished_at < {later(-CAST(:shortest_ms AS bigint))} AND past.key_expires_at < {now}
  AND NOT EXISTS (
      SELECT 1 FROM holdfast.dead_letter AS letter
      WHERE letter.org_id = asked.org_id AND letter.job_id = asked.replay_of
        AND letter.ended_at IS NULL)
  AND past.finished_at < (
      {use end_of_retention}
ORDER BY past.finished_at
LIMIT :limit
{skip_held(asked)};

-- keep_remainders :affected — crosses tenants: what the audit needs of jobs that are deleted
-- These are the parts of the view job_event for ended jobs. SQLite would read every job for the view.
INSERT INTO holdfast.job_remainder
    (org_id, job_id, project_id, job_type, request_id, correlation_id, events)
SELECT job.org_id, job.id, job.project_id, job.job_type, job.request_id, job.correlation_id,
       (SELECT {json_list}({json_object}(
                   'id', event.id, 'name', event.name, 'attempt', event.attempt,
                   'actor_type', event.actor_type, 'actor_id', event.actor_id,
                   'at', {stamp(event.at)}, 'detail', {only sqlite}json(event.detail){end}{only postgres}event.detail{end},
                   'digest', CASE event.name
                       WHEN 'job.enqueued' THEN (
                           SELECT {digest enqueue asked} || ':' || CAST(asked.max_attempts AS text)
                                  || ':' || asked.stage || ':' || asked.pipeline_version
                           FROM holdfast.job_envelope AS asked
                           WHERE asked.org_id = job.org_id AND asked.id = job.id)
                       WHEN 'job.succeeded' THEN (
                           SELECT {digest outcome ended} FROM holdfast.job_outcome AS ended
                           WHERE ended.org_id = job.org_id AND ended.job_id = job.id) END))
        FROM (SELECT asked.event_id AS id, 'job.enqueued' AS name, 1 AS attempt, asked.actor_type,
                     asked.actor_id, asked.created_at AS at,
                     {with_fields(NULL): 'queue', coalesce(asked.queue, asked.origin_queue), 'payload_hash', asked.payload_hash, 'not_before_at', {stamp(asked.not_before_at)}} AS detail
              FROM holdfast.job_envelope AS asked
              WHERE asked.org_id = job.org_id AND asked.id = job.id
              UNION ALL
              SELECT fact.started_event_id, 'job.started', fact.started_attempt, 'system',
                     fact.claimed_by, fact.claimed_at, CAST(NULL AS {json})
              FROM holdfast.job_attempt AS fact
              WHERE fact.org_id = job.org_id AND fact.job_id = job.id
                AND fact.started_event_id IS NOT NULL
              UNION ALL
              SELECT fact.started_event_id, 'job.started', fact.started_attempt, 'system',
                     fact.claimed_by, fact.claimed_at, CAST(NULL AS {json})
              FROM holdfast.job_outcome AS fact
              WHERE fact.org_id = job.org_id AND fact.job_id = job.id
                AND fact.started_event_id IS NOT NULL
              UNION ALL
              SELECT fact.event_id, 'job.succeeded', fact.attempt_count + 1, 'system',
                     fact.settled_by, fact.finished_at, CAST(NULL AS {json})
              FROM holdfast.job_outcome AS fact
              WHERE fact.org_id = job.org_id AND fact.job_id = job.id
                AND fact.event_id IS NOT NULL) AS event
        WHERE NOT EXISTS (SELECT 1 FROM holdfast.audit_event AS own
                          WHERE own.org_id = job.org_id AND own.id = event.id
                            AND own.job_id = job.id))
FROM {rows ended: org_id uuid, id uuid}
JOIN holdfast.job AS job ON job.org_id = ended.org_id AND job.id = ended.id
WHERE TRUE
ON CONFLICT DO NOTHING;

-- record_pruned :affected — crosses tenants: record that jobs are deleted
-- Verify requires it for a job that is in the audit but in no table. The digest is that of the last
-- change, so it cannot be written without the row.
INSERT INTO holdfast.audit_event
    (org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
     correlation_id, at, detail, digest)
SELECT job.org_id, job.project_id, job.id, job.job_type, 'job.pruned', job.attempt_count + 1,
       :actor_type, :actor_id, job.request_id, job.correlation_id, {now},
       {json_object}(
           'state', job.state, 'finished_at', {stamp(job.finished_at)}),
       {digest state job}
FROM {rows ended: org_id uuid, id uuid}
JOIN holdfast.job AS job ON job.org_id = ended.org_id AND job.id = ended.id
WHERE {numbered};

-- prune_deliveries :many — crosses tenants: deliveries past their retention
-- Deliveries of jobs that may be replayed are kept.
DELETE FROM holdfast.delivery
WHERE (org_id, id) IN (
    SELECT told.org_id, told.id
    FROM holdfast.delivery AS told
    WHERE told.ended_at < {later(-CAST(:keep_ms AS bigint))}
      AND NOT EXISTS (
          SELECT 1 FROM holdfast.job AS job
          WHERE job.org_id = told.org_id AND job.id = told.job_id)
    ORDER BY told.ended_at
    LIMIT :limit)
RETURNING org_id, id, request_id, correlation_id;

-- record_removed :affected — crosses tenants: record the deletion of deliveries
INSERT INTO holdfast.audit_event
    (org_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id, correlation_id, at,
     detail)
SELECT removed.org_id, removed.id, 'delivery', 'delivery.removed', 1, :actor_type, :actor_id,
       removed.request_id, removed.correlation_id, {now}, CAST(:detail AS {json})
FROM {rows removed: org_id uuid, id uuid, request_id text, correlation_id text}
WHERE {numbered};

-- prune_in_app :affected — crosses tenants: delete notices of feeds past their retention
DELETE FROM holdfast.in_app_notification
WHERE (org_id, id) IN (
    SELECT notice.org_id, notice.id
    FROM holdfast.in_app_notification AS notice
    WHERE notice.created_at < {later(-CAST(:keep_ms AS bigint))}
    ORDER BY notice.created_at
    LIMIT :limit);
