-- Pending work of the two runs of batch processing.

-- count_to_submit :one — crosses tenants: batches to submit or to recover
-- For two days after a create without an answer a duplicate batch may appear and must be canceled.
SELECT count(*) AS batches FROM (
    SELECT 1 AS found FROM holdfast.provider_batch
    WHERE execution_mode = 'batch'
      AND ((state IN ('prepared', 'uploaded', 'creating') AND next_at <= {now})
           OR (strays = 1 AND state IN ('collected', 'released')
               AND files_deleted_at IS NOT NULL AND next_at <= {now})
           OR (created_at > {later(-172800000)}
               AND (scanned_at IS NOT NULL OR create_attempt > 1)))
    LIMIT :most) AS due;

-- count_to_collect :one — crosses tenants: batches to poll, read or clean up
SELECT count(*) AS batches FROM (
    SELECT 1 AS found FROM holdfast.provider_batch
    WHERE execution_mode = 'batch' AND next_at <= {now}
      AND (state IN ('submitted', 'ended')
           OR (state IN ('collected', 'released') AND files_deleted_at IS NULL))
    LIMIT :most) AS due;

-- count_remaining :one — crosses tenants: jobs that wait to be submitted
SELECT coalesce(sum(CASE WHEN not_before_at IS NULL OR not_before_at <= {now} THEN 1 ELSE 0 END), 0)
           AS due,
       coalesce(sum(CASE WHEN not_before_at > {now} THEN 1 ELSE 0 END), 0) AS later
FROM (SELECT CAST(NULL AS {instant}) AS not_before_at FROM holdfast.job_ready
      WHERE limit_key = '~batch'
      UNION ALL
      SELECT not_before_at FROM holdfast.job_waiting WHERE limit_key = '~batch') AS queued;

-- count_outstanding :one — crosses tenants: batches at a provider
SELECT count(*) AS batches, coalesce(sum(items), 0) AS items FROM holdfast.provider_batch
WHERE execution_mode = 'batch' AND state IN ('submitted', 'ended');

-- poll_now :affected — crosses tenants: make every batch at a provider due, unless a collector has it
UPDATE holdfast.provider_batch SET next_at = {now}, updated_at = {now}
WHERE execution_mode = 'batch' AND state IN ('submitted', 'ended') AND next_at > {now}
  AND (lease_expires_at IS NULL OR lease_expires_at <= {now});
