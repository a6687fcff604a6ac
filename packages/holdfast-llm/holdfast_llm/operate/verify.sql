-- Invariants I22 to I26 of batch processing, in the form of lifecycle.sql. A batch holds items of
-- many tenants, so a violation of the batch itself has no tenant.

-- find_unplaced :many — I22, crosses tenants: a submitted job without a place in an open batch
SELECT submitted.org_id, 'job:' || CAST(submitted.job_id AS text) AS subject,
       'it is submitted, but no open batch contains it' AS detail
FROM holdfast.job_submitted AS submitted
WHERE (CAST(:org_id AS {uuid}) IS NULL OR submitted.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.batch_item AS item
                  JOIN holdfast.provider_batch AS batch ON batch.id = item.batch_id
                  WHERE item.org_id = submitted.org_id AND item.job_id = submitted.job_id
                    AND item.is_open = 1 AND item.execution_mode = 'batch'
                    AND item.lease_token = submitted.lease_token
                    AND batch.state IN ('submitted', 'ended', 'quarantined'));

-- find_strayed :many — I22, crosses tenants: an open item whose job is not submitted with it
-- A job that was canceled since keeps its place until the answer is dropped. Open items of an ended
-- batch belong to I25.
SELECT found.org_id, found.subject,
       'its batch is ' || found.batch_state || ', its job ' || coalesce(found.state, 'missing')
           || CASE WHEN found.lease_token <> found.item_token THEN ' under another claim' ELSE '' END
           AS detail
FROM (
    SELECT item.org_id,
           'item:' || CAST(item.batch_id AS text) || ':' || CAST(item.batch_item_index AS text)
               AS subject,
           batch.state AS batch_state, item.lease_token AS item_token,
           (SELECT job.state FROM holdfast.job AS job
            WHERE job.org_id = item.org_id AND job.id = item.job_id) AS state,
           (SELECT job.lease_token FROM holdfast.job AS job
            WHERE job.org_id = item.org_id AND job.id = item.job_id) AS lease_token
    FROM holdfast.batch_item AS item
    JOIN holdfast.provider_batch AS batch ON batch.id = item.batch_id
    WHERE item.is_open = 1 AND item.execution_mode = 'batch'
      AND (CAST(:org_id AS {uuid}) IS NULL OR item.org_id = :org_id)
) AS found
WHERE NOT CASE
      WHEN found.state IS NULL THEN FALSE
      WHEN found.lease_token <> found.item_token THEN FALSE
      WHEN found.state = 'canceled' THEN TRUE
      WHEN found.batch_state IN ('prepared', 'uploaded', 'creating')
          THEN found.state = 'processing'
      WHEN found.batch_state IN ('submitted', 'ended') THEN found.state = 'batch_submitted'
      WHEN found.batch_state = 'quarantined'
          THEN found.state IN ('processing', 'batch_submitted')
      ELSE TRUE END;

-- find_renamed :many — I22, crosses tenants: a job keeps the batch that it was first submitted to
SELECT found.org_id, 'job:' || CAST(found.id AS text) AS subject,
       CASE WHEN found.told IS NULL THEN 'it refers to a batch that it was never submitted to'
            ELSE 'it refers to another batch than the first that it was submitted to' END AS detail
FROM (
    SELECT job.org_id, job.id, job.provider_batch_id, (
        SELECT {field(event.detail, provider_batch_id)} FROM holdfast.audit_event AS event
        WHERE event.jobs IS NULL AND event.job_id = job.id AND event.org_id = job.org_id
          AND event.name = 'job.submitted'
        ORDER BY event.id
        LIMIT 1) AS told
    FROM holdfast.job AS job
    WHERE CAST(:org_id AS {uuid}) IS NULL OR job.org_id = :org_id
) AS found
WHERE found.told IS DISTINCT FROM found.provider_batch_id;

-- find_gaps :many — I23, crosses tenants: places that are not consecutive from 0
-- Expired items are deleted in pieces.
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

-- list_names :many — I23, crosses tenants: the custom id of each item
SELECT CAST(item.batch_id AS text) AS batch_id, item.batch_item_index, item.org_id, item.custom_id
FROM holdfast.batch_item AS item
WHERE item.execution_mode = 'batch';

-- list_routes :many — I24, crosses tenants: the groups of an item, of its batch and of its job's route
SELECT item.org_id,
       'item:' || CAST(item.batch_id AS text) || ':' || CAST(item.batch_item_index AS text)
           AS subject,
       item.group_key, batch.group_key AS batch_group, batch.execution_mode,
       CASE WHEN job.id IS NULL THEN 0 ELSE 1 END AS has_job,
       CAST(job.routing_decision AS text) AS routing_decision
FROM holdfast.batch_item AS item
JOIN holdfast.provider_batch AS batch ON batch.id = item.batch_id
LEFT JOIN holdfast.job_envelope AS job ON job.org_id = item.org_id AND job.id = item.job_id
WHERE CAST(:org_id AS {uuid}) IS NULL OR item.org_id = :org_id;

-- find_unresolved :many — I25, crosses tenants: an item without an outcome in an ended batch
SELECT item.org_id,
       'item:' || CAST(item.batch_id AS text) || ':' || CAST(item.batch_item_index AS text)
           AS subject,
       'its batch is ' || batch.state || ', and its outcome is unknown' AS detail
FROM holdfast.batch_item AS item
JOIN holdfast.provider_batch AS batch ON batch.id = item.batch_id
WHERE item.is_open = 1 AND batch.state IN ('collected', 'released')
  AND (CAST(:org_id AS {uuid}) IS NULL OR item.org_id = :org_id);

-- find_forgotten :many — I25, crosses tenants: an outcome that its job did not receive
SELECT item.org_id,
       'item:' || CAST(item.batch_id AS text) || ':' || CAST(item.batch_item_index AS text)
           AS subject,
       'it is ' || item.state || ', and its job is still ' || job.state AS detail
FROM holdfast.batch_item AS item
JOIN holdfast.job AS job ON job.org_id = item.org_id AND job.id = item.job_id
WHERE item.is_open = 0 AND item.execution_mode = 'batch' AND job.lease_token = item.lease_token
  AND (job.state = 'batch_submitted' OR (item.state = 'succeeded' AND job.finished_at IS NULL))
  AND (CAST(:org_id AS {uuid}) IS NULL OR item.org_id = :org_id);

-- find_doubled :many — I26, crosses tenants: an execution unit with two open items
SELECT found.org_id, 'unit:' || found.job_type AS subject,
       CAST(found.times AS text) || ' items of one execution unit can be executed' AS detail
FROM (
    SELECT org_id, job_type, unit, count(*) AS times
    FROM holdfast.batch_item
    WHERE is_open = 1 AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
    GROUP BY org_id, job_type, unit
    HAVING count(*) > 1
) AS found;

-- find_shared_names :many — I26, crosses tenants: a provider batch that two rows name
SELECT CAST('00000000-0000-0000-0000-000000000000' AS {uuid}) AS org_id,
       'batch:' || found.first_id AS subject,
       CAST(found.times AS text) || ' batches have the same provider batch id' AS detail
FROM (
    SELECT min(CAST(id AS text)) AS first_id, count(*) AS times
    FROM holdfast.provider_batch
    WHERE provider_batch_id IS NOT NULL
    GROUP BY account, provider_batch_id
    HAVING count(*) > 1
) AS found;

-- find_unbooked :many — I37, crosses tenants: an answer that is not in the ledger
SELECT item.org_id,
       'item:' || CAST(item.batch_id AS text) || ':' || CAST(item.batch_item_index AS text)
           AS subject,
       'it was answered without a ledger entry' AS detail
FROM holdfast.batch_item AS item
WHERE item.state = 'succeeded' AND (CAST(:org_id AS {uuid}) IS NULL OR item.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.provider_call AS call
                  WHERE call.org_id = item.org_id AND call.batch_id = item.batch_id
                    AND call.batch_item_index = item.batch_item_index);

-- find_changed_items :many — I49, crosses tenants: a submitted item is unchanged
-- The event names the claim, which has one item. An item that was not submitted has no event.
SELECT item.org_id,
       'item:' || CAST(item.batch_id AS text) || '/' || CAST(item.batch_item_index AS text)
           AS subject,
       'it is not what event ' || CAST(event.id AS text) || ' says was handed over' AS detail
FROM holdfast.audit_event AS event
CROSS JOIN holdfast.batch_item AS item
WHERE event.name = 'job.submitted'
  AND substr(coalesce(event.digest, ''), 34, 32) <> ''
  AND item.org_id = event.org_id AND item.job_id = event.job_id
  AND CAST(item.lease_token AS text) = CAST({field(event.detail, lease_token)} AS text)
  AND (CAST(:org_id AS {uuid}) IS NULL OR event.org_id = :org_id)
  AND substr(event.digest, 34, 32) <> {digest item item};

-- find_renamed_batches :many — I49, crosses tenants: a batch has the id under which it was submitted
SELECT DISTINCT event.org_id, 'batch:' || CAST(batch.id AS text) AS subject,
       'its custom id differs from the submitted one' AS detail
FROM holdfast.audit_event AS event
CROSS JOIN holdfast.batch_item AS item
JOIN holdfast.provider_batch AS batch ON batch.id = item.batch_id
WHERE event.name = 'job.submitted' AND item.org_id = event.org_id AND item.job_id = event.job_id
  AND CAST(item.lease_token AS text) = CAST({field(event.detail, lease_token)} AS text)
  AND (CAST(:org_id AS {uuid}) IS NULL OR event.org_id = :org_id)
  AND batch.provider_batch_id IS DISTINCT FROM {field(event.detail, provider_batch_id)};

-- find_denied_items :many — I49, crosses tenants: an item without an answer whose job completed with it
SELECT item.org_id,
       'item:' || CAST(item.batch_id AS text) || '/' || CAST(item.batch_item_index AS text)
           AS subject,
       'it is ' || item.state || ', and its job completed with its answer' AS detail
FROM holdfast.batch_item AS item
JOIN holdfast.job_outcome AS outcome
  ON outcome.org_id = item.org_id AND outcome.job_id = item.job_id
 AND outcome.lease_token = item.lease_token
WHERE outcome.state = 'completed' AND item.state IN ('failed', 'not_run', 'missing')
  AND (CAST(:org_id AS {uuid}) IS NULL OR item.org_id = :org_id);

-- find_unknown_items :many — I49, crosses tenants: an item of a job that neither is stored nor was pruned
SELECT item.org_id,
       'item:' || CAST(item.batch_id AS text) || '/' || CAST(item.batch_item_index AS text)
           AS subject,
       'its job was never enqueued' AS detail
FROM holdfast.batch_item AS item
WHERE (CAST(:org_id AS {uuid}) IS NULL OR item.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_envelope AS job
                  WHERE job.org_id = item.org_id AND job.id = item.job_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_remainder AS gone
                  WHERE gone.org_id = item.org_id AND gone.job_id = item.job_id);

-- list_answers :many — I31, crosses tenants: the stored codes of providers' answers
SELECT org_id,
       'item:' || CAST(batch_id AS text) || ':' || CAST(batch_item_index AS text) AS subject,
       coalesce(error_class, '') || ' ' || coalesce(error_code, '') || ' '
           || coalesce(provider_request_id, '') AS words,
       NULL AS document
FROM holdfast.batch_item
WHERE CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id
UNION ALL
SELECT org_id, 'call:' || CAST(batch_id AS text) || ':' || CAST(batch_item_index AS text),
       account || ' ' || coalesce(model_billed, '') || ' ' || coalesce(provider_request_id, ''),
       NULL
FROM holdfast.provider_call
WHERE CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id
UNION ALL
SELECT CAST('00000000-0000-0000-0000-000000000000' AS {uuid}), 'account:' || account,
       error_code, NULL
FROM holdfast.provider_account
WHERE CAST(:org_id AS {uuid}) IS NULL
UNION ALL
SELECT CAST('00000000-0000-0000-0000-000000000000' AS {uuid}), 'batch:' || CAST(id AS text),
       coalesce(error_class, '') || ' ' || coalesce(error_code, '') || ' '
           || coalesce(provider_status, ''),
       CAST(counts AS text)
FROM holdfast.provider_batch
WHERE CAST(:org_id AS {uuid}) IS NULL;

-- find_stale :many — I5, crosses tenants: an expired claim in no batch that was not rescued
SELECT running.org_id, 'job:' || CAST(running.job_id AS text) AS subject,
       'its expired lease was not rescued; it was claimed by ' || running.claimed_by AS detail
FROM holdfast.job_running AS running
WHERE running.lease_expires_at < CAST(:stale_since AS {instant}) AND running.limit_key = '~batch'
  AND NOT EXISTS (SELECT 1 FROM holdfast.batch_item AS item
                  WHERE item.org_id = running.org_id AND item.job_id = running.job_id
                    AND item.is_open = 1 AND item.execution_mode = 'batch')
  AND (CAST(:org_id AS {uuid}) IS NULL OR running.org_id = :org_id);

-- find_foreign_parts :many — I29, crosses tenants: rows that name a job of another tenant, or no batch
SELECT part.org_id, part.subject, 'it refers to a job of another tenant' AS detail
FROM (
    SELECT org_id, job_id,
           'item:' || CAST(batch_id AS text) || ':' || CAST(batch_item_index AS text) AS subject
    FROM holdfast.batch_item
    UNION ALL
    SELECT org_id, job_id,
           'call:' || CAST(batch_id AS text) || ':' || CAST(batch_item_index AS text)
    FROM holdfast.provider_call WHERE job_id IS NOT NULL
) AS part
JOIN (
    SELECT org_id, id AS job_id FROM holdfast.job_envelope
    UNION ALL
    SELECT org_id, job_id FROM holdfast.job_remainder
) AS made ON made.job_id = part.job_id AND made.org_id <> part.org_id
WHERE (CAST(:org_id AS {uuid}) IS NULL OR part.org_id = :org_id)
UNION ALL
SELECT item.org_id,
       'item:' || CAST(item.batch_id AS text) || ':' || CAST(item.batch_item_index AS text),
       'its batch does not exist'
FROM holdfast.batch_item AS item
WHERE (CAST(:org_id AS {uuid}) IS NULL OR item.org_id = :org_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.provider_batch AS batch WHERE batch.id = item.batch_id);

-- find_ahead :many — I36, crosses tenants: a timestamp in the future
SELECT found.org_id, found.subject, 'one of its timestamps is in the future' AS detail
FROM (
    SELECT org_id,
           'item:' || CAST(batch_id AS text) || ':' || CAST(batch_item_index AS text) AS subject,
           submitted_at AS one, recorded_at AS other
    FROM holdfast.batch_item
    UNION ALL
    SELECT org_id, 'call:' || CAST(batch_id AS text) || ':' || CAST(batch_item_index AS text),
           recorded_at, NULL
    FROM holdfast.provider_call
    UNION ALL
    SELECT CAST('00000000-0000-0000-0000-000000000000' AS {uuid}), 'batch:' || CAST(id AS text),
           updated_at, creating_at
    FROM holdfast.provider_batch
) AS found
WHERE (found.one > CAST(:ahead AS {instant}) OR found.other > CAST(:ahead AS {instant}))
  AND (CAST(:org_id AS {uuid}) IS NULL OR found.org_id = :org_id);
