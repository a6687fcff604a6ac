-- The statement that enqueues the jobs of released steps. The databases build objects differently.

-- insert_released :affected — crosses tenants: enqueue the jobs of released steps
-- The key is unique, so that a step is never enqueued twice. The results of dependencies become
-- arguments. SQLite builds the object again, because json_patch would drop null values.
INSERT INTO holdfast.job_envelope
    (id, org_id, project_id, job_type, category, actor_type, actor_id, request_id, correlation_id,
     idempotency_key, payload, payload_hash, priority, limit_key, turn, traceparent,
     routing_decision, origin_queue, queue, stage, pipeline_version, max_attempts, not_before_at,
     created_at, event_id)
SELECT item.job_id, item.org_id,
       CAST({field(step.request, project_id)} AS {uuid}),
       step.job_type,
       {field(step.request, category)}, {field(step.request, actor_type)},
       {field(step.request, actor_id)},
       {field(step.request, request_id)},
       coalesce({field(step.request, correlation_id)}, {field(step.request, request_id)},
                CAST(item.workflow_id AS text)),
       item.idempotency_key,
       (SELECT json_group_object(given.argument, json(given.result)) FROM (
            SELECT own.key AS argument, item.payload -> own.fullkey AS result
            FROM json_each(item.payload) AS own
            UNION ALL
            SELECT edge.argument, CASE WHEN needed.is_mapped = 1
                       THEN (SELECT json_group_array(json(coalesce(done.result, 'null'))) FROM (
                                 SELECT done.result FROM holdfast.workflow_item AS done
                                 WHERE done.org_id = edge.org_id
                                   AND done.workflow_id = edge.workflow_id
                                   AND done.step = edge.needs
                                 ORDER BY done.place) AS done)
                       ELSE (SELECT coalesce(done.result, 'null')
                             FROM holdfast.workflow_item AS done
                             WHERE done.org_id = edge.org_id
                               AND done.workflow_id = edge.workflow_id
                               AND done.step = edge.needs AND done.place = 0) END
            FROM holdfast.workflow_edge AS edge
            JOIN holdfast.workflow_step AS needed
              ON needed.org_id = edge.org_id AND needed.workflow_id = edge.workflow_id
                 AND needed.step = edge.needs
            WHERE edge.org_id = step.org_id AND edge.workflow_id = step.workflow_id
              AND edge.step = step.step AND edge.argument <> '') AS given),
       item.payload_hash, CAST({field(step.request, priority)} AS integer),
       {field(step.request, limit_key)}, item.turn,
       {field(step.request, traceparent)},
       CAST({field(step.request, routing_decision)} AS {json}),
       {field(step.request, origin_queue)},
       nullif({field(step.request, queue)}, {field(step.request, origin_queue)}),
       {field(step.request, stage)}, {field(step.request, pipeline_version)},
       CAST({field(step.request, max_attempts)} AS integer),
       CASE WHEN step.delay_ms IS NULL THEN CAST({field(step.request, not_before_at)} AS {instant})
            ELSE {later(step.delay_ms)} END,
       {now}, {next_event}
FROM holdfast.workflow_step AS step
JOIN holdfast.workflow_item AS item
  ON item.org_id = step.org_id AND item.workflow_id = step.workflow_id AND item.step = step.step
WHERE step.state = 'released'
  AND (step.org_id, step.workflow_id) IN (
        SELECT jobs.org_id, jobs.workflow_id FROM {rows jobs: org_id uuid, workflow_id uuid})
ORDER BY item.place;
