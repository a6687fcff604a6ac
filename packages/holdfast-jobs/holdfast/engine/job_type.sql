-- Statements for the rules of job types that apply to every process, and for their execution units.

-- list_job_types :many — crosses tenants: all job types that have a rule
SELECT job_type, producer, cancel_role, replay_refusal FROM holdfast.job_type_rule ORDER BY job_type;

-- find_job_type :maybe — crosses tenants: the rule of one job type
SELECT job_type, producer, cancel_role, replay_refusal FROM holdfast.job_type_rule WHERE job_type = :job_type;

-- save_names :affected — crosses tenants: insert the names that ids were derived from
INSERT INTO holdfast.id_name (id, name, created_at)
SELECT names.id, names.name, {now}
FROM {rows names: id uuid, name text}
WHERE TRUE
ON CONFLICT (id) DO NOTHING;

-- find_cancel_rule :maybe — the type of a job, and the minimum role to cancel it
SELECT job.job_type, rule.cancel_role
FROM holdfast.job AS job
LEFT JOIN holdfast.job_type_rule AS rule ON rule.job_type = job.job_type
WHERE job.org_id = :org_id AND job.id = :id;

-- save_job_types :many — crosses tenants: insert new rules and update changed ones
-- A process that declares less than another one removes nothing.
INSERT INTO holdfast.job_type_rule AS mine
    (job_type, producer, cancel_role, replay_refusal, updated_at)
SELECT rules.job_type, rules.producer, rules.cancel_role, rules.replay_refusal, {now}
FROM {rows rules: job_type text, producer text, cancel_role text, replay_refusal text}
WHERE TRUE
ON CONFLICT (job_type) DO UPDATE
SET producer = coalesce(excluded.producer, mine.producer),
    cancel_role = coalesce(excluded.cancel_role, mine.cancel_role),
    replay_refusal = coalesce(excluded.replay_refusal, mine.replay_refusal),
    updated_at = excluded.updated_at
WHERE coalesce(excluded.producer, mine.producer) IS DISTINCT FROM mine.producer
   OR coalesce(excluded.cancel_role, mine.cancel_role) IS DISTINCT FROM mine.cancel_role
   OR coalesce(excluded.replay_refusal, mine.replay_refusal) IS DISTINCT FROM mine.replay_refusal
RETURNING job_type;

-- insert_units :affected — register the units of jobs that their producer is about to insert
INSERT INTO holdfast.execution_unit (org_id, job_type, unit_key, job_id, created_at)
SELECT units.org_id, units.job_type, units.unit_key, units.job_id, {now}
FROM {rows units: org_id uuid, job_type text, unit_key text, job_id uuid}
WHERE TRUE
ON CONFLICT DO NOTHING;

-- release_units :affected — release the units of jobs that were not inserted
-- A transaction whose COMMIT got no reply runs again and finds its own jobs: their units stay.
DELETE FROM holdfast.execution_unit AS unit
WHERE (unit.org_id, unit.job_id) IN (
        SELECT units.org_id, units.job_id FROM {rows units: org_id uuid, job_id uuid})
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_envelope AS job
                  WHERE job.org_id = unit.org_id AND job.id = unit.job_id)
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_remainder AS gone
                  WHERE gone.org_id = unit.org_id AND gone.job_id = unit.job_id);
