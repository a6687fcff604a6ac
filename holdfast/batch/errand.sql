-- What the two runs of the lane have to do before they begin.

-- count_to_submit :one — crosses tenants: batches that are to be handed over, or that are in doubt
-- For two days after a create without an answer a second batch may turn up, and must be stopped.
SELECT count(*) AS batches FROM (
    SELECT 1 AS found FROM holdfast.provider_batch
    WHERE execution_mode = 'batch'
      AND ((state IN ('prepared', 'uploaded', 'creating') AND next_at <= {now})
           OR (strays = 1 AND state IN ('collected', 'released')
               AND files_deleted_at IS NOT NULL AND next_at <= {now})
           OR (created_at > {later(-172800000)}
               AND (scanned_at IS NOT NULL OR create_attempt > 1)))
    LIMIT :most) AS due;

-- count_to_collect :one — crosses tenants: batches that are to be asked about, read or cleaned up
SELECT count(*) AS batches FROM (
    SELECT 1 AS found FROM holdfast.provider_batch
    WHERE execution_mode = 'batch' AND next_at <= {now}
      AND (state IN ('submitted', 'ended')
           OR (state IN ('collected', 'released') AND files_deleted_at IS NULL))
    LIMIT :most) AS due;
