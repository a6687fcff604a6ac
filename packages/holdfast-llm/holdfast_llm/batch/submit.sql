-- Statements of the submitter. A batch holds items of many tenants, so the statements cross tenants
-- and say so. Each of them names the tenant of every row it writes.

-- sum_reserves :many — crosses tenants: the tokens that open batches of these accounts use
SELECT batch.account, batch.model, sum(batch.input_tokens) AS input_tokens
FROM holdfast.provider_batch AS batch
WHERE batch.state IN ('prepared', 'uploaded', 'creating', 'submitted')
  AND batch.account IN (SELECT accounts.account FROM {rows accounts: account text})
GROUP BY batch.account, batch.model;

-- find_open_units :many bulk — crosses tenants: the open item of each unit, and when its job was to be canceled
-- Subqueries, because PostgreSQL would join each unit with all open items: 120 ms instead of 2.
SELECT units.job_id,
       (SELECT item.batch_id FROM holdfast.batch_item AS item
        WHERE item.org_id = units.org_id AND item.job_type = units.job_type
          AND item.unit = units.unit AND item.is_open = 1) AS batch_id,
       (SELECT cancel.requested_at FROM holdfast.job_cancel AS cancel
        WHERE cancel.org_id = units.org_id AND cancel.job_id = units.job_id) AS requested_at
FROM {rows units: org_id uuid, job_type text, unit text, job_id uuid};

-- find_failed :many bulk — crosses tenants: which of these jobs were in a batch that failed as a whole
SELECT item.job_id, item.error_code, min(batch.items) AS items
FROM {rows jobs: org_id uuid, job_id uuid}
JOIN holdfast.batch_item AS item ON item.org_id = jobs.org_id AND item.job_id = jobs.job_id
JOIN holdfast.provider_batch AS batch ON batch.id = item.batch_id
WHERE item.error_class = 'BATCH_FAILED'
GROUP BY item.job_id, item.error_code;

-- hold_drafts :many — crosses tenants: which of these batches this worker can still fill
UPDATE holdfast.provider_batch
SET lease_expires_at = {later(:lease_ms)}, updated_at = {now}
FROM {rows drafts: batch_id uuid, was bigint}
WHERE id = drafts.batch_id AND fence = drafts.was AND state = 'prepared'
  AND content_hash IS NULL AND error_code IS NULL
RETURNING id;

-- insert_batches :affected — crosses tenants: batches, stored before anything is sent
INSERT INTO holdfast.provider_batch
    (id, account, provider, adapter_kind, model, execution_mode, group_key, state, items, bytes,
     input_tokens, next_at, lease_owner, lease_expires_at, fence, created_at, updated_at)
SELECT batches.id, batches.account, batches.provider, batches.adapter_kind, batches.model, 'batch',
       batches.group_key, 'prepared', batches.items, batches.bytes, batches.input_tokens, {now},
       :owner, {later(:lease_ms)}, 1, {now}, {now}
FROM {rows batches: id uuid, account text, provider text, adapter_kind text, model text,
      group_key text, items integer, bytes bigint, input_tokens bigint}
WHERE TRUE
ON CONFLICT (id) DO NOTHING;

-- grow_batches :affected — crosses tenants: the size of a batch after another page of items
UPDATE holdfast.provider_batch
SET items = batches.held, bytes = batches.size, input_tokens = batches.tokens, updated_at = {now}
FROM {rows batches: batch_id uuid, held integer, size bigint, tokens bigint}
WHERE id = batches.batch_id;

-- insert_items :affected bulk — crosses tenants: the job of each item, stored before anything is sent
INSERT INTO holdfast.batch_item
    (batch_id, batch_item_index, org_id, job_id, job_type, execution_mode, unit, attempt,
     lease_token, custom_id, echo, schema_hash, group_key, input_tokens, reserve_pico, created_at)
SELECT items.batch_id, items.batch_item_index, items.org_id, items.job_id, items.job_type, 'batch',
       items.unit, items.attempt, items.lease_token, items.custom_id, items.echo, items.schema_hash,
       items.group_key, items.input_tokens, items.reserve_pico, {now}
FROM {rows items: batch_id uuid, batch_item_index integer, org_id uuid, job_id uuid, job_type text,
      unit text, attempt integer, lease_token bigint, custom_id text, echo text, schema_hash text,
      group_key text, input_tokens bigint, reserve_pico bigint}
WHERE TRUE
ON CONFLICT (org_id, batch_id, batch_item_index) DO NOTHING;

-- list_groups :many — crosses tenants: the groups of a batch
SELECT group_key FROM holdfast.batch_item
WHERE batch_id = :batch_id AND is_open = 1
GROUP BY group_key
ORDER BY group_key;

-- list_items :many — crosses tenants: the open items of a batch with their jobs, page by page
-- The page first, then its jobs (Tx.read_in_order). The tables are joined, because SQLite reads every job for a LEFT JOIN of the view job.
WITH page AS MATERIALIZED (
    SELECT batch_item_index, org_id, job_id, custom_id, echo, lease_token
    FROM holdfast.batch_item
    WHERE batch_id = :batch_id AND is_open = 1 AND batch_item_index > :after
      AND (CAST(:group_key AS text) IS NULL OR group_key = :group_key)
    ORDER BY batch_item_index
    LIMIT :limit
)
SELECT item.batch_item_index, item.org_id, item.job_id, item.custom_id, item.echo,
       asked.id, asked.org_id, asked.project_id, asked.job_type, asked.category, asked.actor_type,
       asked.actor_id, coalesce(asked.request_id, CAST(asked.id AS text)) AS request_id,
       coalesce(asked.correlation_id, asked.request_id, CAST(asked.id AS text)) AS correlation_id,
       coalesce(asked.idempotency_key,
                asked.job_type || ':' || CAST(asked.org_id AS text) || ':'
                || coalesce(CAST(asked.project_id AS text), '') || ':'
                || replace(CAST(asked.id AS text), '-', '')) AS idempotency_key,
       asked.payload, asked.priority, asked.unit_key, asked.scheduled_for, asked.traceparent,
       asked.routing_decision, asked.replay_of, asked.created_at,
       coalesce(running.queue, submitted.queue) AS queue,
       coalesce(running.stage, submitted.stage) AS stage,
       coalesce(attempt.pipeline_version, asked.pipeline_version) AS pipeline_version,
       coalesce(attempt.attempt_count, 0) AS attempt_count,
       coalesce(attempt.max_attempts, asked.max_attempts) AS max_attempts, item.lease_token,
       running.claimed_at, running.claimed_by,
       (SELECT cancel.requested_at FROM holdfast.job_cancel AS cancel
        WHERE cancel.org_id = asked.org_id AND cancel.job_id = asked.id) AS cancel_requested_at,
       attempt.first_failed_at, coalesce(asked.turn, asked.id) AS turn, asked.limit_key,
       CASE WHEN submitted.job_id IS NULL THEN 'processing' ELSE 'batch_submitted' END AS state
FROM page AS item
LEFT JOIN holdfast.job_running AS running
  ON {same(running.org_id, item.org_id)} AND {same(running.job_id, item.job_id)}
 AND running.lease_token = item.lease_token
LEFT JOIN holdfast.job_submitted AS submitted
  ON {same(submitted.org_id, item.org_id)} AND {same(submitted.job_id, item.job_id)}
 AND submitted.lease_token = item.lease_token
LEFT JOIN holdfast.job_envelope AS asked
  ON (running.job_id IS NOT NULL OR submitted.job_id IS NOT NULL)
 AND {same(asked.org_id, item.org_id)} AND {same(asked.id, item.job_id)}
{last_attempt attempt: asked.org_id, asked.id}
ORDER BY item.batch_item_index;

-- list_unanswered :many — crosses tenants: the open items of a page, for the ledger
SELECT batch_item_index, org_id, job_id, job_type, attempt, group_key, reserve_pico
FROM holdfast.batch_item
WHERE batch_id = :batch_id AND is_open = 1 AND batch_item_index <= :last
ORDER BY batch_item_index;

-- count_open :one — crosses tenants: the number of open items of a batch
SELECT count(*) AS items FROM holdfast.batch_item WHERE batch_id = :batch_id AND is_open = 1;

-- release_items :affected — crosses tenants: items that were not sent, or whose batch was refused
UPDATE holdfast.batch_item
SET state = 'released', is_open = 0, error_class = ends.said_class, error_code = ends.said_code,
    recorded_at = {now}
FROM {rows ends: place integer, said_class text, said_code text}
WHERE batch_id = :batch_id AND batch_item_index = ends.place AND is_open = 1;

-- release_unheld :affected — crosses tenants: items whose job has left this batch
UPDATE holdfast.batch_item AS item
SET state = 'released', is_open = 0, error_code = 'lease_lost', recorded_at = {now}
WHERE item.batch_id = :batch_id AND item.is_open = 1
  AND NOT EXISTS (
      SELECT 1 FROM holdfast.job_running AS job
      WHERE job.org_id = item.org_id AND job.job_id = item.job_id
        AND job.lease_token = item.lease_token);

-- record_upload :affected — crosses tenants: the id of the uploaded input
UPDATE holdfast.provider_batch
SET state = 'uploaded', input_file_id = :file_id, content_hash = :content_hash, bytes = :bytes,
    rounds = 0, lease_expires_at = {later(:lease_ms)}, updated_at = {now}
WHERE id = :id AND fence = :fence AND error_code IS NULL
  AND (state = 'prepared' OR (state = 'uploaded' AND input_file_id = :file_id));

-- find_creating :maybe — crosses tenants: another create of this account without an answer
SELECT id FROM holdfast.provider_batch
WHERE account = :account AND id <> :id AND state = 'creating'
LIMIT 1;

-- begin_create :affected — crosses tenants: stored before a byte of the create is sent
-- A commit without an answer is repeated, and has no second effect.
UPDATE holdfast.provider_batch
SET state = 'creating', create_attempt = :attempt, creating_at = {now}, answered_at = NULL,
    fenced_at = NULL,
    content_hash = :content_hash, bytes = :bytes, lease_expires_at = {later(:lease_ms)},
    updated_at = {now}
WHERE id = :id AND fence = :fence AND error_code IS NULL
  AND ((state IN ('prepared', 'uploaded') AND create_attempt = :attempt - 1)
       OR (state = 'creating' AND create_attempt = :attempt));

-- step_back :affected — crosses tenants: nothing of it exists at the provider; start again with the upload
UPDATE holdfast.provider_batch
SET state = 'prepared', input_file_id = NULL, rounds = 0,
    lease_expires_at = {later(:lease_ms)}, updated_at = {now}
WHERE id = :id AND fence = :fence AND state IN ('prepared', 'uploaded', 'creating');

-- keep_upload :affected — crosses tenants: the create was refused; the upload is still valid
UPDATE holdfast.provider_batch
SET state = 'uploaded', rounds = rounds + 1, next_at = {later(:delay_ms)}, lease_owner = NULL,
    lease_expires_at = NULL, updated_at = {now}
WHERE id = :id AND fence = :fence AND state = 'creating' AND input_file_id IS NOT NULL;

-- submit_batch :affected — crosses tenants: the batch exists at the provider, with this id
-- The worker that created it is certain and names no fence: this is the answer while its attempt is
-- the last one without another answer. The fence rises, so any other owner loses the batch.
UPDATE holdfast.provider_batch
SET state = 'submitted', provider_batch_id = :provider_batch_id, provider_status = :provider_status,
    submitted_at = {now}, rounds = 0, polls = 0, error_class = NULL, error_code = NULL,
    deadline_at = coalesce(CAST(:deadline_at AS {instant}), {later(:deadline_ms)}),
    next_at = {later(:poll_ms)}, lease_owner = NULL, lease_expires_at = NULL, fence = fence + 1,
    scanned_at = CASE WHEN :was_scanned = 1 THEN {now} ELSE scanned_at END, updated_at = {now}
WHERE id = :id AND state = :was AND create_attempt = :attempt
  AND (CAST(:fence AS bigint) IS NULL OR fence = :fence);

-- stamp_items :affected — crosses tenants: the submission time of the items of a batch
UPDATE holdfast.batch_item
SET submitted_at = {now}, error_class = NULL, error_code = NULL
WHERE batch_id = :batch_id AND is_open = 1
  AND batch_item_index >= :first AND batch_item_index < :after;

-- find_batch :maybe — crosses tenants: the row of a batch, regardless of its lease
SELECT id, state, create_attempt, provider_batch_id, fence
FROM holdfast.provider_batch WHERE id = :id;

-- record_fence :affected — crosses tenants: a create in flight has nothing left to run
UPDATE holdfast.provider_batch
SET fenced_at = {now}, scanned_at = {now}, next_at = {later(:delay_ms)}, lease_owner = NULL,
    lease_expires_at = NULL, updated_at = {now}
WHERE id = :id AND fence = :fence AND state = 'creating' AND create_attempt = :attempt;

-- clear_held :affected — crosses tenants: read its answers and pass them to the application again
UPDATE holdfast.batch_item
SET error_class = NULL, error_code = NULL
WHERE batch_id = :batch_id AND is_open = 1 AND error_code IS NOT NULL;

-- list_unresolved :many — crosses tenants: held batches whose existence is unknown
SELECT id, provider, creating_at FROM holdfast.provider_batch
WHERE state = 'quarantined' AND error_class = 'UNRESOLVED_CREATE' AND provider_batch_id IS NULL
  AND (lease_expires_at IS NULL OR lease_expires_at <= {now})
ORDER BY creating_at, id
LIMIT :limit;

-- mark_back :affected — crosses tenants: release its jobs; a batch with a reason is never sent
-- A batch with a create in flight is released only if its provider refused that create.
UPDATE holdfast.provider_batch
SET state = CASE WHEN state = 'quarantined' THEN state ELSE 'prepared' END,
    error_class = :error_class, error_code = :error_code, lease_expires_at = {later(:lease_ms)},
    strays = CASE WHEN :strays = 1 AND state = 'prepared' THEN 1 ELSE strays END, updated_at = {now}
WHERE id = :id AND fence = :fence AND (state <> 'creating' OR :was = 'creating')
  AND state IN ('prepared', 'uploaded', 'creating', 'quarantined');

-- release_batch :affected — crosses tenants: all its jobs are released
UPDATE holdfast.provider_batch
SET state = 'released', next_at = {now}, lease_owner = NULL, lease_expires_at = NULL,
    updated_at = {now}
WHERE id = :id AND fence = :fence AND state IN ('prepared', 'quarantined');

-- list_recorded :many — crosses tenants: which of these provider batches are recorded
SELECT provider_batch_id FROM holdfast.provider_batch
WHERE account = :account
  AND provider_batch_id IN (
      SELECT names.provider_batch_id FROM {rows names: provider_batch_id text});

-- list_doubtful :many — crosses tenants: accounts with a create that had no answer
SELECT account, min(created_at) AS since
FROM holdfast.provider_batch
WHERE execution_mode = 'batch' AND created_at > {later(:since_ms)}
  AND (scanned_at IS NOT NULL OR create_attempt > 1)
GROUP BY account
ORDER BY account;

-- find_batches :many — crosses tenants: the recorded batches of a listing
SELECT batch.id, batch.account, batch.provider, batch.model, batch.group_key, batch.state,
       batch.items, batch.provider_batch_id
FROM {rows wanted: id uuid}
JOIN holdfast.provider_batch AS batch ON batch.id = wanted.id
WHERE batch.account = :account AND batch.execution_mode = 'batch';

-- close_stray :affected — crosses tenants: it has no input file left
UPDATE holdfast.provider_batch
SET strays = 0, lease_owner = NULL, lease_expires_at = NULL, updated_at = {now}
WHERE id = :id AND fence = :fence;

-- list_waiting_routes :many — crosses tenants: the routes of the jobs that are due
SELECT job.org_id, coalesce({field(job.routing_decision, provider)}, '') AS provider,
       coalesce({field(job.routing_decision, model)}, '') AS model,
       min(CAST(job.routing_decision AS text)) AS decision
FROM (SELECT ready.org_id, ready.job_id
      FROM {rows queues: queue text}
      JOIN holdfast.job_ready AS ready
        ON ready.queue = queues.queue AND ready.limit_key = '~batch'
      UNION ALL
      SELECT waiting.org_id, waiting.job_id
      FROM {rows queues: queue text}
      JOIN holdfast.job_waiting AS waiting
        ON waiting.queue = queues.queue AND waiting.not_before_at <= {now}
       AND waiting.limit_key = '~batch') AS due
JOIN holdfast.job_envelope AS job ON job.org_id = due.org_id AND job.id = due.job_id
WHERE job.routing_decision IS NOT NULL
GROUP BY 1, 2, 3;

-- find_recovery_work :one — crosses tenants: which recovery steps have work
SELECT
    CASE WHEN EXISTS (
        SELECT 1 FROM holdfast.provider_batch
        WHERE execution_mode = 'batch' AND state IN ('prepared', 'uploaded', 'creating')
          AND next_at <= {now}) THEN 1 ELSE 0 END AS outgoing,
    CASE WHEN EXISTS (
        SELECT 1 FROM holdfast.provider_batch
        WHERE state = 'quarantined' AND error_class = 'UNRESOLVED_CREATE'
          AND provider_batch_id IS NULL) THEN 1 ELSE 0 END AS unresolved,
    CASE WHEN EXISTS (
        SELECT 1 FROM holdfast.provider_batch
        WHERE execution_mode = 'batch' AND created_at > {later(:since_ms)}
          AND (scanned_at IS NOT NULL OR create_attempt > 1)) THEN 1 ELSE 0 END AS doubtful,
    CASE WHEN EXISTS (
        SELECT 1 FROM holdfast.provider_batch
        WHERE strays = 1 AND state IN ('collected', 'released') AND files_deleted_at IS NOT NULL
          AND next_at <= {now}) THEN 1 ELSE 0 END AS orphan_files;
