-- The invariants of the batch lane, I22 to I26, in the shape of lifecycle.sql. A batch holds many
-- tenants' items, so what is wrong with a batch itself is nobody's in particular.

-- find_unplaced :many — I22, crosses tenants: a submitted job that no batch under way has a place for
SELECT job.org_id, 'job:' || CAST(job.id AS text) AS subject,
       'it is submitted, and no batch under way has it' AS detail
FROM holdfast.job AS job
WHERE job.state = 'batch_submitted' AND (CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.batch_item AS item
                  JOIN holdfast.provider_batch AS batch ON batch.id = item.batch_id
                  WHERE item.org_id = job.org_id AND item.job_id = job.id AND item.is_open = 1
                    AND item.execution_mode = 'batch' AND item.lease_token = job.lease_token
                    AND batch.state IN ('submitted', 'ended', 'quarantined'));

-- find_strayed :many — I22, crosses tenants: an item that the provider may run, and its job is elsewhere
-- A job that was canceled meanwhile keeps its place until the answer is dropped. Whatever is open in
-- a batch that is over is I25's.
SELECT item.org_id,
       'item:' || CAST(item.batch_id AS text) || ':' || CAST(item.batch_item_index AS text)
           AS subject,
       'its batch is ' || batch.state || ', its job ' || coalesce(job.state, 'gone')
           || CASE WHEN job.lease_token <> item.lease_token THEN ' under another claim' ELSE '' END
           AS detail
FROM holdfast.batch_item AS item
JOIN holdfast.provider_batch AS batch ON batch.id = item.batch_id
LEFT JOIN holdfast.job_record AS job ON job.org_id = item.org_id AND job.id = item.job_id
WHERE item.is_open = 1 AND item.execution_mode = 'batch'
  AND (CAST(:org_id AS {uuid}) IS NULL OR item.org_id = :org_id)
  AND NOT CASE
      WHEN job.id IS NULL THEN FALSE
      WHEN job.lease_token <> item.lease_token THEN FALSE
      WHEN job.state = 'canceled' THEN TRUE
      WHEN batch.state IN ('prepared', 'uploaded', 'creating') THEN job.state = 'processing'
      WHEN batch.state IN ('submitted', 'ended') THEN job.state = 'batch_submitted'
      WHEN batch.state = 'quarantined' THEN job.state IN ('processing', 'batch_submitted')
      ELSE TRUE END;

-- find_renamed :many — I22, crosses tenants: a job keeps the batch that it was submitted to first
SELECT found.org_id, 'job:' || CAST(found.id AS text) AS subject,
       CASE WHEN found.told IS NULL THEN 'it names a batch that it was never submitted to'
            ELSE 'it names another batch than the first that it was submitted to' END AS detail
FROM (
    SELECT job.org_id, job.id, job.provider_batch_id, (
        SELECT {field(event.detail, provider_batch_id)} FROM holdfast.job_event AS event
        WHERE event.job_id = job.id AND event.org_id = job.org_id AND event.name = 'job.submitted'
        ORDER BY event.id
        LIMIT 1) AS told
    FROM holdfast.job_record AS job
    WHERE CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id
) AS found
WHERE found.told IS DISTINCT FROM found.provider_batch_id;

-- find_gaps :many — I23, crosses tenants: places that are not 0 to one less than there are items
-- What is past its retention goes a piece at a time.
SELECT CAST('00000000-0000-0000-0000-000000000000' AS {uuid}) AS org_id,
       'batch:' || CAST(batch.id AS text) AS subject,
       'it says ' || CAST(batch.items AS text) || ' items, and has '
           || CAST(coalesce(places.held, 0) AS text) || ', from '
           || coalesce(CAST(places.lowest AS text), 'none') || ' to '
           || coalesce(CAST(places.highest AS text), 'none') AS detail
FROM holdfast.provider_batch AS batch
LEFT JOIN (SELECT item.batch_id, count(*) AS held, min(item.batch_item_index) AS lowest,
                  max(item.batch_item_index) AS highest
           FROM holdfast.batch_item AS item
           GROUP BY item.batch_id) AS places ON places.batch_id = batch.id
WHERE (coalesce(places.held, 0) <> batch.items OR places.lowest <> 0
       OR places.highest <> batch.items - 1)
  AND (batch.state NOT IN ('collected', 'released')
       OR batch.updated_at > CAST(:kept_since AS {instant}));

-- list_names :many — I23, crosses tenants: what each item is called at the provider
SELECT CAST(item.batch_id AS text) AS batch_id, item.batch_item_index, item.org_id, item.custom_id
FROM holdfast.batch_item AS item
WHERE item.execution_mode = 'batch';

-- list_routes :many — I24, crosses tenants: the group of an item, of its batch, and what its job says
SELECT item.org_id,
       'item:' || CAST(item.batch_id AS text) || ':' || CAST(item.batch_item_index AS text)
           AS subject,
       item.group_key, batch.group_key AS batch_group, batch.execution_mode,
       CASE WHEN job.id IS NULL THEN 0 ELSE 1 END AS has_job,
       CAST(job.routing_decision AS text) AS routing_decision
FROM holdfast.batch_item AS item
JOIN holdfast.provider_batch AS batch ON batch.id = item.batch_id
LEFT JOIN holdfast.job_record AS job ON job.org_id = item.org_id AND job.id = item.job_id
WHERE CAST(:org_id AS {uuid}) IS NULL OR item.org_id = :org_id;

-- find_unresolved :many — I25, crosses tenants: an item without an outcome in a batch that is over
SELECT item.org_id,
       'item:' || CAST(item.batch_id AS text) || ':' || CAST(item.batch_item_index AS text)
           AS subject,
       'its batch is ' || batch.state || ', and nobody knows what became of it' AS detail
FROM holdfast.batch_item AS item
JOIN holdfast.provider_batch AS batch ON batch.id = item.batch_id
WHERE item.is_open = 1 AND batch.state IN ('collected', 'released')
  AND (CAST(:org_id AS {uuid}) IS NULL OR item.org_id = :org_id);

-- find_forgotten :many — I25, crosses tenants: an outcome that its job did not hear of
SELECT item.org_id,
       'item:' || CAST(item.batch_id AS text) || ':' || CAST(item.batch_item_index AS text)
           AS subject,
       'it is ' || item.state || ', and its job is still ' || job.state AS detail
FROM holdfast.batch_item AS item
JOIN holdfast.job AS job ON job.org_id = item.org_id AND job.id = item.job_id
WHERE item.is_open = 0 AND item.execution_mode = 'batch' AND job.lease_token = item.lease_token
  AND (job.state = 'batch_submitted' OR (item.state = 'succeeded' AND job.finished_at IS NULL))
  AND (CAST(:org_id AS {uuid}) IS NULL OR item.org_id = :org_id);

-- find_doubled :many — I26, crosses tenants: an execution unit that two open items have
SELECT found.org_id, 'unit:' || found.job_type AS subject,
       CAST(found.times AS text) || ' items of one execution unit may be run' AS detail
FROM (
    SELECT org_id, job_type, unit, count(*) AS times
    FROM holdfast.batch_item
    WHERE is_open = 1 AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
    GROUP BY org_id, job_type, unit
    HAVING count(*) > 1
) AS found;

-- find_shared_names :many — I26, crosses tenants: a provider's batch that two of ours claim to be
SELECT CAST('00000000-0000-0000-0000-000000000000' AS {uuid}) AS org_id,
       'batch:' || found.first_id AS subject,
       CAST(found.times AS text) || ' batches have the same id at the provider' AS detail
FROM (
    SELECT min(CAST(id AS text)) AS first_id, count(*) AS times
    FROM holdfast.provider_batch
    WHERE provider_batch_id IS NOT NULL
    GROUP BY account, provider_batch_id
    HAVING count(*) > 1
) AS found;
