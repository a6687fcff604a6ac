-- The invariants of workflows. Each statement selects violations: org_id, subject and detail.

-- find_early :many — I51, crosses tenants: steps that were released before their dependencies ended
SELECT step.org_id, 'workflow:' || CAST(step.workflow_id AS text) AS subject,
       'step ' || step.step || ' is ' || step.state || ', and ' || needed.step || ' is '
       || needed.state AS detail
FROM holdfast.workflow_step AS step
JOIN holdfast.workflow_edge AS edge
  ON edge.org_id = step.org_id AND edge.workflow_id = step.workflow_id AND edge.step = step.step
JOIN holdfast.workflow_step AS needed
  ON needed.org_id = edge.org_id AND needed.workflow_id = edge.workflow_id
     AND needed.step = edge.needs
WHERE step.state NOT IN ('waiting', 'canceled') AND needed.state <> 'completed'
  AND (CAST(:org_id AS {uuid}) IS NULL OR step.org_id = :org_id);

-- find_early_jobs :many — I51, crosses tenants: jobs of steps that were not released
SELECT item.org_id, 'job:' || CAST(item.job_id AS text) AS subject,
       'step ' || step.step || ' has a job and was not released' AS detail
FROM holdfast.workflow_step AS step
JOIN holdfast.workflow_item AS item
  ON item.org_id = step.org_id AND item.workflow_id = step.workflow_id AND item.step = step.step
JOIN holdfast.job_envelope AS job ON job.org_id = item.org_id AND job.id = item.job_id
WHERE step.released_at IS NULL AND (CAST(:org_id AS {uuid}) IS NULL OR step.org_id = :org_id);

-- find_twice :many — I52, crosses tenants: two jobs for one place of a step
SELECT item.org_id, 'job:' || CAST(job.id AS text) AS subject,
       'step ' || item.step || ' has another job for the same place' AS detail
FROM holdfast.workflow_item AS item
JOIN holdfast.job_envelope AS job
  ON job.org_id = item.org_id AND job.idempotency_key = item.idempotency_key
     AND job.id <> item.job_id
WHERE CAST(:org_id AS {uuid}) IS NULL OR item.org_id = :org_id;

-- find_missing :many — I52, crosses tenants: released steps without a job
SELECT item.org_id, 'workflow:' || CAST(item.workflow_id AS text) AS subject,
       'job ' || CAST(item.job_id AS text) || ' of step ' || item.step || ' does not exist'
       AS detail
FROM holdfast.workflow_step AS step
JOIN holdfast.workflow_item AS item
  ON item.org_id = step.org_id AND item.workflow_id = step.workflow_id AND item.step = step.step
     AND item.state = 'waiting'
LEFT JOIN holdfast.job_envelope AS job ON job.org_id = item.org_id AND job.id = item.job_id
WHERE step.released_at IS NOT NULL AND job.id IS NULL
  AND (CAST(:org_id AS {uuid}) IS NULL OR step.org_id = :org_id);

-- find_miscounted :many — I53, crosses tenants: counters that differ from the items
SELECT step.org_id, 'workflow:' || CAST(step.workflow_id AS text) AS subject,
       'the counters of step ' || step.step || ' differ from its jobs' AS detail
FROM holdfast.workflow_step AS step
JOIN (SELECT item.org_id, item.workflow_id, item.step, count(*) AS items,
             sum(CASE WHEN item.state = 'waiting' THEN 1 ELSE 0 END) AS left_over,
             sum(CASE WHEN item.state IN ('failed', 'canceled') THEN 1 ELSE 0 END) AS failed
      FROM holdfast.workflow_item AS item
      WHERE CAST(:org_id AS {uuid}) IS NULL OR item.org_id = :org_id
      GROUP BY item.org_id, item.workflow_id, item.step) AS counted
  ON counted.org_id = step.org_id AND counted.workflow_id = step.workflow_id
     AND counted.step = step.step
WHERE counted.items <> step.item_count OR counted.left_over <> step.items_left
   OR counted.failed <> step.items_failed;

-- find_stuck_items :many — I53, crosses tenants: ended jobs whose end the workflow missed
SELECT item.org_id, 'job:' || CAST(item.job_id AS text) AS subject,
       'it is ' || outcome.state || ', and step ' || item.step || ' waits for it' AS detail
FROM holdfast.workflow_item AS item
JOIN holdfast.job_outcome AS outcome
  ON outcome.org_id = item.org_id AND outcome.job_id = item.job_id
WHERE item.state = 'waiting'
  AND (CAST(:org_id AS {uuid}) IS NULL OR item.org_id = :org_id)
  AND NOT EXISTS (
        SELECT 1 FROM holdfast.dead_letter_replay AS made
        JOIN holdfast.job_envelope AS replay
          ON replay.org_id = made.org_id AND replay.id = made.replay_job_id
        WHERE made.org_id = outcome.org_id AND made.job_id = outcome.job_id
          AND NOT EXISTS (SELECT 1 FROM holdfast.job_outcome AS ended
                          WHERE ended.org_id = replay.org_id AND ended.job_id = replay.id));

-- find_stuck :many — I54, crosses tenants: running workflows in which nothing can happen
SELECT workflow.org_id, 'workflow:' || CAST(workflow.id AS text) AS subject,
       'it is running, and none of its steps is' AS detail
FROM holdfast.workflow AS workflow
WHERE workflow.state = 'running' AND (CAST(:org_id AS {uuid}) IS NULL OR workflow.org_id = :org_id)
  AND NOT EXISTS (
        SELECT 1 FROM holdfast.workflow_step AS step
        WHERE step.org_id = workflow.org_id AND step.workflow_id = workflow.id
          AND step.state = 'running');

-- find_unreleased :many — I54, crosses tenants: waiting steps whose dependencies have completed
SELECT step.org_id, 'workflow:' || CAST(step.workflow_id AS text) AS subject,
       'step ' || step.step || ' waits, and all its dependencies have completed' AS detail
FROM holdfast.workflow_step AS step
JOIN holdfast.workflow AS workflow
  ON workflow.org_id = step.org_id AND workflow.id = step.workflow_id
     AND workflow.state = 'running'
WHERE step.state IN ('waiting', 'released')
  AND (CAST(:org_id AS {uuid}) IS NULL OR step.org_id = :org_id)
  AND NOT EXISTS (
        SELECT 1 FROM holdfast.workflow_edge AS edge
        JOIN holdfast.workflow_step AS needed
          ON needed.org_id = edge.org_id AND needed.workflow_id = edge.workflow_id
             AND needed.step = edge.needs
        WHERE edge.org_id = step.org_id AND edge.workflow_id = step.workflow_id
          AND edge.step = step.step AND needed.state <> 'completed');

-- find_asleep :many — I55, crosses tenants: jobs that are deferred although their event arrived
SELECT held.org_id, 'job:' || CAST(waiting.job_id AS text) AS subject,
       'the event ' || held.name || ' has arrived, and the job is deferred' AS detail
FROM holdfast.job_wait AS held
JOIN holdfast.job_waiting AS waiting
  ON waiting.org_id = held.org_id AND waiting.job_id = held.job_id
{last_attempt last: held.org_id, held.job_id}
WHERE held.state = 'received' AND held.is_read = 0 AND coalesce(last.attempt_count, 0) = 0
  AND waiting.not_before_at > CAST(:ahead AS {instant})
  AND (CAST(:org_id AS {uuid}) IS NULL OR held.org_id = :org_id);
