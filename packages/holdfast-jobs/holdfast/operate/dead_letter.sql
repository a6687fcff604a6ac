-- Dead letters for operators. Every statement names the tenant of each row that it changes; those
-- that may serve all tenants are marked, and take :org_id to serve only one.
-- In the role of tenants PostgreSQL finds no row by coalesce(…), which it cannot call harmless: a join
-- to the jobs by it reads all jobs of the tenant. CASE does the same.

-- find_letter :maybe — one item, with the columns of the last failed job that a replay needs
SELECT letter.*,
       coalesce((SELECT attempt.max_attempts FROM holdfast.job_attempt AS attempt
                 WHERE attempt.org_id = failed.org_id AND attempt.job_id = failed.id
                 ORDER BY attempt.number DESC LIMIT 1),
                failed.max_attempts) AS max_attempts,
       coalesce((SELECT attempt.pipeline_version FROM holdfast.job_attempt AS attempt
                 WHERE attempt.org_id = failed.org_id AND attempt.job_id = failed.id
                 ORDER BY attempt.number DESC LIMIT 1),
                failed.pipeline_version) AS pipeline_version,
       coalesce(rule.replay_refusal, category.replay_refusal) AS replay_refusal
FROM holdfast.dead_letter AS letter
JOIN holdfast.job_envelope AS job ON job.org_id = letter.org_id AND job.id = letter.job_id
JOIN holdfast.job_envelope AS failed
  ON failed.org_id = letter.org_id
 AND failed.id = CASE WHEN letter.failed_replay_id IS NULL THEN letter.job_id
                       ELSE letter.failed_replay_id END
LEFT JOIN holdfast.category AS category ON category.name = job.category
LEFT JOIN holdfast.job_type_rule AS rule ON rule.job_type = letter.job_type
WHERE letter.org_id = :org_id AND letter.job_id = :job_id;

-- list_letters :many — crosses tenants unless :org_id is given: newest first, page by page
SELECT letter.*,
       coalesce((SELECT attempt.max_attempts FROM holdfast.job_attempt AS attempt
                 WHERE attempt.org_id = failed.org_id AND attempt.job_id = failed.id
                 ORDER BY attempt.number DESC LIMIT 1),
                failed.max_attempts) AS max_attempts,
       coalesce((SELECT attempt.pipeline_version FROM holdfast.job_attempt AS attempt
                 WHERE attempt.org_id = failed.org_id AND attempt.job_id = failed.id
                 ORDER BY attempt.number DESC LIMIT 1),
                failed.pipeline_version) AS pipeline_version,
       coalesce(rule.replay_refusal, category.replay_refusal) AS replay_refusal,
       CASE WHEN letter.escalated_at IS NULL THEN 0 ELSE 1 END AS is_escalated,
       CASE WHEN letter.verified_at IS NULL THEN 0 ELSE 1 END AS is_verified,
       CASE WHEN letter.state = 'replayed' AND EXISTS (
           SELECT 1
           FROM holdfast.delivery AS delivery
           WHERE delivery.org_id = letter.org_id
             AND delivery.job_id IN (letter.job_id, replay.replay_job_id)
             AND delivery.is_required = 1 AND delivery.state <> 'sent'
       ) THEN 1 ELSE 0 END AS is_undelivered
FROM holdfast.dead_letter AS letter
JOIN holdfast.job_envelope AS job ON job.org_id = letter.org_id AND job.id = letter.job_id
JOIN holdfast.job_envelope AS failed
  ON failed.org_id = letter.org_id
 AND failed.id = CASE WHEN letter.failed_replay_id IS NULL THEN letter.job_id
                       ELSE letter.failed_replay_id END
LEFT JOIN holdfast.category AS category ON category.name = job.category
LEFT JOIN holdfast.job_type_rule AS rule ON rule.job_type = letter.job_type
LEFT JOIN holdfast.dead_letter_replay AS replay
  ON replay.org_id = letter.org_id AND replay.job_id = letter.job_id
 AND replay.number = letter.replay_count
WHERE (CAST(:org_id AS {uuid}) IS NULL OR letter.org_id = :org_id)
  AND (CAST(:state AS text) IS NOT NULL OR :with_ended = 1 OR letter.ended_at IS NULL)
  AND (CAST(:state AS text) IS NULL OR letter.state = :state)
  AND (CAST(:job_type AS text) IS NULL OR letter.job_type = :job_type)
  AND (CAST(:error_class AS text) IS NULL OR letter.error_class = :error_class)
  AND (CAST(:queue AS text) IS NULL OR letter.queue = :queue)
  AND (CAST(:stage AS text) IS NULL OR letter.stage = :stage)
  AND (CAST(:kind AS text) IS NULL OR letter.kind = :kind)
  AND (CAST(:older_ms AS bigint) IS NULL
       OR letter.created_at < {later(-CAST(:older_ms AS bigint))})
  AND (CAST(:since AS {instant}) IS NULL OR letter.last_failure_at >= :since)
  AND (CAST(:before_id AS {uuid}) IS NULL
       OR (letter.created_at, letter.job_id) < (CAST(:before_at AS {instant}), CAST(:before_id AS {uuid})))
ORDER BY letter.created_at DESC, letter.job_id DESC
LIMIT :limit;

-- list_replays :many — the replays of one item
SELECT number, replay_job_id, full_restart, failed_stage, stage, reason, actor_type, actor_id,
       requested_at, outcome, error_class, ended_at
FROM holdfast.dead_letter_replay
WHERE org_id = :org_id AND job_id = :job_id
ORDER BY number;

-- list_notes :many — the notes about one item
SELECT id, body, actor_type, actor_id, created_at
FROM holdfast.dead_letter_note
WHERE org_id = :org_id AND job_id = :job_id
ORDER BY created_at, id;

-- insert_note :affected — append-only
INSERT INTO holdfast.dead_letter_note (org_id, job_id, id, body, actor_type, actor_id, created_at)
VALUES (:org_id, :job_id, :id, :body, :actor_type, :actor_id, {now});

-- step_letters :many — crosses tenants: one step of these items, if they have not changed since they were read
UPDATE holdfast.dead_letter AS letter
SET state = steps.to_state,
    version = letter.version + 1,
    kind = steps.to_kind,
    checklist = steps.list,
    evidence_ref = steps.evidence,
    is_safe_to_repeat = steps.is_safe,
    replay_count = letter.replay_count + steps.replays,
    verified_at = CASE WHEN steps.verifies = 1 THEN {now} ELSE letter.verified_at END,
    fixed_by = steps.fixed_with,
    ending = steps.last_words,
    ended_at = CASE WHEN steps.last_words IS NULL THEN NULL ELSE {now} END,
    updated_at = {now}
FROM {rows steps: tenant uuid, letter_id uuid, from_version integer, to_state text, to_kind text,
      list json, evidence text, is_safe boolean, replays integer, verifies integer,
      fixed_with text, last_words text}
WHERE letter.org_id = steps.tenant AND letter.job_id = steps.letter_id
  AND letter.version = steps.from_version
RETURNING org_id, job_id, version, replay_count;

-- list_sources :many — crosses tenants: the jobs that the replays of these items repeat
SELECT letter.job_id AS letter_id, letter.stage AS failed_stage, letter.attempts,
       letter.replay_count,
       failed.id AS failed_job_id,
       coalesce((SELECT attempt.max_attempts FROM holdfast.job_attempt AS attempt
                 WHERE attempt.org_id = failed.org_id AND attempt.job_id = failed.id
                 ORDER BY attempt.number DESC LIMIT 1),
                failed.max_attempts) AS max_attempts,
       coalesce((SELECT attempt.pipeline_version FROM holdfast.job_attempt AS attempt
                 WHERE attempt.org_id = failed.org_id AND attempt.job_id = failed.id
                 ORDER BY attempt.number DESC LIMIT 1),
                failed.pipeline_version) AS pipeline_version,
       job.org_id, job.project_id, job.job_type, job.category, job.actor_type, job.actor_id,
       job.request_id, job.correlation_id, job.idempotency_key, job.payload, job.payload_hash,
       job.priority, job.unit_key, job.limit_key, job.scheduled_for, job.traceparent,
       job.routing_decision, job.origin_queue
FROM {rows letters: org_id uuid, job_id uuid}
JOIN holdfast.dead_letter AS letter
  ON letter.org_id = letters.org_id AND letter.job_id = letters.job_id
JOIN holdfast.job AS job ON job.org_id = letter.org_id AND job.id = letter.job_id
JOIN holdfast.job_envelope AS failed
  ON failed.org_id = letter.org_id
 AND failed.id = CASE WHEN letter.failed_replay_id IS NULL THEN letter.job_id
                       ELSE letter.failed_replay_id END;

-- take_over_stages :affected — crosses tenants: copy the results of the finished stages to a replay
INSERT INTO holdfast.job_stage (org_id, job_id, stage, attempts, output, updated_at, finished_at)
SELECT stage.org_id, taken.replay_job_id, stage.stage, stage.attempts, stage.output, {now},
       stage.finished_at
FROM {rows taken: org_id uuid, failed_job_id uuid, replay_job_id uuid, from_stage text}
JOIN holdfast.job_stage AS stage
  ON stage.org_id = taken.org_id AND stage.job_id = taken.failed_job_id
WHERE stage.finished_at IS NOT NULL AND stage.stage <> taken.from_stage;

-- insert_replays :affected — crosses tenants: the actor, the reason and the first stage of each replay
INSERT INTO holdfast.dead_letter_replay
    (org_id, job_id, number, replay_job_id, full_restart, failed_stage, stage, reason, actor_type,
     actor_id, requested_at)
SELECT replays.org_id, replays.job_id, replays.number, replays.replay_job_id, replays.full_restart,
       replays.failed_stage, replays.stage, :reason, :actor_type, :actor_id, {now}
FROM {rows replays: org_id uuid, job_id uuid, number integer, replay_job_id uuid,
      full_restart boolean, failed_stage text, stage text}
WHERE TRUE;

-- group_letters :many — crosses tenants unless :org_id is given: the items that a bulk would process, grouped
SELECT state, job_type, stage, pipeline_version, replay_refusal, kind, error_class, is_escalated,
       is_verified, is_undelivered, count(*) AS letters
FROM (
    SELECT letter.state, letter.job_type, letter.stage,
           coalesce((SELECT attempt.pipeline_version FROM holdfast.job_attempt AS attempt
                     WHERE attempt.org_id = failed.org_id AND attempt.job_id = failed.id
                     ORDER BY attempt.number DESC LIMIT 1),
                    failed.pipeline_version) AS pipeline_version,
           letter.kind,
           letter.error_class,
           coalesce(rule.replay_refusal, category.replay_refusal) AS replay_refusal,
           CASE WHEN letter.escalated_at IS NULL THEN 0 ELSE 1 END AS is_escalated,
           CASE WHEN letter.verified_at IS NULL THEN 0 ELSE 1 END AS is_verified,
           CASE WHEN letter.state = 'replayed' AND EXISTS (
               SELECT 1
               FROM holdfast.delivery AS delivery
               WHERE delivery.org_id = letter.org_id
                 AND delivery.job_id IN (letter.job_id, replay.replay_job_id)
                 AND delivery.is_required = 1 AND delivery.state <> 'sent'
           ) THEN 1 ELSE 0 END AS is_undelivered
    FROM holdfast.dead_letter AS letter
    JOIN holdfast.job_envelope AS job ON job.org_id = letter.org_id AND job.id = letter.job_id
    JOIN holdfast.job_envelope AS failed
      ON failed.org_id = letter.org_id
     AND failed.id = CASE WHEN letter.failed_replay_id IS NULL THEN letter.job_id
                       ELSE letter.failed_replay_id END
    LEFT JOIN holdfast.category AS category ON category.name = job.category
    LEFT JOIN holdfast.job_type_rule AS rule ON rule.job_type = letter.job_type
    LEFT JOIN holdfast.dead_letter_replay AS replay
      ON replay.org_id = letter.org_id AND replay.job_id = letter.job_id
     AND replay.number = letter.replay_count
    WHERE (CAST(:org_id AS {uuid}) IS NULL OR letter.org_id = :org_id)
      AND letter.ended_at IS NULL
      AND (CAST(:state AS text) IS NULL OR letter.state = :state)
      AND (CAST(:job_type AS text) IS NULL OR letter.job_type = :job_type)
      AND (CAST(:error_class AS text) IS NULL OR letter.error_class = :error_class)
      AND (CAST(:queue AS text) IS NULL OR letter.queue = :queue)
      AND (CAST(:stage AS text) IS NULL OR letter.stage = :stage)
      AND (CAST(:kind AS text) IS NULL OR letter.kind = :kind)
      AND (CAST(:older_ms AS bigint) IS NULL
           OR letter.created_at < {later(-CAST(:older_ms AS bigint))})
      AND (CAST(:since AS {instant}) IS NULL OR letter.last_failure_at >= :since)
) AS standing
GROUP BY state, job_type, stage, pipeline_version, replay_refusal, kind, error_class, is_escalated,
         is_verified, is_undelivered
ORDER BY state, job_type, stage, error_class;

-- list_causes :many — crosses tenants unless :org_id is given: open items by cause, largest first
SELECT job_type, error_class, stage, queue, state, count(*) AS letters,
       count(escalated_at) AS escalated, min(created_at) AS oldest_at, max(created_at) AS newest_at
FROM holdfast.dead_letter
WHERE (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
  AND ended_at IS NULL
  AND (CAST(:state AS text) IS NULL OR state = :state)
  AND (CAST(:job_type AS text) IS NULL OR job_type = :job_type)
  AND (CAST(:error_class AS text) IS NULL OR error_class = :error_class)
  AND (CAST(:queue AS text) IS NULL OR queue = :queue)
  AND (CAST(:stage AS text) IS NULL OR stage = :stage)
  AND (CAST(:kind AS text) IS NULL OR kind = :kind)
  AND (CAST(:older_ms AS bigint) IS NULL OR created_at < {later(-CAST(:older_ms AS bigint))})
GROUP BY job_type, error_class, stage, queue, state
ORDER BY count(*) DESC, job_type, error_class, stage, queue, state
LIMIT :limit;

-- list_downstream :many — the states of the required deliveries of these jobs
SELECT delivery.state
FROM {rows jobs: job_id uuid}
JOIN holdfast.delivery AS delivery
  ON delivery.org_id = :org_id AND delivery.job_id = jobs.job_id
WHERE delivery.is_required = 1
ORDER BY delivery.created_at, delivery.id;
