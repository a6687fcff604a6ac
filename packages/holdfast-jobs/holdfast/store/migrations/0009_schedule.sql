-- Schedules: a job of a tenant, or a run, by a cron expression or an interval. A schedule declared
-- in code has set_by 'code' and follows the code; an operator's change stays until it is reset. A
-- run serves every tenant, so its schedule belongs to the platform.
CREATE TABLE holdfast.schedule (
    name text NOT NULL PRIMARY KEY,
    org_id {uuid} NOT NULL,
    project_id {uuid},
    job_type text,
    payload {json},
    run_name text,
    cron text,
    every_ms bigint,
    zone text NOT NULL,
    starts_at {instant},
    catch_up text NOT NULL,
    set_by text NOT NULL,
    paused_at {instant},
    paused_by text,
    pause_reason text,
    -- Every tick up to here has been handled; next_fire_at is the first one after it.
    ticked_to {instant} NOT NULL,
    next_fire_at {instant} NOT NULL,
    last_fire_at {instant},
    created_at {instant} NOT NULL,
    updated_at {instant} NOT NULL,
    CONSTRAINT schedule_has_one_target CHECK (
        (job_type IS NULL) <> (run_name IS NULL) AND (job_type IS NULL) = (payload IS NULL)),
    CONSTRAINT schedule_has_one_rhythm CHECK ((cron IS NULL) <> (every_ms IS NULL)),
    CONSTRAINT schedule_interval_in_range CHECK (every_ms BETWEEN 10000 AND 31622400000),
    CONSTRAINT schedule_catch_up_known CHECK (catch_up IN ('skip', 'one', 'all')),
    CONSTRAINT schedule_set_by_known CHECK (set_by IN ('code', 'operator')),
    CONSTRAINT schedule_paused_says_why CHECK (
        (paused_at IS NULL) = (paused_by IS NULL) AND (paused_at IS NULL) = (pause_reason IS NULL)),
    CONSTRAINT schedule_fires_forward CHECK (next_fire_at > ticked_to)
);
CREATE INDEX schedule_due ON holdfast.schedule (next_fire_at) WHERE paused_at IS NULL;

{refuse schedule_never_ticks_back BEFORE UPDATE OF ticked_to ON holdfast.schedule
WHEN NEW.ticked_to < OLD.ticked_to
SAYING 'a schedule cannot move back to ticks that it has already processed'};

-- One row per tick: the key prevents a second firing. Consecutive missed ticks share one row, under
-- the first of them. No foreign key: ticks outlive their schedule.
CREATE TABLE holdfast.schedule_tick (
    schedule text NOT NULL,
    fire_at {instant} NOT NULL,
    org_id {uuid} NOT NULL,
    outcome text NOT NULL,
    ticks integer NOT NULL DEFAULT 1,
    job_id {uuid},
    run_id {uuid},
    detail text,
    recorded_at {instant} NOT NULL,
    CONSTRAINT schedule_tick_once PRIMARY KEY (schedule, fire_at),
    CONSTRAINT schedule_tick_outcome_known CHECK (
        outcome IN ('taken', 'enqueued', 'ran', 'skipped', 'missed', 'held')),
    CONSTRAINT schedule_tick_counted CHECK (ticks = 1 OR (outcome = 'missed' AND ticks > 1)),
    CONSTRAINT schedule_tick_enqueued_iff_job CHECK ((outcome = 'enqueued') = (job_id IS NOT NULL)),
    CONSTRAINT schedule_tick_run_names_it CHECK (run_id IS NULL OR outcome IN ('ran', 'skipped'))
);
CREATE INDEX schedule_tick_recorded ON holdfast.schedule_tick (recorded_at);
CREATE INDEX schedule_tick_held ON holdfast.schedule_tick (schedule) WHERE outcome = 'held';

{refuse schedule_tick_ended BEFORE UPDATE ON holdfast.schedule_tick
WHEN OLD.outcome NOT IN ('taken', 'held')
SAYING 'the outcome of a tick is recorded once'};

-- Ticks whose run has not begun; maintenance looks for abandoned ones.
CREATE INDEX schedule_tick_taken ON holdfast.schedule_tick (recorded_at) WHERE outcome = 'taken';
