-- A provider batch under a lease: the statements that take, renew and return it. Every write names
-- the fence of the lease. A batch holds items of many tenants, so the statements cross tenants.

-- lease_to_send :maybe — crosses tenants: the next outgoing batch without a worker
-- Its last worker may have been killed during an upload, so there may be an orphan file.
UPDATE holdfast.provider_batch
SET lease_owner = :owner, lease_expires_at = {later(:lease_ms)}, fence = fence + 1,
    strays = CASE WHEN state = 'prepared' THEN 1 ELSE strays END, updated_at = {now}
WHERE id IN (
    SELECT id FROM holdfast.provider_batch
    WHERE execution_mode = 'batch' AND state IN ('prepared', 'uploaded', 'creating')
      AND next_at <= {now} AND (lease_expires_at IS NULL OR lease_expires_at <= {now})
    ORDER BY next_at, id
    LIMIT 1
    {skip_locked})
RETURNING id, account, provider, adapter_kind, model, group_key, state, items, bytes, content_hash,
          create_attempt, creating_at, answered_at, fenced_at, rounds, polls, input_file_id,
          provider_batch_id, provider_status, result_files, counts, error_class, error_code,
          deadline_at, cancel_requested_at, submitted_at, ended_at, next_at, fence, created_at,
          {now} AS now;

-- lease_to_collect :maybe — crosses tenants: the next batch to poll, read or clean up
-- MATERIALIZED keeps PostgreSQL from running the LIMIT again and leasing more than one.
WITH due AS MATERIALIZED (
    SELECT id AS due_id FROM holdfast.provider_batch
    WHERE execution_mode = 'batch' AND next_at <= {now}
      AND (lease_expires_at IS NULL OR lease_expires_at <= {now})
      AND (state IN ('submitted', 'ended')
           OR (state IN ('collected', 'released') AND files_deleted_at IS NULL))
      AND (CAST(:only_id AS {uuid}) IS NULL OR id = :only_id)
      AND id NOT IN (SELECT without.id FROM {rows without: id uuid})
    ORDER BY next_at, id
    LIMIT 1
    {skip_locked}
)
UPDATE holdfast.provider_batch
SET lease_owner = :owner, lease_expires_at = {later(:lease_ms)}, fence = fence + 1,
    updated_at = {now}
FROM due
WHERE id = due.due_id
RETURNING id, account, provider, adapter_kind, model, group_key, state, items, bytes, content_hash,
          create_attempt, creating_at, answered_at, fenced_at, rounds, polls, input_file_id,
          provider_batch_id, provider_status, result_files, counts, error_class, error_code,
          deadline_at, cancel_requested_at, submitted_at, ended_at, next_at, fence, created_at,
          {now} AS now;

-- lease_quarantined :maybe — crosses tenants: a batch that an operator takes out of quarantine
UPDATE holdfast.provider_batch
SET lease_owner = :owner, lease_expires_at = {later(:lease_ms)}, fence = fence + 1,
    updated_at = {now}
WHERE id = :id AND state = 'quarantined'
  AND (lease_expires_at IS NULL OR lease_expires_at <= {now})
RETURNING id, account, provider, adapter_kind, model, group_key, state, items, bytes, content_hash,
          create_attempt, creating_at, answered_at, fenced_at, rounds, polls, input_file_id,
          provider_batch_id, provider_status, result_files, counts, error_class, error_code,
          deadline_at, cancel_requested_at, submitted_at, ended_at, next_at, fence, created_at,
          {now} AS now;

-- lease_kept :maybe — crosses tenants: a batch whose kept answers an operator processes
UPDATE holdfast.provider_batch
SET lease_owner = :owner, lease_expires_at = {later(:lease_ms)}, fence = fence + 1,
    updated_at = {now}
WHERE id = :id AND state IN ('quarantined', 'ended')
  AND (lease_expires_at IS NULL OR lease_expires_at <= {now})
RETURNING id, account, provider, adapter_kind, model, group_key, state, items, bytes, content_hash,
          create_attempt, creating_at, answered_at, fenced_at, rounds, polls, input_file_id,
          provider_batch_id, provider_status, result_files, counts, error_class, error_code,
          deadline_at, cancel_requested_at, submitted_at, ended_at, next_at, fence, created_at,
          {now} AS now;

-- lease_orphan_files :maybe — crosses tenants: a finished batch that may have left an input file
UPDATE holdfast.provider_batch
SET lease_owner = :owner, lease_expires_at = {later(:lease_ms)}, fence = fence + 1,
    next_at = {later(:pause_ms)}, updated_at = {now}
WHERE id IN (
    SELECT id FROM holdfast.provider_batch
    WHERE strays = 1 AND state IN ('collected', 'released') AND files_deleted_at IS NOT NULL
      AND next_at <= {now} AND (lease_expires_at IS NULL OR lease_expires_at <= {now})
    ORDER BY next_at, id
    LIMIT 1
    {skip_locked})
RETURNING id, account, provider, adapter_kind, model, group_key, state, items, bytes, content_hash,
          create_attempt, creating_at, answered_at, fenced_at, rounds, polls, input_file_id,
          provider_batch_id, provider_status, result_files, counts, error_class, error_code,
          deadline_at, cancel_requested_at, submitted_at, ended_at, next_at, fence, created_at,
          {now} AS now;

-- hold_batch :maybe — crosses tenants: renew the lease and read the row
-- An outgoing batch moves between its three states while one worker has it.
UPDATE holdfast.provider_batch
SET lease_expires_at = {later(:lease_ms)}, updated_at = {now}
WHERE id = :id AND fence = :fence
  AND (state = :was OR (:was IN ('prepared', 'uploaded', 'creating')
                        AND state IN ('prepared', 'uploaded', 'creating')))
RETURNING id, account, provider, adapter_kind, model, group_key, state, items, bytes, content_hash,
          create_attempt, creating_at, answered_at, fenced_at, rounds, polls, input_file_id,
          provider_batch_id, provider_status, result_files, counts, error_class, error_code,
          deadline_at, cancel_requested_at, submitted_at, ended_at, next_at, fence, created_at,
          {now} AS now;

-- put_off :affected — crosses tenants: return the lease; the batch is due again after the delay
UPDATE holdfast.provider_batch
SET next_at = {later(:delay_ms)}, polls = polls + :polls, rounds = rounds + :rounds,
    provider_status = coalesce(CAST(:provider_status AS text), provider_status),
    counts = coalesce(CAST(:counts AS {json}), counts),
    error_code = CASE WHEN state = 'submitted' AND CAST(:provider_status AS text) IS NOT NULL
                      THEN CAST(:error_code AS text)
                      ELSE coalesce(CAST(:error_code AS text), error_code) END,
    scanned_at = CASE WHEN :was_scanned = 1 THEN {now} ELSE scanned_at END,
    answered_at = CASE WHEN :was_answered = 1 THEN {now} ELSE answered_at END,
    lease_owner = NULL, lease_expires_at = NULL, updated_at = {now}
WHERE id = :id AND fence = :fence
  AND (:was NOT IN ('prepared', 'uploaded', 'creating')
       OR state IN ('prepared', 'uploaded', 'creating'));

-- return_lease :affected — crosses tenants: return the lease and change nothing else
UPDATE holdfast.provider_batch
SET lease_owner = NULL, lease_expires_at = NULL, updated_at = {now}
WHERE id = :id AND fence = :fence AND state = :was;

-- quarantine_batch :affected — crosses tenants: only an operator can release it
UPDATE holdfast.provider_batch
SET scanned_at = CASE WHEN state = 'creating' THEN {now} ELSE scanned_at END,
    state = 'quarantined', error_class = :error_class, error_code = :error_code,
    lease_owner = NULL, lease_expires_at = NULL, updated_at = {now}
WHERE id = :id AND fence = :fence
  AND (state = :was OR (:was <> 'creating' AND state IN ('submitted', 'ended', 'quarantined')));
