-- Queues with work, due jobs, and the rules of queues, tenants and keys.

-- poll_queues :many prepared — crosses tenants: queues with jobs to claim or to promote
-- ORDER BY, because PostgreSQL may answer EXISTS by scanning the table up to the first match.
SELECT queues.name AS queue,
       (SELECT 1 FROM holdfast.job_ready AS job WHERE job.queue = queues.name
        ORDER BY job.queue, job.limit_key LIMIT 1) AS is_waiting,
       (SELECT 1 FROM holdfast.job_ready AS job WHERE job.queue = queues.name AND job.limit_key > ''
        ORDER BY job.queue, job.limit_key LIMIT 1) AS has_keys,
       (SELECT 1 FROM holdfast.job_waiting AS job
        WHERE job.queue = queues.name AND job.not_before_at <= {now}
        ORDER BY job.queue, job.not_before_at LIMIT 1) AS has_due,
       (SELECT 1 FROM holdfast.job_deadline AS deadline
        JOIN holdfast.job AS job ON job.org_id = deadline.org_id AND job.id = deadline.job_id
        WHERE deadline.closed_at IS NULL AND deadline.deadline_at <= {now}
          AND job.state = 'queued'
        ORDER BY deadline.deadline_at LIMIT 1) AS has_expired,
       (SELECT flow.revision FROM holdfast.flow AS flow WHERE flow.only_row = 1) AS revision
FROM {rows queues: name text};

-- find_backlogs :many prepared — crosses tenants: backlogs of queues
-- A backlog is the waiting jobs of one tenant in one queue under one limit key, counted up to
-- :reach. The round robin continues after the tenant that was served last. Each step is one index
-- lookup, so the cost does not depend on the number of waiting jobs. :seed_count is a row estimate
-- for PostgreSQL's planner, which would otherwise guess a hundred times too high and spend 200 ms
-- on JIT compilation.
WITH RECURSIVE
seeds AS MATERIALIZED (
    SELECT queue, limit_key, served
    FROM {rows seeds: queue text, limit_key text, served uuid}
    LIMIT :seed_count
),
tenants (queue, limit_key, served, org_id) AS (
    SELECT seeds.queue, seeds.limit_key, seeds.served, coalesce(
        (SELECT job.org_id FROM holdfast.job_ready AS job
         WHERE job.queue = seeds.queue AND job.limit_key = seeds.limit_key
           AND job.org_id > seeds.served
         ORDER BY job.queue, job.limit_key, job.org_id LIMIT 1),
        (SELECT job.org_id FROM holdfast.job_ready AS job
         WHERE job.queue = seeds.queue AND job.limit_key = seeds.limit_key
         ORDER BY job.queue, job.limit_key, job.org_id LIMIT 1))
    FROM seeds
    UNION ALL
    SELECT tenants.queue, tenants.limit_key, tenants.served, coalesce(
        (SELECT job.org_id FROM holdfast.job_ready AS job
         WHERE job.queue = tenants.queue AND job.limit_key = tenants.limit_key
           AND job.org_id > tenants.org_id
           AND job.org_id <= CASE WHEN tenants.org_id > tenants.served
                                  THEN CAST('ffffffff-ffff-ffff-ffff-ffffffffffff' AS {uuid})
                                  ELSE tenants.served END
         ORDER BY job.queue, job.limit_key, job.org_id LIMIT 1),
        CASE WHEN tenants.org_id > tenants.served THEN
            (SELECT job.org_id FROM holdfast.job_ready AS job
             WHERE job.queue = tenants.queue AND job.limit_key = tenants.limit_key
               AND job.org_id <= tenants.served
             ORDER BY job.queue, job.limit_key, job.org_id LIMIT 1) END)
    FROM tenants
    WHERE tenants.org_id IS NOT NULL
),
found AS MATERIALIZED (
    SELECT queue, limit_key, org_id FROM tenants WHERE org_id IS NOT NULL LIMIT :backlogs
)
SELECT found.queue, found.limit_key, found.org_id,
       coalesce((SELECT tenant.weight FROM holdfast.tenant AS tenant
                 WHERE tenant.org_id = found.org_id), 1) AS weight,
       (SELECT count(*) FROM (
           SELECT 1 FROM holdfast.job_ready AS job
           WHERE job.queue = found.queue AND job.limit_key = found.limit_key
             AND job.org_id = found.org_id
           ORDER BY job.queue, job.limit_key, job.org_id, job.turn
           LIMIT :reach) AS head) AS depth,
       CASE WHEN (SELECT max(seeds.limit_key) FROM seeds) > '' THEN
           (SELECT job.turn FROM holdfast.job_ready AS job
            WHERE job.queue = found.queue AND job.limit_key = found.limit_key
              AND job.org_id = found.org_id
            ORDER BY job.queue, job.limit_key, job.org_id, job.turn LIMIT 1) END AS turn
FROM found;

-- count_backlogs :many — crosses tenants: known backlogs after the position that was claimed last
-- A long transaction of another session keeps the index entries of claimed jobs, and find_backlogs
-- reads them. This statement starts after them.
SELECT known.queue, known.limit_key, known.org_id,
       coalesce((SELECT tenant.weight FROM holdfast.tenant AS tenant
                 WHERE tenant.org_id = known.org_id), 1) AS weight,
       (SELECT count(*) FROM (
           SELECT 1 FROM holdfast.job_ready AS job
           WHERE job.queue = known.queue AND job.limit_key = known.limit_key
             AND job.org_id = known.org_id AND job.turn > known.floor
           ORDER BY job.queue, job.limit_key, job.org_id, job.turn
           LIMIT :reach) AS head) AS depth
FROM {rows known: queue text, limit_key text, org_id uuid, floor uuid};

-- load_cursors :many — crosses tenants: the cursor of each queue
-- A new cursor starts at the tenant of the oldest job.
SELECT queues.name AS queue,
       coalesce(round.stands_at,
                (SELECT job.org_id FROM holdfast.job_ready AS job
                 WHERE job.queue = queues.name AND job.lease_token >= 0
                 ORDER BY job.queue, job.created_at, job.job_id LIMIT 1)) AS stands_at,
       coalesce(round.turn_left, 1) AS turn_left
FROM {rows queues: name text}
LEFT JOIN holdfast.queue_round AS round ON round.queue = queues.name AND round.lane = :lane;

-- save_cursors :affected — crosses tenants: store the cursor positions for the next worker
INSERT INTO holdfast.queue_round AS mine (queue, lane, stands_at, turn_left, updated_at)
SELECT rounds.queue, CAST(:lane AS text), rounds.stands_at, rounds.turn_left, {now}
FROM {rows rounds: queue text, stands_at uuid, turn_left integer}
WHERE TRUE
ON CONFLICT (queue, lane) DO UPDATE
SET stands_at = excluded.stands_at, turn_left = excluded.turn_left, updated_at = excluded.updated_at;

-- promote_due :many — crosses tenants: longest due first; parked notifications move to their queue
-- A trigger moves the rows to job_ready.
WITH due AS MATERIALIZED (
    SELECT org_id, job_id FROM holdfast.job_waiting AS job
    WHERE queue = :queue AND not_before_at <= {now}
    ORDER BY queue, not_before_at
    LIMIT :limit
    {skip_held(job)}
)
UPDATE holdfast.job_waiting AS job
SET not_before_at = NULL,
    queue = (SELECT asked.origin_queue FROM holdfast.job_envelope AS asked
             WHERE asked.org_id = job.org_id AND asked.id = job.job_id)
FROM due
WHERE job.org_id = due.org_id AND job.job_id = due.job_id
RETURNING job.queue;

-- find_due :many — crosses tenants: tenants with due jobs
-- One index lookup for each tenant with deferred jobs.
WITH RECURSIVE tenants (org_id) AS (
    SELECT (SELECT job.org_id FROM holdfast.job_waiting AS job
            WHERE job.queue = :queue
            ORDER BY job.queue, job.org_id LIMIT 1)
    UNION ALL
    SELECT (SELECT job.org_id FROM holdfast.job_waiting AS job
            WHERE job.queue = :queue AND job.org_id > tenants.org_id
            ORDER BY job.queue, job.org_id LIMIT 1)
    FROM tenants
    WHERE tenants.org_id IS NOT NULL
),
heads AS MATERIALIZED (
    SELECT tenants.org_id,
           (SELECT job.not_before_at FROM holdfast.job_waiting AS job
            WHERE job.queue = :queue AND job.org_id = tenants.org_id
            ORDER BY job.queue, job.org_id, job.not_before_at LIMIT 1) AS due_at
    FROM tenants
    WHERE tenants.org_id IS NOT NULL
    LIMIT :limit
)
SELECT heads.org_id FROM heads WHERE heads.due_at <= {now} ORDER BY heads.due_at;

-- promote_fairly :many — crosses tenants: promote_due with a limit per tenant
WITH due AS MATERIALIZED (
    SELECT job.org_id, job.job_id
    FROM {rows tenants: org_id uuid}
    {lateral job: holdfast.job_waiting (org_id, job_id)}
        SELECT waiting.org_id, waiting.job_id FROM holdfast.job_waiting AS waiting
        WHERE waiting.queue = :queue AND waiting.org_id = tenants.org_id
          AND waiting.not_before_at <= {now}
        ORDER BY waiting.queue, waiting.org_id, waiting.not_before_at
        LIMIT :each
        {skip_held(waiting)}
    {end}
)
UPDATE holdfast.job_waiting AS job
SET not_before_at = NULL,
    queue = (SELECT asked.origin_queue FROM holdfast.job_envelope AS asked
             WHERE asked.org_id = job.org_id AND asked.id = job.job_id)
FROM due
WHERE job.org_id = due.org_id AND job.job_id = due.job_id
RETURNING job.queue;

-- find_keys :many — crosses tenants: the limit keys with waiting jobs in a queue, after :after
WITH RECURSIVE keys (limit_key) AS (
    SELECT (SELECT job.limit_key FROM holdfast.job_ready AS job
            WHERE job.queue = :queue AND job.limit_key > :after
            ORDER BY job.queue, job.limit_key LIMIT 1)
    UNION ALL
    SELECT (SELECT job.limit_key FROM holdfast.job_ready AS job
            WHERE job.queue = :queue AND job.limit_key > keys.limit_key
            ORDER BY job.queue, job.limit_key LIMIT 1)
    FROM keys
    WHERE keys.limit_key IS NOT NULL
)
SELECT limit_key FROM keys WHERE limit_key IS NOT NULL LIMIT :limit;

-- read_rules :many prepared — crosses tenants: all rules with their revision
-- The row of kind 'revision' always exists.
SELECT 'revision' AS kind, '' AS name, flow.revision AS weight, NULL AS max_running,
       NULL AS max_running_per_tenant, NULL AS max_depth, NULL AS max_depth_per_tenant,
       NULL AS small_depth, NULL AS rate_count, NULL AS rate_seconds,
       CAST(NULL AS {instant}) AS paused_at, NULL AS paused_by, NULL AS pause_reason, NULL AS set_by
FROM holdfast.flow AS flow
WHERE flow.only_row = 1
UNION ALL
SELECT 'queue', name, weight, max_running, max_running_per_tenant, max_depth,
       max_depth_per_tenant, small_depth, rate_count, rate_seconds, paused_at, paused_by,
       pause_reason, set_by
FROM holdfast.queue
UNION ALL
SELECT 'tenant', CAST(org_id AS text), weight, max_running, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, set_by
FROM holdfast.tenant
UNION ALL
SELECT 'key', name, NULL, max_running, NULL, NULL, NULL, NULL, rate_count, rate_seconds, NULL,
       NULL, NULL, set_by
FROM holdfast.limit_key;

-- read_revision :one — crosses tenants: the revision, raised by every change of a rule
SELECT revision FROM holdfast.flow WHERE only_row = 1;

-- raise_revision :affected — crosses tenants: claims under the old rules return nothing from now on
UPDATE holdfast.flow SET revision = revision + 1 WHERE only_row = 1;

-- list_queues :many — crosses tenants: the rules of every queue
SELECT name, weight, max_running, max_running_per_tenant, max_depth, max_depth_per_tenant,
       small_depth, rate_count, rate_seconds, paused_at, paused_by, pause_reason, set_by
FROM holdfast.queue
ORDER BY name;

-- list_tenants :many — crosses tenants: all tenants that have rules
SELECT org_id, weight, max_running, set_by FROM holdfast.tenant ORDER BY org_id;

-- list_keys :many — crosses tenants: all keys that have rules
SELECT name, max_running, rate_count, rate_seconds, set_by FROM holdfast.limit_key ORDER BY name;

-- count_running :many — crosses tenants: active leases, which concurrency caps count
SELECT queue, org_id, limit_key, count(*) AS jobs
FROM holdfast.job_running
WHERE lease_expires_at >= {now}
GROUP BY queue, org_id, limit_key;

-- refill_queue :maybe — crosses tenants: the token bucket of a queue, refilled for the elapsed time
-- A clock that was set back neither adds nor removes tokens.
UPDATE holdfast.queue
SET tokens = CASE
        WHEN refilled_at IS NULL THEN rate_count
        WHEN refilled_at > {now} THEN CASE WHEN tokens < rate_count THEN tokens ELSE rate_count END
        WHEN tokens + {ms_since(refilled_at)} * rate_count / (rate_seconds * 1000.0) < rate_count
            THEN tokens + {ms_since(refilled_at)} * rate_count / (rate_seconds * 1000.0)
        ELSE rate_count END,
    refilled_at = {now}
WHERE name = :queue AND rate_count IS NOT NULL
RETURNING tokens;

-- refill_keys :many — crosses tenants: the token buckets of keys that have a rate, refilled
UPDATE holdfast.limit_key AS mine
SET tokens = CASE
        WHEN mine.refilled_at IS NULL THEN mine.rate_count
        WHEN mine.refilled_at > {now} THEN
            CASE WHEN mine.tokens < mine.rate_count THEN mine.tokens ELSE mine.rate_count END
        WHEN mine.tokens + {ms_since(mine.refilled_at)} * mine.rate_count
            / (mine.rate_seconds * 1000.0) < mine.rate_count
            THEN mine.tokens + {ms_since(mine.refilled_at)} * mine.rate_count
                / (mine.rate_seconds * 1000.0)
        ELSE mine.rate_count END,
    refilled_at = {now}
FROM {rows keys: limit_key text}
WHERE mine.name = keys.limit_key AND mine.rate_count IS NOT NULL
RETURNING name, tokens;

-- consume_queue_tokens :affected — crosses tenants: take tokens from the bucket of a queue
UPDATE holdfast.queue SET tokens = tokens - :jobs WHERE name = :queue AND rate_count IS NOT NULL;

-- consume_key_tokens :affected — crosses tenants: take tokens from the buckets of keys
UPDATE holdfast.limit_key AS mine
SET tokens = mine.tokens - spent.jobs
FROM {rows spent: name text, jobs integer}
WHERE mine.name = spent.name AND mine.rate_count IS NOT NULL;

-- save_queues :many — crosses tenants: store what code declares; an operator's changes stay
INSERT INTO holdfast.queue AS mine
    (name, weight, max_running, max_running_per_tenant, max_depth, max_depth_per_tenant,
     small_depth, rate_count, rate_seconds, set_by, updated_at)
SELECT queues.name, queues.weight, queues.max_running, queues.max_running_per_tenant,
       queues.max_depth, queues.max_depth_per_tenant, queues.small_depth, queues.rate_count,
       queues.rate_seconds, CAST(:set_by AS text), {now}
FROM {rows queues: name text, weight integer, max_running integer, max_running_per_tenant integer,
      max_depth integer, max_depth_per_tenant integer, small_depth integer, rate_count integer,
      rate_seconds integer}
WHERE TRUE
ON CONFLICT (name) DO UPDATE
SET weight = excluded.weight, max_running = excluded.max_running,
    max_running_per_tenant = excluded.max_running_per_tenant, max_depth = excluded.max_depth,
    max_depth_per_tenant = excluded.max_depth_per_tenant, small_depth = excluded.small_depth,
    rate_count = excluded.rate_count, rate_seconds = excluded.rate_seconds,
    refilled_at = CASE WHEN mine.rate_count IS NOT NULL THEN mine.refilled_at END,
    set_by = excluded.set_by, updated_at = excluded.updated_at
WHERE (mine.set_by = 'code' OR excluded.set_by = 'operator')
  AND (mine.weight <> excluded.weight
       OR mine.max_running IS DISTINCT FROM excluded.max_running
       OR mine.max_running_per_tenant IS DISTINCT FROM excluded.max_running_per_tenant
       OR mine.max_depth IS DISTINCT FROM excluded.max_depth
       OR mine.max_depth_per_tenant IS DISTINCT FROM excluded.max_depth_per_tenant
       OR mine.small_depth IS DISTINCT FROM excluded.small_depth
       OR mine.rate_count IS DISTINCT FROM excluded.rate_count
       OR mine.rate_seconds IS DISTINCT FROM excluded.rate_seconds
       OR mine.set_by <> excluded.set_by)
RETURNING name;

-- save_tenants :many — crosses tenants: each row names its tenant
INSERT INTO holdfast.tenant AS mine (org_id, weight, max_running, set_by, updated_at)
SELECT tenants.org_id, tenants.weight, tenants.max_running, CAST(:set_by AS text), {now}
FROM {rows tenants: org_id uuid, weight integer, max_running integer}
WHERE TRUE
ON CONFLICT (org_id) DO UPDATE
SET weight = excluded.weight, max_running = excluded.max_running, set_by = excluded.set_by,
    updated_at = excluded.updated_at
WHERE (mine.set_by = 'code' OR excluded.set_by = 'operator')
  AND (mine.weight <> excluded.weight OR mine.max_running IS DISTINCT FROM excluded.max_running
       OR mine.set_by <> excluded.set_by)
RETURNING org_id;

-- save_keys :many — crosses tenants: a key belongs to the application and is shared by all tenants
INSERT INTO holdfast.limit_key AS mine (name, max_running, rate_count, rate_seconds, set_by, updated_at)
SELECT keys.name, keys.max_running, keys.rate_count, keys.rate_seconds, CAST(:set_by AS text), {now}
FROM {rows keys: name text, max_running integer, rate_count integer, rate_seconds integer}
WHERE TRUE
ON CONFLICT (name) DO UPDATE
SET max_running = excluded.max_running, rate_count = excluded.rate_count,
    rate_seconds = excluded.rate_seconds,
    refilled_at = CASE WHEN mine.rate_count IS NOT NULL THEN mine.refilled_at END,
    set_by = excluded.set_by, updated_at = excluded.updated_at
WHERE (mine.set_by = 'code' OR excluded.set_by = 'operator')
  AND (mine.max_running IS DISTINCT FROM excluded.max_running
       OR mine.rate_count IS DISTINCT FROM excluded.rate_count
       OR mine.rate_seconds IS DISTINCT FROM excluded.rate_seconds
       OR mine.set_by <> excluded.set_by)
RETURNING name;

-- release_queue :affected — crosses tenants: replace an operator's values by those of the code
UPDATE holdfast.queue SET set_by = 'code', updated_at = {now} WHERE name = :name AND set_by = 'operator';

-- delete_tenant :affected — a tenant without a rule has weight 1 and no cap
DELETE FROM holdfast.tenant WHERE org_id = :org_id;

-- delete_key :affected — crosses tenants: a key without a rule limits nothing
DELETE FROM holdfast.limit_key WHERE name = :name;

-- pause_queue :affected — crosses tenants: stop claims; running jobs continue
UPDATE holdfast.queue
SET paused_at = {now}, paused_by = :actor, pause_reason = :reason, updated_at = {now}
WHERE name = :name AND paused_at IS NULL;

-- resume_queue :affected — crosses tenants: resume claims
UPDATE holdfast.queue
SET paused_at = NULL, paused_by = NULL, pause_reason = NULL, updated_at = {now}
WHERE name = :name AND paused_at IS NOT NULL;

-- find_crowded :many — crosses tenants: queues that should stay short and are not
SELECT queue.name, queue.small_depth
FROM holdfast.queue AS queue
WHERE queue.small_depth IS NOT NULL AND queue.small_depth < (
    SELECT count(*) FROM (
        SELECT 1 FROM holdfast.job_ready AS job
        WHERE job.queue = queue.name
        ORDER BY job.queue, job.limit_key, job.org_id, job.turn
        LIMIT (SELECT max(limited.small_depth) + 1 FROM holdfast.queue AS limited)) AS head);

-- count_waiting :many — crosses tenants: the depth of each queue and the age of its oldest job
SELECT queue, count(*) AS jobs, count(DISTINCT org_id) AS tenants, min(created_at) AS oldest_at,
       count(not_before_at) AS deferred
FROM (SELECT queue, org_id, created_at, CAST(NULL AS {instant}) AS not_before_at
      FROM holdfast.job_ready
      UNION ALL
      SELECT queue, org_id, created_at, not_before_at FROM holdfast.job_waiting) AS queued
GROUP BY queue;
