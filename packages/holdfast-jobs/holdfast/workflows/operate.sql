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
JOIN holdfast.job AS job ON job.org_id = item.org_id AND job.id = item.job_id
WHERE item.org_id = :org_id AND item.workflow_id = :id AND job.finished_at IS NULL
UNION
SELECT replay.id
FROM holdfast.workflow_item AS item
JOIN holdfast.dead_letter_replay AS made
  ON made.org_id = item.org_id AND made.job_id = item.job_id
JOIN holdfast.job AS replay ON replay.org_id = made.org_id AND replay.id = made.replay_job_id
WHERE item.org_id = :org_id AND item.workflow_id = :id AND item.state = 'failed'
  AND replay.finished_at IS NULL;
