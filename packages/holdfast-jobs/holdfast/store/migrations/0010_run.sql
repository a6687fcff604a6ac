-- The log of bounded runs: one row per run, written at its start and completed at its end. A run
-- serves every tenant, so the row belongs to none. The run's id is the worker id of its claims and
-- leads to their audit events.
CREATE TABLE holdfast.worker_run (
    run_id {uuid} NOT NULL PRIMARY KEY,
    name text NOT NULL,
    profile text NOT NULL,
    trigger_kind text NOT NULL,
    actor_type text NOT NULL,
    actor_id text NOT NULL,
    tick {instant},
    settings {json} NOT NULL,
    max_jobs_per_run integer NOT NULL,
    started_at {instant} NOT NULL,
    lost_after {instant} NOT NULL,
    finished_at {instant},
    outcome text,
    reason text,
    claimed_count integer,
    succeeded_count integer,
    failed_count integer,
    requeued_count integer,
    released_count integer,
    canceled_count integer,
    left_count integer,
    -- Of the remaining jobs, those that it submitted to a provider batch.
    submitted_count integer,
    rate_limit_errors integer,
    capacity_errors integer,
    error_counts {json},
    model_counts {json},
    CONSTRAINT worker_run_trigger_known CHECK (trigger_kind IN ('schedule', 'manual', 'cron')),
    CONSTRAINT worker_run_actor_known CHECK (actor_type IN ('user', 'system', 'api_key')),
    CONSTRAINT worker_run_outcome_known CHECK (
        outcome IN ('done', 'full', 'out_of_time', 'stopped', 'failed', 'skipped', 'lost')),
    CONSTRAINT worker_run_finished_iff_outcome CHECK ((finished_at IS NULL) = (outcome IS NULL)),
    CONSTRAINT worker_run_counted_iff_known CHECK (
        (claimed_count IS NULL) = (outcome IS NULL OR outcome = 'lost')),
    -- The database enforces the bound of a run as well.
    CONSTRAINT worker_run_within_bound CHECK (claimed_count <= max_jobs_per_run),
    CONSTRAINT worker_run_counts_add_up CHECK (
        claimed_count =
            succeeded_count + failed_count + requeued_count + canceled_count + left_count)
);

-- Two dispatchers that see the same tick start it once.
CREATE UNIQUE INDEX worker_run_once_per_tick ON holdfast.worker_run (name, tick)
    WHERE tick IS NOT NULL;
CREATE INDEX worker_run_open ON holdfast.worker_run (lost_after) WHERE finished_at IS NULL;
CREATE INDEX worker_run_ended ON holdfast.worker_run (finished_at) WHERE finished_at IS NOT NULL;

{refuse worker_run_closed BEFORE UPDATE ON holdfast.worker_run
WHEN OLD.finished_at IS NOT NULL
SAYING 'a finished run is immutable'};
