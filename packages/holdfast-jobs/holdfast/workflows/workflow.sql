-- Statements that store workflows and read them.

-- insert_workflow :many — an existing key returns no row
INSERT INTO holdfast.workflow
    (org_id, id, project_id, name, workflow_key, actor_type, actor_id, created_at, updated_at)
SELECT made.org_id, made.id, made.project_id, made.name, made.workflow_key, made.actor_type,
       made.actor_id, {now}, {now}
FROM {rows made: org_id uuid, id uuid, project_id uuid, name text, workflow_key text,
      actor_type text, actor_id text}
WHERE TRUE
ON CONFLICT (org_id, workflow_key) DO NOTHING
RETURNING id;

-- find_by_key :maybe — the workflow with a key
SELECT id, name, created_at FROM holdfast.workflow
WHERE org_id = :org_id AND workflow_key = :workflow_key;

-- insert_steps :affected — the steps of a workflow; those without dependencies are running
INSERT INTO holdfast.workflow_step
    (org_id, workflow_id, step, place, job_type, is_mapped, on_failure, request, delay_ms,
     deadline_ms, budget_pico, state, item_count, items_left, released_at, deadline_at)
SELECT made.org_id, made.workflow_id, made.step, made.place, made.job_type, made.is_mapped,
       made.on_failure, made.request, made.delay_ms, made.deadline_ms, made.budget_pico, made.state,
       made.item_count, made.item_count, CASE WHEN made.state = 'running' THEN {now} END,
       CASE WHEN made.state = 'running' AND made.deadline_ms IS NOT NULL
            THEN {later(made.deadline_ms)} END
FROM {rows made: org_id uuid, workflow_id uuid, step text, place integer, job_type text,
      is_mapped smallint, on_failure text, request json, delay_ms bigint, deadline_ms bigint,
      budget_pico bigint, state text, item_count integer}
WHERE TRUE;

-- insert_edges :affected — the dependencies of a workflow
INSERT INTO holdfast.workflow_edge (org_id, workflow_id, step, needs, argument)
SELECT made.org_id, made.workflow_id, made.step, made.needs, made.argument
FROM {rows made: org_id uuid, workflow_id uuid, step text, needs text, argument text}
WHERE TRUE;

-- insert_items :affected — the jobs of a workflow; the payloads of jobs that exist are not copied
INSERT INTO holdfast.workflow_item
    (org_id, job_id, workflow_id, step, place, idempotency_key, payload, payload_hash, turn)
SELECT made.org_id, made.job_id, made.workflow_id, made.step, made.place, made.idempotency_key,
       made.payload, made.payload_hash, made.turn
FROM {rows made: org_id uuid, job_id uuid, workflow_id uuid, step text, place integer,
      idempotency_key text, payload json, payload_hash text, turn uuid}
WHERE TRUE;

-- find_workflow :maybe — crosses tenants unless one is named: one workflow
SELECT org_id, id, project_id, name, state, actor_type, actor_id, created_at, updated_at, ended_at
FROM holdfast.workflow
WHERE (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id) AND id = :id;

-- list_workflows :many — crosses tenants unless one is named: workflows, newest first
SELECT org_id, id, project_id, name, state, actor_type, actor_id, created_at, updated_at, ended_at
FROM holdfast.workflow
WHERE (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id) AND id < CAST(:before AS {uuid})
  AND (CAST(:state AS text) IS NULL OR state = :state)
  AND (CAST(:name AS text) IS NULL OR name = :name)
ORDER BY id DESC
LIMIT :limit;

-- list_steps :many — the steps of a workflow in the order in which they were added
SELECT step.step, step.place, step.job_type, step.is_mapped, step.on_failure, step.state,
       step.item_count, step.items_left, step.items_failed, step.released_at, step.deadline_at,
       step.ended_at, step.budget_pico,
       (SELECT item.job_id FROM holdfast.workflow_item AS item
        WHERE item.org_id = step.org_id AND item.workflow_id = step.workflow_id
          AND item.step = step.step AND item.place = 0) AS job_id
FROM holdfast.workflow_step AS step
WHERE step.org_id = :org_id AND step.workflow_id = :id
ORDER BY step.place;

-- list_edges :many — the dependencies of a workflow
SELECT DISTINCT edge.step, edge.needs FROM holdfast.workflow_edge AS edge
WHERE edge.org_id = :org_id AND edge.workflow_id = :id
ORDER BY edge.step, edge.needs;

-- list_items :many — the jobs of one step, in order
SELECT item.job_id, item.place, item.state, item.result FROM holdfast.workflow_item AS item
WHERE item.org_id = :org_id AND item.workflow_id = :id AND item.step = :step
ORDER BY item.place;

-- find_item :maybe — the step that a job belongs to
SELECT item.workflow_id, item.step, item.place, workflow.name, workflow.state
FROM holdfast.workflow_item AS item
JOIN holdfast.workflow AS workflow
  ON workflow.org_id = item.org_id AND workflow.id = item.workflow_id
WHERE item.org_id = :org_id AND item.job_id = :job_id;

-- list_needed :many — the steps that a step depends on
SELECT needed.step, needed.is_mapped FROM holdfast.workflow_step AS needed
WHERE needed.org_id = :org_id AND needed.workflow_id = :id
  AND needed.step IN (SELECT edge.needs FROM holdfast.workflow_edge AS edge
                      WHERE edge.org_id = :org_id AND edge.workflow_id = :id
                        AND edge.step = :step)
ORDER BY needed.place;

-- list_last :many — the steps that no other step depends on
SELECT step.step, step.is_mapped FROM holdfast.workflow_step AS step
WHERE step.org_id = :org_id AND step.workflow_id = :id
  AND NOT EXISTS (SELECT 1 FROM holdfast.workflow_edge AS edge
                  WHERE edge.org_id = :org_id AND edge.workflow_id = :id
                    AND edge.needs = step.step)
ORDER BY step.place;

-- list_results :many — the results of some steps, in the order of their items
-- One table and its key: a join without statistics took ten seconds for 10,000 items.
SELECT item.step, item.result FROM holdfast.workflow_item AS item
WHERE item.org_id = :org_id AND item.workflow_id = :id
  AND item.step IN (SELECT steps.step FROM {rows steps: step text})
ORDER BY item.step, item.place;

-- list_ended :many — crosses tenants: those of these workflows that have ended
SELECT workflow.org_id, workflow.id
FROM {rows jobs: org_id uuid, id uuid}
JOIN holdfast.workflow AS workflow
  ON workflow.org_id = jobs.org_id AND workflow.id = jobs.id
WHERE workflow.state <> 'running';

-- find_budgets :many — crosses tenants: the steps with a budget that these jobs belong to
SELECT jobs.job_id, item.org_id, item.workflow_id, item.step, step.budget_pico
FROM {rows jobs: org_id uuid, job_id uuid, first_id uuid}
JOIN holdfast.workflow_item AS item
  ON item.org_id = jobs.org_id AND item.job_id = jobs.first_id
JOIN holdfast.workflow_step AS step
  ON step.org_id = item.org_id AND step.workflow_id = item.workflow_id AND step.step = item.step
WHERE step.budget_pico IS NOT NULL;

-- set_budget :affected — change the budget of a step
UPDATE holdfast.workflow_step SET budget_pico = :budget_pico
WHERE org_id = :org_id AND workflow_id = :id AND step = :step;
