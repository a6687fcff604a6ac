-- Statements that run in the transaction in which jobs of workflows end. The first one locks the
-- workflows, so that the others see what every earlier transaction of the same workflow committed.

-- lock_workflows :many — crosses tenants: one transaction at a time ends jobs of a workflow
SELECT workflow.org_id, workflow.id
FROM holdfast.workflow AS workflow
WHERE (workflow.org_id, workflow.id) IN (
    SELECT jobs.org_id, jobs.workflow_id FROM {rows jobs: org_id uuid, workflow_id uuid})
ORDER BY workflow.org_id, workflow.id
{hold_row};

-- count_items :affected — crosses tenants: the counters of steps; before the items change
-- An item that failed earlier counts as completed if its replay completes.
UPDATE holdfast.workflow_step AS step
SET items_left = items_left - ended.fresh,
    items_failed = items_failed + ended.failed - ended.recovered
FROM (SELECT item.org_id, item.workflow_id, item.step,
             sum(CASE WHEN item.state = 'waiting' THEN 1 ELSE 0 END) AS fresh,
             sum(CASE WHEN item.state = 'waiting' AND jobs.state <> 'completed'
                      THEN 1 ELSE 0 END) AS failed,
             sum(CASE WHEN item.state <> 'waiting' AND jobs.state = 'completed'
                      THEN 1 ELSE 0 END) AS recovered
      FROM {rows jobs: org_id uuid, first_id uuid, state text}
      JOIN holdfast.workflow_item AS item
        ON item.org_id = jobs.org_id AND item.job_id = jobs.first_id
      WHERE item.state <> 'completed'
      GROUP BY item.org_id, item.workflow_id, item.step) AS ended
WHERE step.org_id = ended.org_id AND step.workflow_id = ended.workflow_id
  AND step.step = ended.step;

-- end_items :affected — crosses tenants: the outcome of each job, with its result
-- The result is a subquery: a join of two large tables without statistics took seconds.
UPDATE holdfast.workflow_item AS item
SET state = jobs.state,
    result = (SELECT job.result FROM holdfast.job_outcome AS job
              WHERE job.org_id = jobs.org_id AND job.job_id = jobs.job_id)
FROM {rows jobs: org_id uuid, job_id uuid, first_id uuid, state text}
WHERE item.org_id = jobs.org_id AND item.job_id = jobs.first_id AND item.state <> 'completed';

-- end_steps :affected — crosses tenants: steps whose state changes with their items
UPDATE holdfast.workflow_step AS step
SET state = CASE WHEN items_failed > 0 AND on_failure = 'fail' THEN 'failed'
                 WHEN items_left > 0 THEN 'running'
                 WHEN items_failed = 0 OR on_failure = 'ignore' THEN 'completed'
                 ELSE 'failed' END,
    ended_at = CASE WHEN items_left = 0 OR (items_failed > 0 AND on_failure = 'fail')
                    THEN {now} END
WHERE (step.org_id, step.workflow_id) IN (
        SELECT jobs.org_id, jobs.workflow_id FROM {rows jobs: org_id uuid, workflow_id uuid})
  AND step.state IN ('running', 'failed')
  AND step.state <> CASE WHEN items_failed > 0 AND on_failure = 'fail' THEN 'failed'
                         WHEN items_left > 0 THEN 'running'
                         WHEN items_failed = 0 OR on_failure = 'ignore' THEN 'completed'
                         ELSE 'failed' END;

-- judge_workflows :affected — crosses tenants: a failed step fails its workflow until its replay completes
UPDATE holdfast.workflow AS workflow
SET state = CASE WHEN EXISTS (
        SELECT 1 FROM holdfast.workflow_step AS step
        WHERE step.org_id = workflow.org_id AND step.workflow_id = workflow.id
          AND step.state = 'failed' AND step.on_failure = 'fail') THEN 'failed' ELSE 'running' END,
    ended_at = CASE WHEN EXISTS (
        SELECT 1 FROM holdfast.workflow_step AS step
        WHERE step.org_id = workflow.org_id AND step.workflow_id = workflow.id
          AND step.state = 'failed' AND step.on_failure = 'fail')
        THEN coalesce(workflow.ended_at, {now}) END,
    updated_at = {now}
WHERE (workflow.org_id, workflow.id) IN (
    SELECT jobs.org_id, jobs.workflow_id FROM {rows jobs: org_id uuid, workflow_id uuid})
  AND workflow.state <> 'canceled';

-- release_steps :affected — crosses tenants: steps whose dependencies have all completed
UPDATE holdfast.workflow_step AS step
SET state = 'released', released_at = {now},
    deadline_at = CASE WHEN deadline_ms IS NULL THEN NULL ELSE {later(deadline_ms)} END
WHERE step.state = 'waiting'
  AND (step.org_id, step.workflow_id) IN (
        SELECT workflow.org_id, workflow.id
        FROM {rows jobs: org_id uuid, workflow_id uuid}
        JOIN holdfast.workflow AS workflow
          ON workflow.org_id = jobs.org_id AND workflow.id = jobs.workflow_id
             AND workflow.state = 'running')
  AND NOT EXISTS (
        SELECT 1 FROM holdfast.workflow_edge AS edge
        JOIN holdfast.workflow_step AS needed
          ON needed.org_id = edge.org_id AND needed.workflow_id = edge.workflow_id
             AND needed.step = edge.needs
        WHERE edge.org_id = step.org_id AND edge.workflow_id = step.workflow_id
          AND edge.step = step.step AND needed.state <> 'completed');

-- start_released :many — crosses tenants: released steps are running; their queues are woken
UPDATE holdfast.workflow_step AS step
SET state = 'running'
WHERE step.state = 'released'
  AND (step.org_id, step.workflow_id) IN (
        SELECT jobs.org_id, jobs.workflow_id FROM {rows jobs: org_id uuid, workflow_id uuid})
RETURNING {field(request, queue)} AS queue;

-- end_workflows :affected — crosses tenants: workflows in which nothing runs any more
UPDATE holdfast.workflow AS workflow
SET state = CASE WHEN EXISTS (
        SELECT 1 FROM holdfast.workflow_step AS step
        WHERE step.org_id = workflow.org_id AND step.workflow_id = workflow.id
          AND step.state <> 'completed') THEN 'failed' ELSE 'completed' END,
    ended_at = {now}, updated_at = {now}
WHERE workflow.state = 'running'
  AND (workflow.org_id, workflow.id) IN (
        SELECT jobs.org_id, jobs.workflow_id FROM {rows jobs: org_id uuid, workflow_id uuid})
  AND NOT EXISTS (
        SELECT 1 FROM holdfast.workflow_step AS step
        WHERE step.org_id = workflow.org_id AND step.workflow_id = workflow.id
          AND step.state IN ('released', 'running'));
