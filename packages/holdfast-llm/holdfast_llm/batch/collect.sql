-- Statements of the collector. A batch holds items of many tenants, so the statements cross tenants
-- and say so. Each of them names the tenant of every row it writes.

-- request_cancel :affected — crosses tenants: stored before the provider is called
UPDATE holdfast.provider_batch
SET cancel_requested_at = coalesce(cancel_requested_at, {now}), updated_at = {now}
WHERE id = :id AND fence = :fence AND state = 'submitted';

-- end_batch :affected — crosses tenants: the provider has finished it; its results can be read
UPDATE holdfast.provider_batch
SET state = 'ended', ended_at = coalesce(ended_at, {now}), provider_status = :provider_status,
    result_files = CAST(:result_files AS {json}), counts = CAST(:counts AS {json}),
    error_class = :error_class, error_code = :error_code,
    rounds = CASE WHEN state = 'submitted' THEN 0 ELSE rounds END, updated_at = {now}
WHERE id = :id AND fence = :fence AND state IN ('submitted', 'ended');

-- close_batch :affected — crosses tenants: every item of it has ended
UPDATE holdfast.provider_batch AS batch
SET state = 'collected', collected_at = {now}, counts = CAST(:counts AS {json}), rounds = 0,
    updated_at = {now}
WHERE id = :id AND fence = :fence AND state = 'ended'
  AND NOT EXISTS (
      SELECT 1 FROM holdfast.batch_item AS item
      WHERE item.batch_id = batch.id AND item.is_open = 1);

-- forget_files :affected — crosses tenants: no file of it is left at the provider
UPDATE holdfast.provider_batch
SET files_deleted_at = {now}, lease_owner = NULL, lease_expires_at = NULL, updated_at = {now}
WHERE id = :id AND fence = :fence AND state IN ('collected', 'released');

-- items :fragment — the columns of items, and of the jobs that still wait for them
SELECT item.batch_item_index, item.custom_id, item.state, item.result_hash, item.echo,
       item.schema_hash, item.org_id, item.job_id, item.job_type, item.attempt, item.group_key,
       item.error_code,
       asked.id, asked.org_id, asked.project_id, asked.job_type, asked.category, asked.actor_type,
       asked.actor_id, coalesce(asked.request_id, CAST(asked.id AS text)) AS request_id,
       coalesce(asked.correlation_id, asked.request_id, CAST(asked.id AS text)) AS correlation_id,
       coalesce(asked.idempotency_key,
                asked.job_type || ':' || CAST(asked.org_id AS text) || ':'
                || coalesce(CAST(asked.project_id AS text), '') || ':'
                || replace(CAST(asked.id AS text), '-', '')) AS idempotency_key,
       asked.payload, asked.priority, asked.unit_key, asked.scheduled_for, asked.traceparent,
       asked.routing_decision, asked.replay_of, asked.created_at, held.queue, held.stage,
       coalesce(attempt.pipeline_version, asked.pipeline_version) AS pipeline_version,
       coalesce(attempt.attempt_count, 0) AS attempt_count,
       coalesce(attempt.max_attempts, asked.max_attempts) AS max_attempts, held.lease_token,
       NULL AS claimed_at, NULL AS claimed_by,
       (SELECT cancel.requested_at FROM holdfast.job_cancel AS cancel
        WHERE cancel.org_id = asked.org_id AND cancel.job_id = asked.id) AS cancel_requested_at,
       attempt.first_failed_at, coalesce(asked.turn, asked.id) AS turn, asked.limit_key,
       'batch_submitted' AS state

-- find_items :many bulk — crosses tenants: the items of these answers, and the jobs that still wait for them
-- CROSS JOIN makes SQLite start with the answers; it would read the whole batch for each of them. It
-- reads every job for a LEFT JOIN of the view job, so the tables are joined.
{use items}
FROM {rows answers: place integer, custom_id text}
CROSS JOIN holdfast.batch_item AS item
LEFT JOIN holdfast.job_submitted AS held
  ON item.is_open = 1 AND {same(held.org_id, item.org_id)} AND {same(held.job_id, item.job_id)}
 AND held.lease_token = item.lease_token
LEFT JOIN holdfast.job_envelope AS asked
  ON {same(asked.org_id, held.org_id)} AND {same(asked.id, held.job_id)}
{last_attempt attempt: asked.org_id, asked.id}
WHERE item.batch_id = :batch_id AND item.batch_item_index = answers.place
  AND item.custom_id = answers.custom_id;

-- list_open :many — crosses tenants: items without a line, page by page
-- The page first, then its jobs (Tx.read_in_order): PostgreSQL would look up the jobs of all items.
WITH page AS MATERIALIZED (
    SELECT batch_item_index, custom_id, state, result_hash, echo, schema_hash, org_id, job_id,
           job_type, attempt, group_key, error_code, lease_token
    FROM holdfast.batch_item
    WHERE batch_id = :batch_id AND is_open = 1 AND batch_item_index > :after
    ORDER BY batch_item_index
    LIMIT :limit
)
{use items}
FROM page AS item
LEFT JOIN holdfast.job_submitted AS held
  ON {same(held.org_id, item.org_id)} AND {same(held.job_id, item.job_id)}
 AND held.lease_token = item.lease_token
LEFT JOIN holdfast.job_envelope AS asked
  ON {same(asked.org_id, held.org_id)} AND {same(asked.id, held.job_id)}
{last_attempt attempt: asked.org_id, asked.id}
ORDER BY item.batch_item_index;

-- find_lines :many — crosses tenants: the items of these input lines, counted from 1
-- In the order in which content.py sends them.
SELECT sent.batch_item_index
FROM (
    SELECT batch_item_index,
           row_number() OVER (ORDER BY group_key, batch_item_index) AS line
    FROM holdfast.batch_item
    WHERE batch_id = :batch_id AND submitted_at IS NOT NULL
) AS sent
WHERE sent.line IN (SELECT named.line FROM {rows named: line integer});

-- has_open :one — crosses tenants: whether an item of the batch is still open
SELECT count(*) AS items FROM (
    SELECT 1 AS found FROM holdfast.batch_item
    WHERE batch_id = :batch_id AND is_open = 1 LIMIT 1) AS open_items;

-- has_known :one — crosses tenants: whether an open item has one of these job types
SELECT count(*) AS items FROM (
    SELECT 1 AS found FROM holdfast.batch_item
    WHERE batch_id = :batch_id AND is_open = 1
      AND job_type IN (SELECT known.job_type FROM {rows known: job_type text})
    LIMIT 1) AS known_items;

-- record_items :many bulk — crosses tenants: outcomes of items, once each
-- The batch is in every row; otherwise SQLite would read the whole batch for each. The sum keeps
-- PostgreSQL from reading all open items to find 500: it took 3.5 ms for 5,000 of them.
UPDATE holdfast.batch_item AS item
SET state = ends.state, is_open = 0, result_hash = ends.result_hash,
    error_class = ends.error_class, error_code = ends.error_code,
    provider_request_id = ends.provider_request_id, finished_at = ends.finished_at,
    recorded_at = {now}
FROM {rows ends: batch uuid, place integer, state text, result_hash text, error_class text,
      error_code text, provider_request_id text, finished_at instant}
WHERE item.batch_id = ends.batch AND item.batch_item_index = ends.place
  AND item.is_open + 0 = 1
RETURNING batch_item_index;

-- mark_conflicts :many — crosses tenants: a second answer differs from the recorded one
UPDATE holdfast.batch_item AS item
SET state = 'conflict', error_code = 'conflicting_result'
FROM {rows ends: batch uuid, place integer}
WHERE item.batch_id = ends.batch AND item.batch_item_index = ends.place
  AND item.state IN ('succeeded', 'failed')
RETURNING batch_item_index;

-- keep_answers :affected — crosses tenants: raw lines of paid answers whose results are not committed
INSERT INTO holdfast.batch_answer
    (batch_id, batch_item_index, org_id, job_id, job_type, line, error_class, kept_at, expires_at)
SELECT kept.batch, kept.place, kept.org_id, kept.job_id, kept.job_type, kept.line,
       kept.error_class, {now}, {later(:keep_ms)}
FROM {rows kept: batch uuid, place integer, org_id uuid, job_id uuid, job_type text, line text,
      error_class text}
WHERE TRUE
ON CONFLICT (org_id, batch_id, batch_item_index) DO UPDATE SET error_class = excluded.error_class;

-- mark_held :affected — crosses tenants: items whose answers wait for a code change of the application
UPDATE holdfast.batch_item AS item
SET error_class = held.error_class, error_code = held.error_code
FROM {rows held: batch uuid, place integer, error_class text, error_code text}
WHERE item.batch_id = held.batch AND item.batch_item_index = held.place
  AND item.is_open + 0 = 1;

-- count_kept :many — crosses tenants: kept answers that match a filter, by reason
SELECT answer.job_type, answer.error_class, count(*) AS answers,
       count(DISTINCT answer.batch_id) AS batches
FROM holdfast.batch_answer AS answer
JOIN holdfast.provider_batch AS batch ON batch.id = answer.batch_id
WHERE (CAST(:batch_id AS {uuid}) IS NULL OR answer.batch_id = :batch_id)
  AND (CAST(:job_id AS {uuid}) IS NULL OR answer.job_id = :job_id)
  AND (CAST(:org_id AS {uuid}) IS NULL OR answer.org_id = :org_id)
  AND (CAST(:job_type AS text) IS NULL OR answer.job_type = :job_type)
  AND (CAST(:error_class AS text) IS NULL OR answer.error_class = :error_class)
  AND (CAST(:provider AS text) IS NULL OR batch.provider = :provider)
GROUP BY answer.job_type, answer.error_class
ORDER BY answer.job_type, answer.error_class;

-- list_kept_batches :many — crosses tenants: batches with kept answers that match a filter
SELECT DISTINCT answer.batch_id
FROM holdfast.batch_answer AS answer
JOIN holdfast.provider_batch AS batch ON batch.id = answer.batch_id
WHERE answer.batch_id > :after
  AND (CAST(:batch_id AS {uuid}) IS NULL OR answer.batch_id = :batch_id)
  AND (CAST(:job_id AS {uuid}) IS NULL OR answer.job_id = :job_id)
  AND (CAST(:org_id AS {uuid}) IS NULL OR answer.org_id = :org_id)
  AND (CAST(:job_type AS text) IS NULL OR answer.job_type = :job_type)
  AND (CAST(:error_class AS text) IS NULL OR answer.error_class = :error_class)
  AND (CAST(:provider AS text) IS NULL OR batch.provider = :provider)
ORDER BY answer.batch_id
LIMIT :limit;

-- list_kept :many — crosses tenants: kept answers of one batch, page by page
SELECT answer.batch_item_index, answer.line
FROM holdfast.batch_answer AS answer
WHERE answer.batch_id = :id AND answer.batch_item_index > :place
  AND (CAST(:job_id AS {uuid}) IS NULL OR answer.job_id = :job_id)
  AND (CAST(:org_id AS {uuid}) IS NULL OR answer.org_id = :org_id)
  AND (CAST(:job_type AS text) IS NULL OR answer.job_type = :job_type)
  AND (CAST(:error_class AS text) IS NULL OR answer.error_class = :error_class)
ORDER BY answer.batch_item_index
LIMIT :limit;

-- leave_held :affected — crosses tenants: return the lease; the collector closes a batch without open items
UPDATE holdfast.provider_batch AS batch
SET lease_owner = NULL, lease_expires_at = NULL, updated_at = {now},
    next_at = CASE WHEN state = 'ended' OR (provider_batch_id IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM holdfast.batch_item AS item
        WHERE item.batch_id = batch.id AND item.is_open = 1)) THEN {now} ELSE next_at END,
    state = CASE WHEN state = 'ended' OR (provider_batch_id IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM holdfast.batch_item AS item
        WHERE item.batch_id = batch.id AND item.is_open = 1)) THEN 'ended' ELSE state END
WHERE id = :id AND fence = :fence AND state IN ('quarantined', 'ended');
