-- What waits for a provider's batch, oldest first. For the few that it expects, PostgreSQL would
-- rather read the whole table than walk job_oldest in order; SQLite walks.
CREATE INDEX job_batched ON holdfast.job (queue, created_at, id)
    WHERE limit_key = '~batch' AND finished_at IS NULL AND claimed_at IS NULL
        AND not_before_at IS NULL AND state <> 'batch_submitted';
