-- Statements of schedules and their ticks. Operators and dispatchers serve every tenant; each row
-- has the tenant of its job.

-- lock_schedules :many — crosses tenants: lock schedules; also returns the store's time
UPDATE holdfast.schedule
SET updated_at = updated_at
WHERE name IN (SELECT name FROM {rows names: name text})
RETURNING *, {now} AS now;

-- add_schedules :many — crosses tenants: returns no row for a name that is taken
INSERT INTO holdfast.schedule
    (name, org_id, project_id, job_type, payload, run_name, cron, every_ms, zone, starts_at,
     catch_up, tenants, set_by, ticked_to, next_fire_at, created_at, updated_at)
SELECT plans.name, plans.org_id, plans.project_id, plans.job_type, plans.payload, plans.run_name,
       plans.cron, plans.every_ms, plans.zone, plans.starts_at, plans.catch_up, plans.tenants,
       plans.set_by, plans.ticked_to, plans.next_fire_at, {now}, {now}
FROM {rows plans: name text, org_id uuid, project_id uuid, job_type text, payload json,
      run_name text, cron text, every_ms bigint, zone text, starts_at instant, catch_up text,
      tenants text, set_by text, ticked_to instant, next_fire_at instant}
WHERE TRUE
ON CONFLICT (name) DO NOTHING
RETURNING name;

-- set_schedules :affected — crosses tenants: write changes of code or an operator
UPDATE holdfast.schedule AS schedule
SET org_id = plans.org_id, project_id = plans.project_id, job_type = plans.job_type,
    payload = plans.payload, run_name = plans.run_name, cron = plans.cron,
    every_ms = plans.every_ms, zone = plans.zone, starts_at = plans.starts_at,
    catch_up = plans.catch_up, tenants = plans.tenants, set_by = plans.set_by, ticked_to = plans.ticked_to,
    next_fire_at = plans.next_fire_at, updated_at = {now}
FROM {rows plans: name text, org_id uuid, project_id uuid, job_type text, payload json,
      run_name text, cron text, every_ms bigint, zone text, starts_at instant, catch_up text,
      tenants text, set_by text, ticked_to instant, next_fire_at instant}
WHERE schedule.name = plans.name;

-- read_clock :one — crosses tenants: the current time of the store
SELECT {now} AS now;

-- pause_schedule :affected — crosses tenants: no tick fires until the schedule is resumed
UPDATE holdfast.schedule
SET paused_at = {now}, paused_by = :paused_by, pause_reason = :reason, updated_at = {now}
WHERE name = :name AND paused_at IS NULL;

-- resume_schedule :affected — crosses tenants: the misfire policy decides about missed ticks
UPDATE holdfast.schedule
SET paused_at = NULL, paused_by = NULL, pause_reason = NULL, updated_at = {now}
WHERE name = :name AND paused_at IS NOT NULL;

-- remove_schedule :affected — crosses tenants: its ticks are kept until they are pruned
DELETE FROM holdfast.schedule WHERE name = :name;

-- drop_held :affected — crosses tenants: mark held ticks as missed if their schedule will not reach them
UPDATE holdfast.schedule_tick AS tick
SET outcome = 'missed', detail = 'the schedule was changed or removed', recorded_at = {now}
WHERE tick.outcome = 'held'
  AND NOT EXISTS (SELECT 1 FROM holdfast.schedule AS schedule
                  WHERE schedule.name = tick.schedule AND schedule.ticked_to < tick.fire_at);

-- list_schedules :many — crosses tenants: all schedules, with their newest tick
SELECT schedule.*, tick.outcome AS last_outcome, tick.fire_at AS last_tick_at,
       tick.detail AS last_detail
FROM holdfast.schedule AS schedule
LEFT JOIN holdfast.schedule_tick AS tick
  ON tick.schedule = schedule.name
  AND tick.fire_at = (SELECT max(newest.fire_at) FROM holdfast.schedule_tick AS newest
                      WHERE newest.schedule = schedule.name)
WHERE CAST(:name AS text) IS NULL OR schedule.name = :name
ORDER BY schedule.name;

-- list_ticks :many — crosses tenants: the ticks of one schedule with their outcomes, newest first
SELECT schedule, fire_at, org_id, outcome, ticks, job_id, run_id, detail, recorded_at
FROM holdfast.schedule_tick
WHERE schedule = :name
ORDER BY fire_at DESC
LIMIT :limit;

-- list_due_targets :many — crosses tenants: the job types and runs that are due; usually none
-- Of a schedule whose application lists its tenants, also the name.
SELECT DISTINCT job_type, run_name, CASE WHEN tenants = 'declared' THEN name END AS listed_by
FROM holdfast.schedule
WHERE paused_at IS NULL AND next_fire_at <= {now};

-- list_known_tenants :many — crosses tenants: every tenant that has jobs or rules
-- Each step finds the next tenant by the primary key: a million jobs of one tenant are one step.
WITH RECURSIVE of_jobs (org_id) AS (
    SELECT (SELECT job.org_id FROM holdfast.job_envelope AS job ORDER BY job.org_id LIMIT 1)
    UNION ALL
    SELECT (SELECT job.org_id FROM holdfast.job_envelope AS job
            WHERE job.org_id > of_jobs.org_id ORDER BY job.org_id LIMIT 1)
    FROM of_jobs
    WHERE of_jobs.org_id IS NOT NULL
)
SELECT known.org_id
FROM (SELECT org_id FROM of_jobs
      UNION
      SELECT org_id FROM holdfast.tenant) AS known
WHERE known.org_id IS NOT NULL AND known.org_id <> CAST(:platform AS {uuid})
ORDER BY known.org_id
LIMIT :limit;

-- find_due :many — crosses tenants: lock due schedules that this process can fire
SELECT schedule.*, {now} AS now,
       EXISTS (SELECT 1 FROM holdfast.schedule_tick AS tick
               WHERE tick.schedule = schedule.name AND tick.fire_at = schedule.next_fire_at
                 AND tick.outcome = 'held') AS was_held
FROM holdfast.schedule AS schedule
WHERE schedule.paused_at IS NULL AND schedule.next_fire_at <= {now}
  AND (CAST(:name AS text) IS NULL OR schedule.name = :name)
  AND (schedule.job_type IN (SELECT job_type FROM {rows types: job_type text})
       OR schedule.run_name IN (SELECT run_name FROM {rows runs: run_name text}))
-- Schedules that could not be fired before come last, so that they never hide the others.
ORDER BY was_held, schedule.next_fire_at, schedule.name
LIMIT :limit
{skip_locked};

-- list_due :many — crosses tenants: names of what find_due would find, without locks
SELECT schedule.name,
       EXISTS (SELECT 1 FROM holdfast.schedule_tick AS tick
               WHERE tick.schedule = schedule.name AND tick.fire_at = schedule.next_fire_at
                 AND tick.outcome = 'held') AS was_held
FROM holdfast.schedule AS schedule
WHERE schedule.paused_at IS NULL AND schedule.next_fire_at <= {now}
  AND schedule.job_type IN (SELECT job_type FROM {rows types: job_type text})
ORDER BY was_held, schedule.next_fire_at, schedule.name
LIMIT :limit;

-- hold_unknown :many — crosses tenants: hold ticks until a process that can fire them runs
-- :grace_ms is the time in which the dispatcher of another application may fire them.
INSERT INTO holdfast.schedule_tick (schedule, fire_at, org_id, outcome, detail, recorded_at)
SELECT schedule.name, schedule.next_fire_at, schedule.org_id, 'held',
       coalesce('run ' || refused.run_name || ' cannot be performed here: ' || refused.says,
                coalesce('job type ' || schedule.job_type, 'run ' || schedule.run_name)
                    || ' is not known to the dispatcher that found it due'), {now}
FROM holdfast.schedule AS schedule
LEFT JOIN {rows refused: run_name text, says text} ON refused.run_name = schedule.run_name
WHERE schedule.paused_at IS NULL AND schedule.next_fire_at <= {later(-CAST(:grace_ms AS bigint))}
  AND (schedule.job_type IS NULL
       OR schedule.job_type NOT IN (SELECT job_type FROM {rows types: job_type text}))
  AND (schedule.run_name IS NULL
       OR schedule.run_name NOT IN (SELECT run_name FROM {rows runs: run_name text}))
ON CONFLICT (schedule, fire_at) DO NOTHING
RETURNING schedule, fire_at, org_id, detail;

-- take_ticks :many — crosses tenants: insert ticks; returns those that were not taken before
INSERT INTO holdfast.schedule_tick AS mine
    (schedule, fire_at, org_id, outcome, ticks, run_id, detail, recorded_at)
SELECT found.schedule, found.fire_at, found.org_id, found.outcome, found.ticks, found.run_id,
       found.detail, {now}
FROM {rows found: schedule text, fire_at instant, org_id uuid, outcome text, ticks integer,
      run_id uuid, detail text}
WHERE TRUE
ON CONFLICT (schedule, fire_at) DO UPDATE
SET outcome = excluded.outcome, ticks = excluded.ticks, run_id = excluded.run_id,
    detail = excluded.detail, recorded_at = excluded.recorded_at
WHERE mine.outcome = 'held' AND excluded.outcome <> 'held'
RETURNING schedule, fire_at, outcome;

-- end_ticks :affected — crosses tenants: record the outcomes of taken ticks
UPDATE holdfast.schedule_tick AS tick
SET outcome = ends.outcome, job_id = ends.job_id, run_id = ends.run_id, detail = ends.detail,
    recorded_at = {now}
FROM {rows ends: schedule text, fire_at instant, outcome text, job_id uuid, run_id uuid,
      detail text}
WHERE tick.schedule = ends.schedule AND tick.fire_at = ends.fire_at AND tick.outcome = 'taken';

-- find_stray :many — crosses tenants: run ticks whose dispatcher died without an outcome
-- A run that is still open closes its own tick; a finished run has the outcome to record.
SELECT tick.schedule, tick.fire_at, tick.org_id, run.run_id, run.outcome, run.reason
FROM holdfast.schedule_tick AS tick
LEFT JOIN holdfast.schedule AS schedule ON schedule.name = tick.schedule
LEFT JOIN holdfast.worker_run AS run
  ON run.name = schedule.run_name AND run.tick = tick.fire_at
WHERE tick.outcome = 'taken' AND tick.recorded_at < {later(-CAST(:patience_ms AS bigint))}
  AND (run.run_id IS NULL OR run.finished_at IS NOT NULL)
ORDER BY tick.recorded_at
LIMIT :limit;

-- move_schedules :affected — crosses tenants: store the new position of each schedule
UPDATE holdfast.schedule AS schedule
SET ticked_to = moves.ticked_to, next_fire_at = moves.next_fire_at,
    last_fire_at = coalesce(moves.last_fire_at, schedule.last_fire_at)
FROM {rows moves: name text, ticked_to instant, next_fire_at instant, last_fire_at instant}
WHERE schedule.name = moves.name;

-- prune_ticks :affected — crosses tenants: ticks past their retention, except held ones
DELETE FROM holdfast.schedule_tick
WHERE (schedule, fire_at) IN (
    SELECT schedule, fire_at FROM holdfast.schedule_tick
    WHERE recorded_at < {later(-CAST(:keep_ms AS bigint))} AND outcome <> 'held'
    ORDER BY recorded_at
    LIMIT :limit
);
