-- Statements of operators, and of the upkeep of workflows.

-- lock_workflow :maybe — one transaction at a time changes a workflow
SELECT id, state FROM holdfast.workflow WHERE org_id = :org_id AND id = :id {hold_row};

-- cancel_workflow :affected — no step of the workflow starts any more
UPDATE holdfast.workflow
SET state = 'canceled', ended_at = {now}, updated_at = {now}
WHERE org_id = :org_id AND id = :id AND state IN ('running', 'failed');

-- cancel_waiting :affected — the steps that never started
UPDATE holdfast.workflow_step
SET state = 'canceled', ended_at = {now}
WHERE org_id = :org_id AND workflow_id = :id AND state = 'waiting';

-- list_unended :many — the jobs of a workflow that have not ended, with replays
SELECT job.id
FROM holdfast.workflow_item AS item
JOIN holdfast.job_envelope AS job ON job.org_id = item.org_id AND job.id = item.job_id
WHERE item.org_id = :org_id AND item.workflow_id = :id
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_outcome AS ended
                  WHERE ended.org_id = job.org_id AND ended.job_id = job.id)
UNION
SELECT replay.id
FROM holdfast.workflow_item AS item
JOIN holdfast.dead_letter_replay AS made
  ON made.org_id = item.org_id AND made.job_id = item.job_id
JOIN holdfast.job_envelope AS replay
  ON replay.org_id = made.org_id AND replay.id = made.replay_job_id
WHERE item.org_id = :org_id AND item.workflow_id = :id AND item.state = 'failed'
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_outcome AS ended
                  WHERE ended.org_id = replay.org_id AND ended.job_id = replay.id);

-- list_failed :many — the dead letters of failed steps, with the columns that a replay needs
SELECT letter.*, failed.max_attempts, failed.pipeline_version,
       coalesce(rule.replay_refusal, category.replay_refusal) AS replay_refusal
FROM holdfast.workflow_item AS item
JOIN holdfast.workflow_step AS step
  ON step.org_id = item.org_id AND step.workflow_id = item.workflow_id AND step.step = item.step
     AND step.state IN ('failed', 'running')
JOIN holdfast.dead_letter AS letter
  ON letter.org_id = item.org_id AND letter.job_id = item.job_id
JOIN holdfast.job_envelope AS job ON job.org_id = letter.org_id AND job.id = letter.job_id
JOIN holdfast.job AS failed
  ON failed.org_id = letter.org_id
 AND failed.id = coalesce(letter.failed_replay_id, letter.job_id)
LEFT JOIN holdfast.category AS category ON category.name = job.category
LEFT JOIN holdfast.job_type_rule AS rule ON rule.job_type = letter.job_type
WHERE item.org_id = :org_id AND item.workflow_id = :id AND item.state = 'failed'
  AND (CAST(:step AS text) IS NULL OR item.step = :step)
  AND letter.state IN ('open', 'triaged', 'remediated', 'validated')
ORDER BY item.place, item.job_id
LIMIT :limit;

-- reopen_steps :affected — steps with replayed items run again; before the items change
UPDATE holdfast.workflow_step AS step
SET items_left = items_left + again.items, items_failed = items_failed - again.items,
    state = 'running', ended_at = NULL
FROM (SELECT item.org_id, item.workflow_id, item.step, count(*) AS items
      FROM {rows letters: org_id uuid, job_id uuid}
      JOIN holdfast.workflow_item AS item
        ON item.org_id = letters.org_id AND item.job_id = letters.job_id
      WHERE item.state = 'failed'
      GROUP BY item.org_id, item.workflow_id, item.step) AS again
WHERE step.org_id = again.org_id AND step.workflow_id = again.workflow_id
  AND step.step = again.step;

-- reopen_items :affected — items whose jobs are replayed wait for the replay
UPDATE holdfast.workflow_item AS item
SET state = 'waiting'
FROM {rows letters: org_id uuid, job_id uuid}
WHERE item.org_id = letters.org_id AND item.job_id = letters.job_id AND item.state = 'failed';

-- reopen_workflow :affected — the workflow runs again
UPDATE holdfast.workflow
SET state = 'running', ended_at = NULL, updated_at = {now}
WHERE org_id = :org_id AND id = :id AND state IN ('running', 'failed');

-- find_upkeep :one — crosses tenants: what a pass of the upkeep has to do
SELECT CASE WHEN EXISTS (SELECT 1 FROM holdfast.workflow_step AS step
                         WHERE step.deadline_at <= {now} AND step.state = 'running')
            THEN 1 ELSE 0 END AS has_overdue,
       CASE WHEN EXISTS (SELECT 1 FROM holdfast.workflow) THEN 1 ELSE 0 END AS has_workflows,
       CASE WHEN EXISTS (SELECT 1 FROM holdfast.workflow AS old
                         WHERE old.ended_at < {later(:since_ms)})
              OR EXISTS (SELECT 1 FROM holdfast.job_wait AS old
                         WHERE old.ended_at < {later(:since_ms)})
              OR EXISTS (SELECT 1 FROM holdfast.sent_event AS old
                         WHERE old.sent_at < {later(:since_ms)})
            THEN 1 ELSE 0 END AS has_old;

-- find_overdue :many — crosses tenants: steps whose deadline has passed
SELECT step.org_id, step.workflow_id, step.step
FROM holdfast.workflow_step AS step
WHERE step.deadline_at <= {now} AND step.state = 'running'
ORDER BY step.deadline_at
LIMIT :limit;

-- clear_deadline :affected — the jobs of an overdue step are being canceled
UPDATE holdfast.workflow_step SET deadline_at = NULL
WHERE org_id = :org_id AND workflow_id = :id AND step = :step;

-- list_overdue :many — the jobs of a step that have not ended
SELECT job.id
FROM holdfast.workflow_item AS item
JOIN holdfast.job_envelope AS job ON job.org_id = item.org_id AND job.id = item.job_id
WHERE item.org_id = :org_id AND item.workflow_id = :id AND item.step = :step
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_outcome AS ended
                  WHERE ended.org_id = job.org_id AND ended.job_id = job.id);

-- find_unseen :many — crosses tenants: ended jobs whose end a process without the extension wrote
-- CROSS JOIN makes SQLite start with the steps; it would read every item.
SELECT job.org_id, job.id AS job_id, job.job_type, ended.state, item.job_id AS first_id,
       item.workflow_id
FROM holdfast.workflow_step AS step
CROSS JOIN holdfast.workflow_item AS item
JOIN holdfast.job_outcome AS ended ON ended.org_id = item.org_id AND ended.job_id = item.job_id
JOIN holdfast.job_envelope AS job ON job.org_id = ended.org_id AND job.id = ended.job_id
WHERE step.state = 'running'
  AND item.org_id = step.org_id AND item.workflow_id = step.workflow_id AND item.step = step.step
  AND item.state = 'waiting'
  AND NOT EXISTS (
        SELECT 1 FROM holdfast.dead_letter_replay AS made
        JOIN holdfast.job_envelope AS replay
          ON replay.org_id = made.org_id AND replay.id = made.replay_job_id
        WHERE made.org_id = job.org_id AND made.job_id = job.id
          AND NOT EXISTS (SELECT 1 FROM holdfast.job_outcome AS done
                          WHERE done.org_id = replay.org_id AND done.job_id = replay.id))
LIMIT :limit;

-- prune_workflows :affected — crosses tenants: workflows that ended long ago, with their steps
DELETE FROM holdfast.workflow
WHERE (org_id, id) IN (
    SELECT old.org_id, old.id FROM holdfast.workflow AS old
    WHERE old.ended_at < {later(:since_ms)}
    ORDER BY old.ended_at
    LIMIT :limit);

-- prune_waits :affected — crosses tenants: waits that ended long ago
DELETE FROM holdfast.job_wait
WHERE (org_id, job_id, stage, name, number) IN (
    SELECT old.org_id, old.job_id, old.stage, old.name, old.number
    FROM holdfast.job_wait AS old
    WHERE old.ended_at < {later(:since_ms)}
      AND NOT EXISTS (SELECT 1 FROM holdfast.job_envelope AS job
                      WHERE job.org_id = old.org_id AND job.id = old.job_id
                        AND NOT EXISTS (SELECT 1 FROM holdfast.job_outcome AS ended
                                        WHERE ended.org_id = job.org_id
                                          AND ended.job_id = job.id))
    ORDER BY old.ended_at
    LIMIT :limit);

-- prune_events :affected — crosses tenants: events that were sent long ago
DELETE FROM holdfast.sent_event
WHERE (org_id, id) IN (
    SELECT old.org_id, old.id FROM holdfast.sent_event AS old
    WHERE old.sent_at < {later(:since_ms)}
    ORDER BY old.sent_at
    LIMIT :limit);

-- find_workflows :many — crosses tenants: workflows whose ids begin with a prefix
SELECT id FROM holdfast.workflow
WHERE id >= CAST(:low AS {uuid}) AND id <= CAST(:high AS {uuid})
ORDER BY id
LIMIT :limit;
