-- The engine's statements. A worker serves every tenant of its queues, so the statements of the job
-- lifecycle cross tenants and are marked so; each names the tenant of every row that it writes.

-- insert_jobs :many — existing keys return no row; if one queue is full, no row is returned
-- Only PostgreSQL counts a queue in a function, which stops at the limit. WITH comes after INSERT,
-- because a caller's sqlite3 connection opens its transaction depending on the first word. SQLite
-- reads the shared columns once and finds each by an automatic index: if every job has its own, the
-- join of 400 took 2.1 ms per job without the index and takes 0.15 ms with it.
INSERT INTO holdfast.job
    (id, org_id, project_id, job_type, category, actor_type, actor_id, request_id, correlation_id,
     idempotency_key, payload, payload_hash, priority, unit_key, limit_key, turn, scheduled_for,
     traceparent, routing_decision, replay_of, origin_queue, queue, stage, pipeline_version,
     max_attempts, not_before_at, created_at, updated_at, key_last_seen_at)
WITH RECURSIVE asked AS MATERIALIZED (
    SELECT shared.queue, shared.org_id, queue.max_depth, queue.max_depth_per_tenant,
           sum(shared.jobs) OVER (PARTITION BY shared.queue) AS of_queue,
           sum(shared.jobs) OVER (PARTITION BY shared.queue, shared.org_id) AS of_tenant
    FROM {rows shared: org_id uuid, queue text, jobs integer}
    JOIN holdfast.queue AS queue ON queue.name = shared.queue
    WHERE queue.max_depth IS NOT NULL OR queue.max_depth_per_tenant IS NOT NULL
),
keys (queue, limit_key) AS (
    SELECT DISTINCT asked.queue, CAST('' AS text) FROM asked
    WHERE asked.max_depth_per_tenant IS NOT NULL
    UNION ALL
    SELECT keys.queue,
           (SELECT job.limit_key FROM holdfast.claimable AS job
            WHERE job.queue = keys.queue AND job.limit_key > keys.limit_key
            ORDER BY job.queue, job.limit_key LIMIT 1)
    FROM keys
    WHERE keys.limit_key IS NOT NULL
),
crowded AS MATERIALIZED (
    SELECT asked.queue FROM asked
    WHERE (asked.max_depth IS NOT NULL AND {only postgres}
           holdfast.is_full(asked.queue, asked.of_queue){end}{only sqlite}
           asked.max_depth < asked.of_queue
           + (SELECT count(*) FROM holdfast.claimable AS job WHERE job.queue = asked.queue)
           + (SELECT count(*) FROM holdfast.job AS job WHERE job.queue = asked.queue
              AND job.state = 'queued' AND job.not_before_at IS NOT NULL){end})
       OR (asked.max_depth_per_tenant IS NOT NULL AND asked.max_depth_per_tenant < asked.of_tenant
           + (SELECT count(*) FROM keys CROSS JOIN holdfast.claimable AS job
              WHERE keys.queue = asked.queue AND job.queue = keys.queue
                AND job.limit_key = keys.limit_key AND job.org_id = asked.org_id)
           + (SELECT count(*) FROM holdfast.job AS job
              WHERE job.queue = asked.queue AND job.org_id = asked.org_id
                AND job.finished_at IS NULL AND job.claimed_at IS NULL
                AND job.not_before_at IS NOT NULL AND job.state <> 'batch_submitted'))
)
SELECT jobs.id, shared.org_id, shared.project_id, shared.job_type, shared.category,
       shared.actor_type, shared.actor_id, coalesce(shared.request_id, CAST(jobs.id AS text)),
       coalesce(shared.correlation_id, shared.request_id, CAST(jobs.id AS text)),
       jobs.idempotency_key, jobs.payload, jobs.payload_hash, shared.priority, jobs.unit_key,
       shared.limit_key, coalesce(jobs.turn, jobs.id), shared.scheduled_for, shared.traceparent,
       shared.routing_decision, shared.replay_of, shared.origin_queue, shared.queue, shared.stage,
       shared.pipeline_version, shared.max_attempts, shared.not_before_at, {now}, {now}, {now}
FROM {rows jobs: frame integer, id uuid, idempotency_key text, payload json, payload_hash text,
      unit_key text, turn uuid}
{only sqlite}CROSS{end} JOIN {only sqlite}(SELECT * FROM {end}{rows shared: frame integer, org_id uuid, project_id uuid,
      job_type text, category text, actor_type text, actor_id text, request_id text,
      correlation_id text, priority smallint, limit_key text, scheduled_for instant,
      traceparent text, routing_decision json, replay_of uuid, origin_queue text, queue text,
      stage text, pipeline_version text, max_attempts integer, not_before_at instant}{only sqlite}
      LIMIT -1) AS shared{end}
  ON shared.frame = jobs.frame
WHERE NOT EXISTS (SELECT 1 FROM crowded)
  AND (SELECT history.id FROM holdfast.job_history AS history
       WHERE history.org_id = shared.org_id
         AND history.idempotency_key = jobs.idempotency_key) IS NULL
ON CONFLICT (org_id, idempotency_key) DO NOTHING
RETURNING id, created_at;

-- enqueue_jobs :many — crosses tenants: insert_jobs with its duplicates, on the caller's connection
-- A tenant may not write the table. The function runs with its owner's rights and trusts parameters
-- only from the engine, not from a tenant.
SELECT place, id, org_id, job_type, idempotency_key, created_at, outcome
FROM holdfast.enqueue_jobs(
    CAST(CAST(:jobs AS text) AS json), CAST(CAST(:shared AS text) AS json),
    CAST(:now AS timestamptz))
ORDER BY place;

-- find_duplicates :many — the existing jobs with these keys; records that they were requested again
UPDATE holdfast.job AS job
SET key_last_seen_at = {now}
FROM {rows keys: org_id uuid, idempotency_key text}
WHERE job.org_id = keys.org_id AND job.idempotency_key = keys.idempotency_key
RETURNING job.id, job.org_id, job.job_type, job.idempotency_key, job.payload_hash, job.created_at,
          job.attempt_count;

-- find_archived :many — the same for archived jobs, which change in nothing else
UPDATE holdfast.job_history AS job
SET key_last_seen_at = {now}
FROM {rows keys: org_id uuid, idempotency_key text}
WHERE job.org_id = keys.org_id AND job.idempotency_key = keys.idempotency_key
RETURNING job.id, job.org_id, job.job_type, job.idempotency_key, job.payload_hash, job.created_at,
          job.attempt_count;

-- find_full :maybe — crosses tenants: the full queue among the requested ones
-- Only PostgreSQL counts in a function, which stops at the limit.
SELECT queue.name, queue.max_depth, queue.max_depth_per_tenant
FROM {rows asked: queue text, org_id uuid, of_queue bigint, of_tenant bigint}
JOIN holdfast.queue AS queue ON queue.name = asked.queue
WHERE queue.max_depth IS NOT NULL OR queue.max_depth_per_tenant IS NOT NULL
ORDER BY CASE
    WHEN {only postgres}holdfast.is_full(asked.queue, asked.of_queue){end}{only sqlite}
         queue.max_depth < asked.of_queue + (
             SELECT count(*) FROM holdfast.job AS job
             WHERE job.queue = asked.queue AND job.state = 'queued'){end} THEN 0
    WHEN queue.max_depth_per_tenant < asked.of_tenant + (
             SELECT count(*) FROM holdfast.job AS job
             WHERE job.queue = asked.queue AND job.org_id = asked.org_id
               AND job.state = 'queued') THEN 0
    ELSE 1 END
LIMIT 1;

-- claim_jobs :many — crosses tenants: claim the allocated share of each tenant backlog
-- The backlogs may be of any number of queues. Only PostgreSQL has LATERAL; SQLite walks the index
-- of each backlog with a recursive query. MATERIALIZED keeps PostgreSQL from repeating a LIMIT
-- under a nested loop and claiming too many. :backlog_count and :limit are row estimates for its
-- planner, which would otherwise sort the table.
WITH {only sqlite}RECURSIVE{end}
shares AS MATERIALIZED (
    SELECT queue, limit_key, org_id, quota
    FROM {rows shares: queue text, limit_key text, org_id uuid, quota integer}
    WHERE (SELECT revision FROM holdfast.flow WHERE only_row = 1) = :revision
    LIMIT :backlog_count
),
{only sqlite}
walk (queue, limit_key, org_id, quota, place, turn) AS (
    SELECT shares.queue, shares.limit_key, shares.org_id, shares.quota, 1,
           (SELECT job.turn FROM holdfast.claimable AS job
            WHERE job.queue = shares.queue AND job.limit_key = shares.limit_key
              AND job.org_id = shares.org_id
            ORDER BY job.turn LIMIT 1)
    FROM shares
    UNION ALL
    SELECT walk.queue, walk.limit_key, walk.org_id, walk.quota, walk.place + 1,
           (SELECT job.turn FROM holdfast.claimable AS job
            WHERE job.queue = walk.queue AND job.limit_key = walk.limit_key
              AND job.org_id = walk.org_id AND job.turn > walk.turn
            ORDER BY job.turn LIMIT 1)
    FROM walk
    WHERE walk.turn IS NOT NULL AND walk.place < walk.quota
),
{end}
taken AS MATERIALIZED (
    SELECT job.org_id, job.id
    {only sqlite}
    FROM walk
    CROSS JOIN holdfast.job AS job
    WHERE job.state = 'queued' AND job.not_before_at IS NULL
      AND job.queue = walk.queue AND job.limit_key = walk.limit_key
      AND job.org_id = walk.org_id AND job.turn = walk.turn
    {end}
    {only postgres}
    FROM shares
    CROSS JOIN LATERAL (
        SELECT waiting.org_id, waiting.id FROM holdfast.job AS waiting
        WHERE waiting.state = 'queued' AND waiting.not_before_at IS NULL
          AND waiting.queue = shares.queue AND waiting.limit_key = shares.limit_key
          AND waiting.org_id = shares.org_id
          AND (waiting.unit_key IS NULL
               OR {unit_free(CAST(waiting.org_id AS text) || waiting.job_type || waiting.unit_key)})
        ORDER BY waiting.queue, waiting.limit_key, waiting.org_id, waiting.turn
        LIMIT shares.quota
        {skip_held(waiting)}) AS job
    WHERE TRUE
    {end}
      -- Expired jobs are canceled by the poll before a claim; this is for those that expired since.
      AND coalesce((SELECT deadline.deadline_at FROM holdfast.job_deadline AS deadline
                    WHERE deadline.org_id = job.org_id AND deadline.job_id = job.id)
                   > {now}, TRUE)
    LIMIT :limit
)
UPDATE holdfast.job AS job
SET state = 'processing', lease_token = lease_token + 1, claimed_at = {now},
    claimed_by = :worker_id, lease_expires_at = {later(:lease_ms)}, updated_at = {now}
FROM taken
WHERE job.org_id = taken.org_id AND job.id = taken.id
RETURNING job.id, job.org_id, job.project_id, job.job_type, job.category, job.actor_type,
          job.actor_id, job.request_id, job.correlation_id, job.idempotency_key, job.payload,
          job.priority, job.unit_key, job.scheduled_for, job.traceparent, job.routing_decision,
          job.replay_of, job.created_at, job.queue, job.stage, job.pipeline_version,
          job.attempt_count, job.max_attempts, job.lease_token, job.claimed_at, job.claimed_by,
          job.cancel_requested_at, job.first_failed_at, job.turn, job.limit_key;

-- claim_oldest :many — crosses tenants: the oldest jobs of each queue, in the order of the queues
-- The conditions of queued and not deferred jobs are written as in the index job_oldest. SQLite has
-- no LATERAL: it looks up the oldest jobs of each queue by the primary key. With a further column it
-- would evaluate the subquery again for each row: 500 jobs took 230 ms instead of 20.
WITH keys AS MATERIALIZED (
    SELECT limit_key, room FROM {rows keys: limit_key text, room integer}
),
patterns AS MATERIALIZED (
    SELECT prefix, room FROM {rows patterns: prefix text, room integer}
),
caps AS MATERIALIZED (
    SELECT org_id, room FROM {rows caps: org_id uuid, room integer}
),
queues AS MATERIALIZED (
    SELECT place, name FROM {rows queues: place integer, name text}
    LIMIT :queue_count
),
waiting AS MATERIALIZED (
    SELECT queues.place, found.org_id, found.id, found.limit_key, found.created_at
    FROM queues
    {only postgres}CROSS JOIN LATERAL ({end}
    {only sqlite}CROSS JOIN holdfast.job AS found
        ON (found.org_id, found.id) IN ({end}
        SELECT oldest.org_id, oldest.id{only postgres}, oldest.limit_key, oldest.created_at{end} FROM (
            SELECT * FROM (
                SELECT org_id, id, limit_key, created_at
                FROM holdfast.job AS job
                WHERE finished_at IS NULL AND claimed_at IS NULL AND not_before_at IS NULL
                  AND state <> 'batch_submitted' AND queue = queues.name
                  AND (:any_type = 1
                       OR job_type IN (SELECT types.job_type FROM {rows types: job_type text}))
                  AND (limit_key = '~batch') = (:of_batch = 1)
                  AND limit_key NOT IN (SELECT keys.limit_key FROM keys WHERE keys.room < 1)
                  AND id NOT IN (SELECT without.id FROM {rows without: id uuid})
                  AND (:any_route = 1 OR NOT EXISTS (
                      SELECT 1 FROM {rows shut: org_id uuid, provider text, model text}
                      WHERE shut.org_id = job.org_id
                        AND shut.provider = coalesce({field(job.routing_decision, provider)}, '')
                        AND shut.model = coalesce({field(job.routing_decision, model)}, '')))
                  AND org_id NOT IN (SELECT caps.org_id FROM caps WHERE caps.room < 1)
                  AND (unit_key IS NULL OR {unit_free(CAST(org_id AS text) || job_type || unit_key)})
                ORDER BY queue, created_at, id
                LIMIT :limit
                {skip_held(job)}
            ) AS fresh
            UNION ALL
            SELECT * FROM (
                SELECT org_id, id, limit_key, created_at
                FROM holdfast.job AS job
                WHERE state = 'queued' AND queue = queues.name AND not_before_at IS NOT NULL
                  AND (:waits_too = 1 OR not_before_at <= {now})
                  AND (:any_type = 1
                       OR job_type IN (SELECT types.job_type FROM {rows types: job_type text}))
                  AND (limit_key = '~batch') = (:of_batch = 1)
                  AND limit_key NOT IN (SELECT keys.limit_key FROM keys WHERE keys.room < 1)
                  AND id NOT IN (SELECT without.id FROM {rows without: id uuid})
                  AND (:any_route = 1 OR NOT EXISTS (
                      SELECT 1 FROM {rows shut: org_id uuid, provider text, model text}
                      WHERE shut.org_id = job.org_id
                        AND shut.provider = coalesce({field(job.routing_decision, provider)}, '')
                        AND shut.model = coalesce({field(job.routing_decision, model)}, '')))
                  AND org_id NOT IN (SELECT caps.org_id FROM caps WHERE caps.room < 1)
                  AND (unit_key IS NULL OR {unit_free(CAST(org_id AS text) || job_type || unit_key)})
                ORDER BY created_at, id
                LIMIT :limit
                {skip_held(job)}
            ) AS early
        ) AS oldest
    ) {only postgres}AS found{end}
),
placed AS (
    SELECT place, org_id, id, limit_key, created_at,
           row_number() OVER (PARTITION BY limit_key ORDER BY place, created_at, id) AS of_key,
           row_number() OVER (PARTITION BY org_id ORDER BY place, created_at, id) AS of_tenant
    FROM waiting
),
taken AS MATERIALIZED (
    SELECT placed.org_id, placed.id FROM placed
    WHERE (SELECT revision FROM holdfast.flow WHERE only_row = 1) = :revision
      AND placed.of_key <= coalesce(
          (SELECT keys.room FROM keys WHERE keys.limit_key = placed.limit_key),
          (SELECT patterns.room FROM patterns
           WHERE substr(placed.limit_key, 1, length(patterns.prefix)) = patterns.prefix
             AND placed.limit_key <> '~batch'
           ORDER BY length(patterns.prefix) DESC LIMIT 1), :limit)
      AND placed.of_tenant <= coalesce(
          (SELECT caps.room FROM caps WHERE caps.org_id = placed.org_id), :tenant_room)
      AND coalesce((SELECT deadline.deadline_at FROM holdfast.job_deadline AS deadline
                    WHERE deadline.org_id = placed.org_id AND deadline.job_id = placed.id)
                   > {now}, TRUE)
    ORDER BY placed.place, placed.created_at, placed.id
    LIMIT :limit
)
UPDATE holdfast.job AS job
SET state = 'processing', lease_token = lease_token + 1, claimed_at = {now},
    claimed_by = :worker_id, lease_expires_at = {later(:lease_ms)}, updated_at = {now}
FROM taken
WHERE job.org_id = taken.org_id AND job.id = taken.id
RETURNING job.id, job.org_id, job.project_id, job.job_type, job.category, job.actor_type,
          job.actor_id, job.request_id, job.correlation_id, job.idempotency_key, job.payload,
          job.priority, job.unit_key, job.scheduled_for, job.traceparent, job.routing_decision,
          job.replay_of, job.created_at, job.queue, job.stage, job.pipeline_version,
          job.attempt_count, job.max_attempts, job.lease_token, job.claimed_at, job.claimed_by,
          job.cancel_requested_at, job.first_failed_at, job.turn, job.limit_key;

-- list_due :many — crosses tenants: the rows that claim_oldest would consider
SELECT org_id, id, limit_key
FROM holdfast.job AS job
WHERE state = 'queued' AND queue = :queue
  AND (not_before_at IS NULL OR :waits_too = 1 OR not_before_at <= {now})
  AND (:any_type = 1 OR job_type IN (SELECT types.job_type FROM {rows types: job_type text}))
  AND (limit_key = '~batch') = (:of_batch = 1)
  AND id NOT IN (SELECT without.id FROM {rows without: id uuid})
  AND (:any_route = 1 OR NOT EXISTS (
      SELECT 1 FROM {rows shut: org_id uuid, provider text, model text}
      WHERE shut.org_id = job.org_id
        AND shut.provider = coalesce({field(job.routing_decision, provider)}, '')
        AND shut.model = coalesce({field(job.routing_decision, model)}, '')))
ORDER BY created_at, id
LIMIT :limit;

-- list_backlog :many — crosses tenants: the first jobs of one backlog
SELECT org_id, id, limit_key
FROM holdfast.job
WHERE state = 'queued' AND not_before_at IS NULL
  AND queue = :queue AND limit_key = :limit_key AND org_id = :org_id
ORDER BY queue, limit_key, org_id, turn
LIMIT :limit;

-- claim_job :many — crosses tenants: claim_jobs for one row, when another one violates a constraint
UPDATE holdfast.job AS job
SET state = 'processing', lease_token = lease_token + 1, claimed_at = {now},
    claimed_by = :worker_id, lease_expires_at = {later(:lease_ms)}, updated_at = {now}
WHERE job.org_id = :org_id AND job.id = :id AND job.state = 'queued'
  AND (job.not_before_at IS NULL OR job.not_before_at <= {now})
  AND (job.unit_key IS NULL
       OR {unit_free(CAST(job.org_id AS text) || job.job_type || job.unit_key)})
  AND coalesce((SELECT deadline.deadline_at FROM holdfast.job_deadline AS deadline
                WHERE deadline.org_id = job.org_id AND deadline.job_id = job.id)
               > {now}, TRUE)
RETURNING job.id, job.org_id, job.project_id, job.job_type, job.category, job.actor_type,
          job.actor_id, job.request_id, job.correlation_id, job.idempotency_key, job.payload,
          job.priority, job.unit_key, job.scheduled_for, job.traceparent, job.routing_decision,
          job.replay_of, job.created_at, job.queue, job.stage, job.pipeline_version,
          job.attempt_count, job.max_attempts, job.lease_token, job.claimed_at, job.claimed_by,
          job.cancel_requested_at, job.first_failed_at, job.turn, job.limit_key;

-- repair_job :affected — crosses tenants: repair an invalid row, so that it can be dead-lettered
UPDATE holdfast.job
SET max_attempts = CASE WHEN attempt_count >= max_attempts THEN attempt_count + 1
                        ELSE max_attempts END,
    result = NULL, updated_at = {now}
WHERE org_id = :org_id AND id = :id AND state IN ('queued', 'processing');

-- renew_leases :many bulk — crosses tenants: renew leases that are still held; the others are lost
UPDATE holdfast.job AS job
SET lease_expires_at = {later(:lease_ms)}
FROM {rows held: org_id uuid, id uuid, lease_token bigint}
WHERE job.org_id = held.org_id AND job.id = held.id AND job.lease_token = held.lease_token
  AND job.state = 'processing'
RETURNING job.org_id, job.id, job.lease_token, job.cancel_requested_at;

-- renew_free_leases :many — crosses tenants: renew_leases without locked rows
WITH free AS MATERIALIZED (
    SELECT job.org_id, job.id
    FROM {rows held: org_id uuid, id uuid, lease_token bigint}
    JOIN holdfast.job AS job ON job.org_id = held.org_id AND job.id = held.id
     AND job.lease_token = held.lease_token AND job.state = 'processing'
    {skip_held(job)}
)
UPDATE holdfast.job AS job
SET lease_expires_at = {later(:lease_ms)}
FROM free
WHERE job.org_id = free.org_id AND job.id = free.id
RETURNING job.org_id, job.id, job.lease_token, job.cancel_requested_at;

-- find_leases :many — crosses tenants: which of these claims are still held; takes no lock
SELECT job.org_id, job.id, job.lease_token, job.cancel_requested_at
FROM {rows held: org_id uuid, id uuid, lease_token bigint}
JOIN holdfast.job AS job ON job.org_id = held.org_id AND job.id = held.id
 AND job.lease_token = held.lease_token AND job.state = 'processing';

-- find_lease :maybe — whether the claim is still held; takes no lock
SELECT id, cancel_requested_at FROM holdfast.job
WHERE org_id = :org_id AND id = :id AND lease_token = :lease_token AND state = 'processing';

-- check_lease :maybe — whether the claim is still held; locks the row until the transaction ends
SELECT id, cancel_requested_at FROM holdfast.job
WHERE org_id = :org_id AND id = :id AND lease_token = :lease_token AND state = 'processing'
{hold_row};

-- read_clock :one — crosses tenants: the current time of the store
SELECT {now} AS now;

-- find_canceled :many — crosses tenants: claims of this worker for which a cancel was requested
SELECT job.org_id, job.id, job.lease_token
FROM {rows held: org_id uuid, id uuid, lease_token bigint}
JOIN holdfast.job AS job
  ON job.org_id = held.org_id AND job.id = held.id AND job.lease_token = held.lease_token
WHERE job.cancel_requested_at IS NOT NULL;

-- find_stale :many — crosses tenants: claims whose lease expired or whose worker is dead
-- Only PostgreSQL can lock the dead letter of a replay; SQLite has one writer. A claim of batch
-- processing may be part of a provider batch, so batch processing rescues it. A worker that sent a
-- heartbeat after the lease ended is alive and does not hold the claim. A worker whose next
-- heartbeat may still arrive is waited for: two intervals of heartbeat.beat_seconds. The statement
-- waits for no lock: not of a row, an execution unit, or the dead letter of a replay.
SELECT id, org_id, project_id, job_type, category, actor_type, actor_id, request_id,
       correlation_id, idempotency_key, payload, priority, unit_key, scheduled_for, traceparent,
       routing_decision, replay_of, created_at, queue, stage, pipeline_version, attempt_count,
       max_attempts, lease_token, claimed_at, claimed_by, cancel_requested_at, first_failed_at,
       turn, limit_key,
       CASE WHEN CAST(:dead_worker_id AS text) IS NULL AND EXISTS (
                SELECT 1 FROM holdfast.worker AS worker
                WHERE worker.worker_id = job.claimed_by AND worker.seen_at > job.lease_expires_at)
            THEN (SELECT count(*) FROM holdfast.job_event AS event
                  WHERE event.job_id = job.id AND event.org_id = job.org_id
                    AND event.name = 'job.released'
                    AND {field(event.detail, reason)} = 'lease_expired') END AS releases
FROM holdfast.job AS job
WHERE state = 'processing'
  AND (claimed_by = CAST(:dead_worker_id AS text)
       OR (CAST(:dead_worker_id AS text) IS NULL AND lease_expires_at < {now}
           AND NOT EXISTS (
               SELECT 1 FROM holdfast.worker AS worker
               WHERE worker.worker_id = job.claimed_by AND worker.seen_at <= job.lease_expires_at
                 AND worker.seen_at > {later(-2 * CASE WHEN worker.lease_ms < 45000
                                                       THEN worker.lease_ms / 3 ELSE 15000 END)})))
  AND (claimed_by = coalesce(CAST(:dead_worker_id AS text), '') OR NOT EXISTS (
      SELECT 1 FROM holdfast.lease_extension AS extension
      WHERE extension.org_id = job.org_id AND extension.job_id = job.id
        AND extension.lease_token = job.lease_token AND extension.lease_expires_at >= {now}))
  AND limit_key <> '~batch'
  AND (unit_key IS NULL OR {unit_free(CAST(org_id AS text) || job_type || unit_key)})
  {only postgres}
  AND (replay_of IS NULL
       OR EXISTS (SELECT 1 FROM holdfast.dead_letter AS letter
                  WHERE letter.org_id = job.org_id AND letter.job_id = job.replay_of
                  FOR UPDATE SKIP LOCKED)
       OR NOT EXISTS (SELECT 1 FROM holdfast.dead_letter AS letter
                      WHERE letter.org_id = job.org_id AND letter.job_id = job.replay_of))
  {end}
ORDER BY lease_expires_at
LIMIT :limit
{skip_held(job)};

-- count_stale :one — crosses tenants: whether there is a claim to rescue: 0 or 1
SELECT count(*) AS jobs
FROM (SELECT 1 AS one FROM holdfast.job AS job
      WHERE state = 'processing' AND lease_expires_at < {now}
        AND limit_key <> '~batch'
      LIMIT 1) AS stale;

-- settle_jobs :many bulk — crosses tenants: write outcomes of held claims; a lost lease changes nothing
-- The store knows the key lifetime of every category, also of those that this process does not
-- know.
UPDATE holdfast.job AS job
SET state = changes.state,
    queue = coalesce(changes.queue, job.queue),
    stage = coalesce(changes.stage, job.stage),
    pipeline_version = coalesce(changes.pipeline_version, job.pipeline_version),
    attempt_count = changes.attempt_count,
    max_attempts = coalesce(changes.max_attempts, job.max_attempts),
    not_before_at = CASE WHEN changes.delay_ms IS NULL THEN job.not_before_at
                         ELSE {later(changes.delay_ms)} END,
    lease_expires_at = CASE WHEN changes.state = 'processing' THEN job.lease_expires_at END,
    claimed_at = CASE WHEN changes.state = 'processing' THEN job.claimed_at END,
    claimed_by = CASE WHEN changes.state = 'processing' THEN job.claimed_by END,
    provider_batch_id = coalesce(job.provider_batch_id, changes.provider_batch_id),
    error_class = coalesce(changes.error_class, job.error_class),
    last_error = coalesce(changes.last_error, job.last_error),
    last_error_at = CASE WHEN changes.last_error IS NULL THEN job.last_error_at ELSE {now} END,
    -- The earlier of the two, in case the clock was set back.
    first_failed_at = CASE WHEN changes.last_error IS NULL OR job.first_failed_at < {now}
                           THEN job.first_failed_at ELSE {now} END,
    result = changes.result,
    finished_at = CASE WHEN changes.state IN ('completed', 'failed', 'canceled') THEN {now} END,
    key_expires_at = CASE WHEN changes.state IN ('completed', 'failed', 'canceled') THEN
        {later(coalesce((SELECT category.key_ttl_ms FROM holdfast.category AS category
                         WHERE category.name = job.category), 2592000000))} END,
    updated_at = {now}
FROM {rows changes: org_id uuid, id uuid, lease_token bigint, state text, queue text, stage text,
      pipeline_version text, attempt_count integer, max_attempts integer, delay_ms bigint,
      provider_batch_id text, error_class text, last_error text, result json, was text,
      at_stage text}
WHERE job.org_id = changes.org_id AND job.id = changes.id
  AND job.lease_token = changes.lease_token AND job.state = changes.was
  AND job.stage IN (changes.at_stage, '')
RETURNING job.org_id, job.id, job.lease_token, job.cancel_requested_at;

-- find_recorded :many — crosses tenants: outcomes that the same claim has already recorded
SELECT changes.place, job.state, job.lease_token, job.cancel_requested_at
FROM {rows changes: place integer, org_id uuid, id uuid, lease_token bigint, state text, event text,
      at_stage text}
JOIN holdfast.job AS job ON job.org_id = changes.org_id AND job.id = changes.id
WHERE CASE WHEN changes.event IS NULL
    THEN job.finished_at IS NOT NULL AND job.lease_token = changes.lease_token
         AND job.state = changes.state
    ELSE EXISTS (
        SELECT 1 FROM holdfast.job_event AS event
        WHERE event.job_id = job.id AND event.org_id = job.org_id AND event.name = changes.event
          AND event.actor_id = :actor_id
          AND CAST({field(event.detail, lease_token)} AS text) = CAST(changes.lease_token AS text)
          AND coalesce({field(event.detail, stage)}, changes.at_stage) = changes.at_stage)
    END
UNION ALL
SELECT changes.place, job.state, job.lease_token, job.cancel_requested_at
FROM {rows changes: place integer, org_id uuid, id uuid, lease_token bigint, state text, event text,
      at_stage text}
JOIN holdfast.job_history AS job ON job.org_id = changes.org_id AND job.id = changes.id
WHERE CASE WHEN changes.event IS NULL
    THEN job.finished_at IS NOT NULL AND job.lease_token = changes.lease_token
         AND job.state = changes.state
    ELSE EXISTS (
        SELECT 1 FROM holdfast.job_event AS event
        WHERE event.job_id = job.id AND event.org_id = job.org_id AND event.name = changes.event
          AND event.actor_id = :actor_id
          AND CAST({field(event.detail, lease_token)} AS text) = CAST(changes.lease_token AS text)
          AND coalesce({field(event.detail, stage)}, changes.at_stage) = changes.at_stage)
    END;

-- insert_events :affected bulk — crosses tenants: unchanged fields come from the job row
-- An event of a change has a digest of the resulting job and, after a colon, one of the finished
-- stage. Verify compares the newest of them with the rows.
INSERT INTO holdfast.job_event
    (org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
     correlation_id, at, detail, digest)
SELECT job.org_id, job.project_id, job.id, job.job_type, events.name, events.attempt, :actor_type,
       :actor_id, job.request_id, job.correlation_id, {now},
       CASE WHEN job.not_before_at IS NULL OR events.name NOT IN (
                'job.succeeded', 'job.advanced', 'job.retried', 'job.snoozed', 'job.released',
                'job.woken', 'job.submitted', 'job.canceled', 'job.cancel_requested')
            THEN events.detail
            ELSE {with_fields(events.detail): 'not_before_at', {stamp(job.not_before_at)}} END,
       CASE WHEN events.name IN (
                'job.succeeded', 'job.advanced', 'job.retried', 'job.snoozed', 'job.released',
                'job.woken', 'job.submitted', 'job.canceled', 'job.cancel_requested')
            THEN {digest state job} || CASE
                WHEN events.name IN ('job.advanced', 'job.succeeded')
                     AND {field(events.detail, stage)} IS NOT NULL THEN coalesce((
                    SELECT ':' || {digest stage stage} FROM holdfast.job_stage AS stage
                    WHERE stage.org_id = job.org_id AND stage.job_id = job.id
                      AND stage.stage = {field(events.detail, stage)}
                      AND stage.finished_at IS NOT NULL), '')
                ELSE '' END END
FROM {rows events: place integer, org_id uuid, id uuid, name text, attempt integer, detail json}
JOIN holdfast.job AS job ON job.org_id = events.org_id AND job.id = events.id
WHERE {numbered}
ORDER BY events.place;

-- insert_archived_events :affected — crosses tenants: insert_events for archived jobs
INSERT INTO holdfast.job_event
    (org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
     correlation_id, at, detail)
SELECT job.org_id, job.project_id, job.id, job.job_type, events.name, events.attempt, :actor_type,
       :actor_id, job.request_id, job.correlation_id, {now}, events.detail
FROM {rows events: place integer, org_id uuid, id uuid, name text, attempt integer, detail json}
JOIN holdfast.job_history AS job ON job.org_id = events.org_id AND job.id = events.id
WHERE {numbered}
ORDER BY events.place;

-- insert_dead_letters :affected — crosses tenants: each has the tenant of its job
INSERT INTO holdfast.dead_letter
    (org_id, job_id, job_type, queue, stage, error_class, last_error, last_stack,
     sanitized_context, attempts, first_failure_at, last_failure_at, created_at, updated_at)
SELECT job.org_id, job.id, job.job_type, job.origin_queue, job.stage, job.error_class,
       job.last_error, letters.last_stack, letters.sanitized_context, letters.attempts,
       job.first_failed_at, job.last_error_at, {now}, {now}
FROM {rows letters: org_id uuid, id uuid, last_stack text, sanitized_context json, attempts integer}
JOIN holdfast.job AS job ON job.org_id = letters.org_id AND job.id = letters.id
WHERE TRUE
ON CONFLICT DO NOTHING;

-- finish_stages :affected — crosses tenants: the result of a finished stage is never changed
INSERT INTO holdfast.job_stage AS mine
    (org_id, job_id, stage, attempts, output, updated_at, finished_at)
SELECT stages.org_id, stages.job_id, stages.stage, stages.attempts, stages.output, {now}, {now}
FROM {rows stages: org_id uuid, job_id uuid, stage text, attempts integer, output json}
WHERE TRUE
ON CONFLICT (org_id, job_id, stage) DO UPDATE
SET attempts = excluded.attempts, output = excluded.output, updated_at = excluded.updated_at,
    finished_at = excluded.finished_at
WHERE mine.finished_at IS NULL;

-- save_stage :affected — the checkpoint or progress of the running stage
INSERT INTO holdfast.job_stage AS mine (org_id, job_id, stage, checkpoint, progress, updated_at)
SELECT stages.org_id, stages.job_id, stages.stage, stages.checkpoint, stages.progress, {now}
FROM {rows stages: org_id uuid, job_id uuid, stage text, checkpoint json, progress json}
WHERE TRUE
ON CONFLICT (org_id, job_id, stage) DO UPDATE
SET checkpoint = coalesce(excluded.checkpoint, mine.checkpoint),
    progress = coalesce(excluded.progress, mine.progress),
    updated_at = excluded.updated_at;

-- list_stages :many — the stored stages of these jobs; crosses tenants
SELECT stage.org_id, stage.job_id, stage.stage, stage.attempts, stage.output, stage.checkpoint,
       stage.progress, stage.finished_at
FROM {rows jobs: org_id uuid, id uuid}
JOIN holdfast.job_stage AS stage ON stage.org_id = jobs.org_id AND stage.job_id = jobs.id
UNION ALL
SELECT stage.org_id, stage.job_id, stage.stage, stage.attempts, stage.output, stage.checkpoint,
       stage.progress, stage.finished_at
FROM {rows jobs: org_id uuid, id uuid}
JOIN holdfast.job_stage_history AS stage
  ON stage.org_id = jobs.org_id AND stage.job_id = jobs.id;

-- list_cancelable :many — crosses tenants: the columns of these jobs that a cancel needs
SELECT job.org_id, job.id, job.job_type, job.state, job.attempt_count, job.replay_of,
       job.idempotency_key, rule.cancel_role
FROM {rows jobs: org_id uuid, id uuid}
JOIN holdfast.job_record AS job ON job.org_id = jobs.org_id AND job.id = jobs.id
LEFT JOIN holdfast.job_type_rule AS rule ON rule.job_type = job.job_type;

-- request_cancels :many — crosses tenants: cancel queued jobs at once, request running ones to stop
UPDATE holdfast.job AS job
SET cancel_requested_at = coalesce(cancel_requested_at, {now}),
    state = CASE WHEN state = 'processing' THEN state ELSE 'canceled' END,
    finished_at = CASE WHEN state = 'processing' THEN NULL ELSE {now} END,
    key_expires_at = CASE WHEN state = 'processing' THEN NULL ELSE
        {later(coalesce((SELECT category.key_ttl_ms FROM holdfast.category AS category
                         WHERE category.name = job.category), 2592000000))} END,
    updated_at = {now}
FROM {rows jobs: org_id uuid, id uuid}
WHERE job.org_id = jobs.org_id AND job.id = jobs.id AND job.finished_at IS NULL
RETURNING job.org_id, job.id, job.state;

-- stop_jobs :many — crosses tenants: cancel requeued jobs for which a cancel was requested
UPDATE holdfast.job AS job
SET state = 'canceled', finished_at = {now}, updated_at = {now},
    key_expires_at = {later(coalesce((SELECT category.key_ttl_ms FROM holdfast.category AS category
                                      WHERE category.name = job.category), 2592000000))}
FROM {rows jobs: org_id uuid, id uuid}
WHERE job.org_id = jobs.org_id AND job.id = jobs.id AND job.state IN ('queued', 'batch_submitted')
  AND job.cancel_requested_at IS NOT NULL
RETURNING job.org_id, job.id;

-- find_job :maybe — one job of one tenant, archived or not
SELECT * FROM holdfast.job_record WHERE org_id = :org_id AND id = :id;

-- find_org :maybe — crosses tenants: the tenant of a job, for operators who have only an id
SELECT org_id FROM holdfast.job_event WHERE job_id = :id LIMIT 1;

-- list_events :many — the timeline of one job
SELECT id, org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
       correlation_id, at, detail
FROM holdfast.job_event
WHERE org_id = :org_id AND job_id = :job_id
ORDER BY id;

-- find_dead_letter :maybe — the dead letter of one job
SELECT * FROM holdfast.dead_letter WHERE org_id = :org_id AND job_id = :job_id;

-- find_key :maybe — the record of an idempotency key until it expires
SELECT * FROM holdfast.idempotency_key
WHERE org_id = :org_id AND idempotency_key = :idempotency_key
  AND (expires_at IS NULL OR expires_at > {now});
