-- Of the jobs that a run has left, those that it handed to a provider's batch.
ALTER TABLE holdfast.worker_run ADD COLUMN submitted_count integer;
