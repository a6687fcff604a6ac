-- The engine's statements. A worker serves every tenant of its queues, so the statements of the job
-- lifecycle cross tenants and are marked so; each names the tenant of every row that it writes.

-- insert_jobs :many prepared bulk — existing keys return no row; if one queue is full, no row is returned
-- Only PostgreSQL counts a queue in a function, which stops at the limit. WITH comes after INSERT,
-- because a caller's sqlite3 connection opens its transaction depending on the first word. SQLite
-- reads the shared columns once and finds each by an automatic index: if every job has its own, the
-- join of 400 took 2.1 ms per job without the index and takes 0.15 ms with it. A job without a key
-- has the key that ends with its id; key_of is the id in a given key of that form. On SQLite events
-- are numbered without gaps, so an existing key must not get a number.
INSERT INTO holdfast.job_envelope
    (id, org_id, project_id, job_type, category, actor_type, actor_id, request_id, correlation_id,
     idempotency_key, payload, payload_hash, priority, unit_key, limit_key, turn, scheduled_for,
     traceparent, routing_decision, replay_of, origin_queue, queue, stage, pipeline_version,
     max_attempts, not_before_at, created_at, event_id)
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
           (SELECT job.limit_key FROM holdfast.job_ready AS job
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
           + (SELECT count(*) FROM holdfast.job_ready AS job WHERE job.queue = asked.queue)
           + (SELECT count(*) FROM holdfast.job_waiting AS job WHERE job.queue = asked.queue){end})
       OR (asked.max_depth_per_tenant IS NOT NULL AND asked.max_depth_per_tenant < asked.of_tenant
           + (SELECT count(*) FROM keys CROSS JOIN holdfast.job_ready AS job
              WHERE keys.queue = asked.queue AND job.queue = keys.queue
                AND job.limit_key = keys.limit_key AND job.org_id = asked.org_id)
           + (SELECT count(*) FROM holdfast.job_waiting AS job
              WHERE job.queue = asked.queue AND job.org_id = asked.org_id))
)
SELECT jobs.id, shared.org_id, shared.project_id, shared.job_type, shared.category,
       shared.actor_type, shared.actor_id, shared.request_id, shared.correlation_id,
       jobs.idempotency_key, jobs.payload, jobs.payload_hash, shared.priority, jobs.unit_key,
       shared.limit_key, jobs.turn, shared.scheduled_for, shared.traceparent,
       shared.routing_decision, shared.replay_of, shared.origin_queue,
       nullif(shared.queue, shared.origin_queue), shared.stage, shared.pipeline_version,
       shared.max_attempts, shared.not_before_at, {now}, {next_event}
FROM {rows jobs: frame integer, id uuid, idempotency_key text, key_of uuid, payload json,
      payload_hash text, unit_key text, turn uuid}
CROSS JOIN (SELECT * FROM {rows shared: frame integer, org_id uuid, project_id uuid, job_type text,
      category text, actor_type text, actor_id text, request_id text, correlation_id text,
      priority smallint, limit_key text, scheduled_for instant, traceparent text,
      routing_decision json, replay_of uuid, origin_queue text, queue text, stage text,
      pipeline_version text, max_attempts integer, not_before_at instant} LIMIT 1000000) AS shared
WHERE shared.frame = jobs.frame
  AND NOT EXISTS (SELECT 1 FROM crowded)
  AND (SELECT own.id FROM holdfast.job_envelope AS own
       WHERE own.org_id = shared.org_id AND own.id = jobs.key_of
         AND own.idempotency_key IS NULL) IS NULL{only sqlite}
  AND NOT EXISTS (SELECT 1 FROM holdfast.job_envelope AS given
                  WHERE given.org_id = shared.org_id
                    AND given.idempotency_key = jobs.idempotency_key)
  AND (shared.replay_of IS NOT NULL OR NOT EXISTS (
      SELECT 1 FROM holdfast.job_envelope AS given
      WHERE given.org_id = shared.org_id AND given.job_type = shared.job_type
        AND given.unit_key = jobs.unit_key AND given.replay_of IS NULL)){end}
ON CONFLICT DO NOTHING
RETURNING id, created_at;

-- insert_new_jobs :many prepared bulk — crosses tenants: insert_jobs for jobs without keys and units
-- Their ids are new, so there is nothing to look for: PostgreSQL inserts a row in 9.5 microseconds
-- instead of 12.5. Returns no row if a queue has a depth limit, which insert_jobs counts.
INSERT INTO holdfast.job_envelope
    (id, org_id, project_id, job_type, category, actor_type, actor_id, request_id, correlation_id,
     payload, payload_hash, priority, limit_key, turn, scheduled_for, traceparent, routing_decision,
     replay_of, origin_queue, queue, stage, pipeline_version, max_attempts, not_before_at, created_at,
     event_id)
SELECT jobs.id, shared.org_id, shared.project_id, shared.job_type, shared.category,
       shared.actor_type, shared.actor_id, shared.request_id, shared.correlation_id, jobs.payload,
       jobs.payload_hash, shared.priority, shared.limit_key, jobs.turn, shared.scheduled_for,
       shared.traceparent, shared.routing_decision, shared.replay_of, shared.origin_queue,
       nullif(shared.queue, shared.origin_queue), shared.stage, shared.pipeline_version,
       shared.max_attempts, shared.not_before_at, {now}, {next_event}
FROM {rows jobs: frame integer, id uuid, payload json, payload_hash text, turn uuid}
CROSS JOIN (SELECT * FROM {rows shared: frame integer, org_id uuid, project_id uuid, job_type text,
      category text, actor_type text, actor_id text, request_id text, correlation_id text,
      priority smallint, limit_key text, scheduled_for instant, traceparent text,
      routing_decision json, replay_of uuid, origin_queue text, queue text, stage text,
      pipeline_version text, max_attempts integer, not_before_at instant} LIMIT 1000000) AS shared
WHERE shared.frame = jobs.frame
  AND NOT EXISTS (
    SELECT 1 FROM {rows shared: queue text}
    JOIN holdfast.queue AS queue ON queue.name = shared.queue
    WHERE queue.max_depth IS NOT NULL OR queue.max_depth_per_tenant IS NOT NULL)
RETURNING created_at;

-- enqueue_jobs :many — crosses tenants: insert_jobs with its duplicates, on the caller's connection
-- A tenant may not write the table. The function runs with its owner's rights and trusts parameters
-- only from the engine, not from a tenant.
SELECT place, id, org_id, job_type, idempotency_key, created_at, outcome
FROM holdfast.enqueue_jobs(
    CAST(CAST(:jobs AS text) AS json), CAST(CAST(:shared AS text) AS json),
    CAST(:now AS timestamptz))
ORDER BY place;

-- find_duplicates :many — the existing jobs with these keys
SELECT job.id, job.org_id, job.job_type, keys.idempotency_key, job.payload_hash, job.created_at,
       job.attempt_count
FROM {rows keys: org_id uuid, idempotency_key text, key_of uuid}
JOIN holdfast.job AS job ON job.org_id = keys.org_id AND job.id = coalesce(
    (SELECT given.id FROM holdfast.job_envelope AS given
     WHERE given.org_id = keys.org_id AND given.idempotency_key = keys.idempotency_key),
    (SELECT own.id FROM holdfast.job_envelope AS own
     WHERE own.org_id = keys.org_id AND own.id = keys.key_of AND own.idempotency_key IS NULL));

-- record_seen :many — the keys of these jobs were requested again
-- It waits for a transaction that prunes one of them, and then returns no row for it.
INSERT INTO holdfast.job_key_seen AS mine (org_id, job_id, last_seen_at)
SELECT job.org_id, job.id, {now}
FROM (SELECT DISTINCT seen.org_id, seen.id FROM {rows seen: org_id uuid, id uuid}) AS asked
JOIN holdfast.job_envelope AS job ON job.org_id = asked.org_id AND job.id = asked.id
WHERE TRUE
{keep_row(job)}
ON CONFLICT (org_id, job_id) DO UPDATE SET last_seen_at = excluded.last_seen_at
RETURNING job_id;

-- find_full :maybe — crosses tenants: the full queue among the requested ones
-- Only PostgreSQL counts in a function, which stops at the limit.
SELECT queue.name, queue.max_depth, queue.max_depth_per_tenant
FROM {rows asked: queue text, org_id uuid, of_queue bigint, of_tenant bigint}
JOIN holdfast.queue AS queue ON queue.name = asked.queue
WHERE queue.max_depth IS NOT NULL OR queue.max_depth_per_tenant IS NOT NULL
ORDER BY CASE
    WHEN {only postgres}holdfast.is_full(asked.queue, asked.of_queue){end}{only sqlite}
         queue.max_depth < asked.of_queue
         + (SELECT count(*) FROM holdfast.job_ready AS job WHERE job.queue = asked.queue)
         + (SELECT count(*) FROM holdfast.job_waiting AS job
            WHERE job.queue = asked.queue){end} THEN 0
    WHEN queue.max_depth_per_tenant < asked.of_tenant
         + (SELECT count(*) FROM holdfast.job_ready AS job
            WHERE job.queue = asked.queue AND job.org_id = asked.org_id)
         + (SELECT count(*) FROM holdfast.job_waiting AS job
            WHERE job.queue = asked.queue AND job.org_id = asked.org_id) THEN 0
    ELSE 1 END
LIMIT 1;

-- claimed :fragment — the jobs of the CTE taken; PostgreSQL inserts their claims
found AS MATERIALIZED (
    SELECT asked.id, asked.org_id, asked.project_id, asked.job_type, asked.category, asked.actor_type,
           asked.actor_id, coalesce(asked.request_id, CAST(asked.id AS text)) AS request_id,
           coalesce(asked.correlation_id, asked.request_id, CAST(asked.id AS text))
               AS correlation_id,
           coalesce(asked.idempotency_key,
                    asked.job_type || ':' || CAST(asked.org_id AS text) || ':'
                    || coalesce(CAST(asked.project_id AS text), '') || ':'
                    || replace(CAST(asked.id AS text), '-', '')) AS idempotency_key,
           asked.payload, asked.priority, asked.unit_key, asked.scheduled_for, asked.traceparent,
           asked.routing_decision, asked.replay_of, asked.created_at, taken.queue,
           coalesce(attempt.stage, asked.stage) AS stage,
           coalesce(attempt.pipeline_version, asked.pipeline_version) AS pipeline_version,
           coalesce(attempt.attempt_count, 0) AS attempt_count,
           coalesce(attempt.max_attempts, asked.max_attempts) AS max_attempts,
           taken.lease_token + 1 AS lease_token, {now} AS claimed_at,
           CAST(:worker_id AS text) AS claimed_by,
           (SELECT cancel.requested_at FROM holdfast.job_cancel AS cancel
            WHERE cancel.org_id = taken.org_id
              AND cancel.job_id = CASE WHEN taken.lease_token > 0 THEN taken.job_id END)
               AS cancel_requested_at,
           attempt.first_failed_at, taken.turn, taken.limit_key
    FROM taken
    JOIN holdfast.job_envelope AS asked
      ON asked.org_id = taken.org_id AND asked.id = taken.job_id
    {last_attempt attempt: taken.org_id, CASE WHEN taken.lease_token > 0 THEN taken.job_id END}
){only postgres},
started AS (
    INSERT INTO holdfast.job_running
        (org_id, job_id, turn, claimed_at, lease_expires_at, lease_token, started_attempt,
         attempt_count, max_attempts, queue, limit_key, stage, claimed_by)
    SELECT org_id, id, turn, claimed_at, {later(:lease_ms)}, lease_token, attempt_count + 1,
           attempt_count, max_attempts, queue, limit_key, stage, claimed_by
    FROM found
){end}
SELECT * FROM found

-- claim_jobs :many — crosses tenants: claim the allocated share of each tenant backlog
-- The backlogs may be of any number of queues. PostgreSQL claims in this statement; SQLite, which has
-- no INSERT in WITH, continues with start_jobs. Only PostgreSQL has LATERAL; SQLite walks the rows of
-- each backlog with a recursive query. MATERIALIZED keeps PostgreSQL from repeating a LIMIT under a
-- nested loop and claiming too many. :backlog_count and :limit are row estimates for its planner,
-- which would otherwise sort the table. Expired jobs are canceled by the poll before a claim; the
-- condition on deadlines is for those that expired since. A share without a tenant is that of the
-- next waiting tenant after the one that was served.
WITH {only sqlite}RECURSIVE{end}
shares AS MATERIALIZED (
    SELECT queue, limit_key, quota, floor, coalesce(
        org_id,
        (SELECT job.org_id FROM holdfast.job_ready AS job
         WHERE job.queue = shares.queue AND job.limit_key = shares.limit_key
           AND job.org_id > shares.served
         ORDER BY job.queue, job.limit_key, job.org_id LIMIT 1),
        (SELECT job.org_id FROM holdfast.job_ready AS job
         WHERE job.queue = shares.queue AND job.limit_key = shares.limit_key
         ORDER BY job.queue, job.limit_key, job.org_id LIMIT 1)) AS org_id
    FROM {rows shares: queue text, limit_key text, org_id uuid, served uuid, quota integer,
          floor uuid}
    WHERE (SELECT revision FROM holdfast.flow WHERE only_row = 1) = :revision
    LIMIT :backlog_count
),
{only sqlite}
walk (queue, limit_key, org_id, quota, place, turn) AS (
    SELECT shares.queue, shares.limit_key, shares.org_id, shares.quota, 1,
           (SELECT job.turn FROM holdfast.job_ready AS job
            WHERE job.queue = shares.queue AND job.limit_key = shares.limit_key
              AND job.org_id = shares.org_id AND job.turn > shares.floor
            ORDER BY job.turn LIMIT 1)
    FROM shares
    UNION ALL
    SELECT walk.queue, walk.limit_key, walk.org_id, walk.quota, walk.place + 1,
           (SELECT job.turn FROM holdfast.job_ready AS job
            WHERE job.queue = walk.queue AND job.limit_key = walk.limit_key
              AND job.org_id = walk.org_id AND job.turn > walk.turn
            ORDER BY job.turn LIMIT 1)
    FROM walk
    WHERE walk.turn IS NOT NULL AND walk.place < walk.quota
),
{end}
taken AS MATERIALIZED (
    SELECT job.queue, job.limit_key, job.org_id, job.turn, job.job_id, job.lease_token
    {only sqlite}
    FROM walk
    CROSS JOIN holdfast.job_ready AS job
    WHERE job.queue = walk.queue AND job.limit_key = walk.limit_key
      AND job.org_id = walk.org_id AND job.turn = walk.turn
    {end}
    {only postgres}
    FROM shares
    CROSS JOIN LATERAL (
        SELECT ready.* FROM holdfast.job_ready AS ready
        WHERE ready.queue = shares.queue AND ready.limit_key = shares.limit_key
          AND ready.org_id = shares.org_id AND ready.turn > shares.floor
          AND (ready.unit = '' OR {unit_free(CAST(ready.org_id AS text) || ready.unit)})
        ORDER BY ready.queue, ready.limit_key, ready.org_id, ready.turn
        LIMIT shares.quota
        {skip_locked}) AS job
    WHERE TRUE
    {end}
      AND coalesce((SELECT deadline.deadline_at FROM holdfast.job_deadline AS deadline
                    WHERE deadline.org_id = job.org_id AND deadline.job_id = job.job_id)
                   > {now}, TRUE)
    LIMIT :limit
),
{use claimed};

-- claim_oldest :many — crosses tenants: the oldest jobs of each queue, in the order of the queues
-- PostgreSQL claims in this statement; SQLite continues with start_jobs. SQLite has no LATERAL: it
-- looks up the oldest jobs of each queue by the primary key. With a further column it would evaluate
-- the subquery again for each row: 500 jobs took 230 ms instead of 20.
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
oldest AS MATERIALIZED (
    SELECT queues.place, queues.name AS queue, found.org_id, found.id, found.limit_key,
           found.created_at{only postgres}, found.turn, found.lease_token{end}
    FROM queues
    {only postgres}CROSS JOIN LATERAL ({end}
    {only sqlite}CROSS JOIN holdfast.job_envelope AS found
        ON (found.org_id, found.id) IN ({end}
        SELECT oldest.org_id, oldest.id{only postgres}, oldest.limit_key, oldest.created_at,
               oldest.turn, oldest.lease_token{end} FROM (
            SELECT * FROM (
                SELECT job.org_id, job.job_id AS id, job.limit_key, job.created_at, job.turn,
                       job.lease_token
                FROM holdfast.job_ready AS job
                JOIN holdfast.job_envelope AS asked
                  ON asked.org_id = job.org_id AND asked.id = job.job_id
                WHERE job.queue = queues.name AND job.lease_token >= 0
                  AND (:any_type = 1
                       OR asked.job_type IN (
                           SELECT types.job_type FROM {rows types: job_type text}))
                  AND (job.limit_key = '~batch') = (:of_batch = 1)
                  AND job.limit_key NOT IN (SELECT keys.limit_key FROM keys WHERE keys.room < 1)
                  AND asked.id NOT IN (SELECT without.id FROM {rows without: id uuid})
                  AND (:any_route = 1 OR NOT EXISTS (
                      SELECT 1 FROM {rows shut: org_id uuid, provider text, model text}
                      WHERE shut.org_id = asked.org_id
                        AND shut.provider = coalesce({field(asked.routing_decision, provider)}, '')
                        AND shut.model = coalesce({field(asked.routing_decision, model)}, '')))
                  AND job.org_id NOT IN (SELECT caps.org_id FROM caps WHERE caps.room < 1)
                  AND (asked.unit_key IS NULL OR {unit_free(CAST(asked.org_id AS text) || asked.job_type || asked.unit_key)})
                ORDER BY job.queue, job.created_at, job.job_id
                LIMIT :limit
                {skip_held(job)}
            ) AS fresh
            UNION ALL
            SELECT * FROM (
                SELECT job.org_id, job.job_id AS id, job.limit_key, job.created_at, job.turn,
                       job.lease_token
                FROM holdfast.job_waiting AS job
                JOIN holdfast.job_envelope AS asked
                  ON asked.org_id = job.org_id AND asked.id = job.job_id
                WHERE job.queue = queues.name
                  AND (:waits_too = 1 OR job.not_before_at <= {now})
                  AND (:any_type = 1
                       OR asked.job_type IN (
                           SELECT types.job_type FROM {rows types: job_type text}))
                  AND (job.limit_key = '~batch') = (:of_batch = 1)
                  AND job.limit_key NOT IN (SELECT keys.limit_key FROM keys WHERE keys.room < 1)
                  AND asked.id NOT IN (SELECT without.id FROM {rows without: id uuid})
                  AND (:any_route = 1 OR NOT EXISTS (
                      SELECT 1 FROM {rows shut: org_id uuid, provider text, model text}
                      WHERE shut.org_id = asked.org_id
                        AND shut.provider = coalesce({field(asked.routing_decision, provider)}, '')
                        AND shut.model = coalesce({field(asked.routing_decision, model)}, '')))
                  AND job.org_id NOT IN (SELECT caps.org_id FROM caps WHERE caps.room < 1)
                  AND (asked.unit_key IS NULL OR {unit_free(CAST(asked.org_id AS text) || asked.job_type || asked.unit_key)})
                ORDER BY job.created_at, job.job_id
                LIMIT :limit
                {skip_held(job)}
            ) AS early
        ) AS oldest
    ) {only postgres}AS found{end}
),
placed AS (
    SELECT oldest.*,
           row_number() OVER (PARTITION BY limit_key ORDER BY place, created_at, id) AS of_key,
           row_number() OVER (PARTITION BY org_id ORDER BY place, created_at, id) AS of_tenant
    FROM oldest
),
taken AS MATERIALIZED (
    {only postgres}
    SELECT placed.queue, placed.limit_key, placed.org_id, placed.turn, placed.id AS job_id,
           placed.lease_token
    FROM placed
    {end}
    {only sqlite}
    SELECT placed.queue, placed.limit_key, placed.org_id, coalesce(asked.turn, asked.id) AS turn,
           placed.id AS job_id,
           coalesce(waiting.lease_token, ready.lease_token) AS lease_token
    FROM placed
    CROSS JOIN holdfast.job_envelope AS asked
      ON asked.org_id = placed.org_id AND asked.id = placed.id
    LEFT JOIN holdfast.job_waiting AS waiting
      ON waiting.org_id = placed.org_id AND waiting.job_id = placed.id
    LEFT JOIN holdfast.job_ready AS ready
      ON ready.queue = placed.queue AND ready.limit_key = placed.limit_key
     AND ready.org_id = placed.org_id AND ready.turn = coalesce(asked.turn, asked.id)
    {end}
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
),
{use claimed};

-- start_jobs :affected bulk — crosses tenants: the claims that claim_jobs or claim_oldest has found
INSERT INTO holdfast.job_running
    (org_id, job_id, turn, started_event_id, claimed_at, lease_expires_at, lease_token,
     started_attempt, attempt_count, max_attempts, queue, limit_key, stage, claimed_by)
SELECT claims.org_id, claims.id, claims.position, {next_event}, claims.claimed_at,
       {later(:lease_ms)}, claims.lease_token, claims.attempt_count + 1, claims.attempt_count,
       claims.max_attempts, claims.queue,
       claims.limit_key, claims.stage, claims.claimed_by
FROM {rows claims: org_id uuid, id uuid, position uuid, claimed_at instant, lease_token integer,
      attempt_count integer, max_attempts integer, queue text, limit_key text, stage text,
      claimed_by text}
WHERE TRUE;

-- renew_leases :many bulk — crosses tenants: renew leases that are still held; the others are lost
UPDATE holdfast.job_running AS job
SET lease_expires_at = {later(:lease_ms)}
FROM {rows held: org_id uuid, id uuid, lease_token integer}
WHERE job.org_id = held.org_id AND job.job_id = held.id AND job.lease_token = held.lease_token
RETURNING job.org_id, job.job_id AS id, job.lease_token;

-- renew_free_leases :many — crosses tenants: renew_leases without locked rows
WITH free AS MATERIALIZED (
    SELECT job.org_id, job.job_id
    FROM {rows held: org_id uuid, id uuid, lease_token integer}
    JOIN holdfast.job_running AS job ON job.org_id = held.org_id AND job.job_id = held.id
     AND job.lease_token = held.lease_token
    {skip_held(job)}
)
UPDATE holdfast.job_running AS job
SET lease_expires_at = {later(:lease_ms)}
FROM free
WHERE job.org_id = free.org_id AND job.job_id = free.job_id
RETURNING job.org_id, job.job_id AS id, job.lease_token;

-- find_leases :many — crosses tenants: which of these claims are still held; takes no lock
SELECT job.org_id, job.job_id AS id, job.lease_token
FROM {rows held: org_id uuid, id uuid, lease_token integer}
JOIN holdfast.job_running AS job ON job.org_id = held.org_id AND job.job_id = held.id
 AND job.lease_token = held.lease_token;

-- find_lease :maybe — whether the claim is still held; takes no lock
SELECT job.job_id AS id, cancel.requested_at AS cancel_requested_at
FROM holdfast.job_running AS job
LEFT JOIN holdfast.job_cancel AS cancel
  ON cancel.org_id = job.org_id AND cancel.job_id = job.job_id
WHERE job.org_id = :org_id AND job.job_id = :id AND job.lease_token = :lease_token;

-- check_lease :maybe — whether the claim is still held; locks the row until the transaction ends
SELECT job.job_id AS id,
       (SELECT cancel.requested_at FROM holdfast.job_cancel AS cancel
        WHERE cancel.org_id = job.org_id AND cancel.job_id = job.job_id) AS cancel_requested_at
FROM holdfast.job_running AS job
WHERE job.org_id = :org_id AND job.job_id = :id AND job.lease_token = :lease_token
{hold_row};

-- read_clock :one — crosses tenants: the current time of the store
SELECT {now} AS now;

-- find_canceled :many — crosses tenants: claims of this worker for which a cancel was requested
SELECT job.org_id, job.job_id AS id, job.lease_token
FROM {rows held: org_id uuid, id uuid, lease_token integer}
JOIN holdfast.job_cancel AS cancel ON cancel.org_id = held.org_id AND cancel.job_id = held.id
JOIN holdfast.job_running AS job
  ON job.org_id = held.org_id AND job.job_id = held.id AND job.lease_token = held.lease_token;

-- find_stale :many — crosses tenants: claims whose lease expired or whose worker is dead
-- Only PostgreSQL can lock the dead letter of a replay; SQLite has one writer. A claim of batch
-- processing may be part of a provider batch, so batch processing rescues it. A worker that sent a
-- heartbeat after the lease ended is alive and does not hold the claim. A worker whose next
-- heartbeat may still arrive is waited for: two intervals of heartbeat.beat_seconds. The statement
-- waits for no lock: not of a row, an execution unit, or the dead letter of a replay.
SELECT job.id, job.org_id, job.project_id, job.job_type, job.category, job.actor_type, job.actor_id,
       job.request_id, job.correlation_id, job.idempotency_key, job.payload, job.priority,
       job.unit_key, job.scheduled_for, job.traceparent, job.routing_decision, job.replay_of,
       job.created_at, job.queue, job.stage, job.pipeline_version, job.attempt_count,
       job.max_attempts, job.lease_token, job.claimed_at, job.claimed_by, job.cancel_requested_at,
       job.first_failed_at, job.turn, job.limit_key,
       CASE WHEN CAST(:dead_worker_id AS text) IS NULL AND EXISTS (
                SELECT 1 FROM holdfast.worker AS worker
                WHERE worker.worker_id = running.claimed_by
                  AND worker.seen_at > running.lease_expires_at)
            THEN (SELECT count(*) FROM holdfast.audit_event AS event
                  WHERE event.jobs IS NULL AND event.job_id = job.id AND event.org_id = job.org_id
                    AND event.name = 'job.released'
                    AND {field(event.detail, reason)} = 'lease_expired') END AS releases
FROM holdfast.job_running AS running
JOIN holdfast.job AS job ON job.org_id = running.org_id AND job.id = running.job_id
WHERE (running.claimed_by = CAST(:dead_worker_id AS text)
       OR (CAST(:dead_worker_id AS text) IS NULL AND running.lease_expires_at < {now}
           AND NOT EXISTS (
               SELECT 1 FROM holdfast.worker AS worker
               WHERE worker.worker_id = running.claimed_by
                 AND worker.seen_at <= running.lease_expires_at
                 AND worker.seen_at > {later(-2 * CASE WHEN worker.lease_ms < 45000
                                                       THEN worker.lease_ms / 3 ELSE 15000 END)})))
  AND (running.claimed_by = coalesce(CAST(:dead_worker_id AS text), '') OR NOT EXISTS (
      SELECT 1 FROM holdfast.lease_extension AS extension
      WHERE extension.org_id = running.org_id AND extension.job_id = running.job_id
        AND extension.lease_token = running.lease_token AND extension.lease_expires_at >= {now}))
  AND running.limit_key <> '~batch'
  AND (job.unit_key IS NULL OR {unit_free(CAST(job.org_id AS text) || job.job_type || job.unit_key)})
  {only postgres}
  AND (job.replay_of IS NULL
       OR EXISTS (SELECT 1 FROM holdfast.dead_letter AS letter
                  WHERE letter.org_id = job.org_id AND letter.job_id = job.replay_of
                  FOR UPDATE SKIP LOCKED)
       OR NOT EXISTS (SELECT 1 FROM holdfast.dead_letter AS letter
                      WHERE letter.org_id = job.org_id AND letter.job_id = job.replay_of))
  {end}
ORDER BY running.lease_expires_at
LIMIT :limit
{skip_held(running)};

-- count_stale :one — crosses tenants: whether there is a claim to rescue: 0 or 1
SELECT count(*) AS jobs
FROM (SELECT 1 AS one FROM holdfast.job_running AS job
      WHERE lease_expires_at < {now} AND limit_key <> '~batch'
      LIMIT 1) AS stale;

-- insert_outcomes :many bulk — crosses tenants: the outcomes of held claims; a lost lease changes nothing
-- The store knows the key lifetime of every category, also of those that this process does not
-- know.
INSERT INTO holdfast.job_outcome
    (org_id, job_id, event_id, settled_by, started_event_id, started_attempt, claimed_at, claimed_by,
     finished_at, key_expires_at, lease_token, attempt_count, state, stage, error_class, last_error,
     provider_batch_id, result)
WITH keys AS MATERIALIZED (
    SELECT name AS category, {later(key_ttl_ms)} AS expires_at FROM holdfast.category
)
SELECT held.org_id, held.job_id, CASE WHEN changes.in_group = 1 THEN {next_event(changes.in_group)} END,
       CASE WHEN changes.in_group = 1 THEN CAST(:actor_id AS text) END, held.started_event_id,
       held.started_attempt, held.claimed_at, held.claimed_by, {now},
       coalesce(keys.expires_at, {later(2592000000)}),
       held.lease_token, changes.attempt_count, changes.state, nullif(changes.stage, held.stage),
       changes.error_class, changes.last_error, NULL, changes.result
FROM {rows changes: org_id uuid, id uuid, lease_token integer, state text, stage text,
      attempt_count integer, error_class text, last_error text, result json, category text,
      at_stage text, in_group integer}
JOIN holdfast.job_running AS held
  ON {same(held.org_id, changes.org_id)} AND {same(held.job_id, changes.id)}
 AND held.lease_token = changes.lease_token AND held.stage IN (changes.at_stage, '')
LEFT JOIN keys ON keys.category = changes.category
WHERE TRUE
ORDER BY changes.org_id
RETURNING org_id, job_id, lease_token;

-- insert_outcomes_of_batch :many bulk — crosses tenants: the same for jobs that a provider had
INSERT INTO holdfast.job_outcome
    (org_id, job_id, event_id, settled_by, started_event_id, started_attempt, claimed_at, claimed_by,
     finished_at, key_expires_at, lease_token, attempt_count, state, stage, error_class, last_error,
     provider_batch_id, result)
WITH keys AS MATERIALIZED (
    SELECT name AS category, {later(key_ttl_ms)} AS expires_at FROM holdfast.category
)
SELECT held.org_id, held.job_id, CASE WHEN changes.in_group = 1 THEN {next_event(changes.in_group)} END,
       CASE WHEN changes.in_group = 1 THEN CAST(:actor_id AS text) END, held.started_event_id,
       held.started_attempt, held.claimed_at, held.claimed_by, {now},
       coalesce(keys.expires_at, {later(2592000000)}),
       held.lease_token, changes.attempt_count, changes.state, nullif(changes.stage, held.stage),
       changes.error_class, changes.last_error, held.provider_batch_id, changes.result
FROM {rows changes: org_id uuid, id uuid, lease_token integer, state text, stage text,
      attempt_count integer, error_class text, last_error text, result json, category text,
      at_stage text, in_group integer}
JOIN holdfast.job_submitted AS held
  ON {same(held.org_id, changes.org_id)} AND {same(held.job_id, changes.id)}
 AND held.lease_token = changes.lease_token AND held.stage IN (changes.at_stage, '')
LEFT JOIN keys ON keys.category = changes.category
WHERE TRUE
ORDER BY changes.org_id
RETURNING org_id, job_id, lease_token;

-- new_attempt :fragment — the first columns of an attempt of the claim held
INSERT INTO holdfast.job_attempt
    (org_id, job_id, number, lease_token, ended_at, not_before_at, first_failed_at, last_error_at,
     attempt_count, max_attempts, keeps_lease, stage, pipeline_version, error_class, last_error,
     provider_batch_id, started_event_id, started_attempt, claimed_at, claimed_by)
SELECT held.org_id, held.job_id, coalesce(newest.number, 0) + 1, held.lease_token, {now},
       CASE WHEN changes.delay_ms IS NOT NULL THEN {later(changes.delay_ms)} END,
       -- The earlier of the two, in case the clock was set back.
       CASE WHEN changes.last_error IS NULL OR newest.first_failed_at < {now}
            THEN newest.first_failed_at ELSE {now} END,
       CASE WHEN changes.last_error IS NULL THEN newest.last_error_at ELSE {now} END,

-- claim_of_attempt :fragment — the claim that an attempt ends, and the row set of changes
       CASE WHEN changes.keeps_lease THEN NULL ELSE held.started_event_id END,
       CASE WHEN changes.keeps_lease THEN NULL ELSE held.started_attempt END,
       CASE WHEN changes.keeps_lease THEN NULL ELSE held.claimed_at END,
       CASE WHEN changes.keeps_lease THEN NULL ELSE held.claimed_by END
FROM {rows changes: org_id uuid, id uuid, lease_token integer, keeps_lease boolean, stage text,
      attempt_count integer, max_attempts integer, delay_ms bigint, error_class text,
      last_error text, at_stage text}

-- insert_attempts :many — crosses tenants: held claims that end without an outcome, or go on with the next stage
{use new_attempt}
       changes.attempt_count, coalesce(changes.max_attempts, held.max_attempts), changes.keeps_lease,
       changes.stage, coalesce(newest.pipeline_version, asked.pipeline_version),
       coalesce(changes.error_class, newest.error_class),
       coalesce(changes.last_error, newest.last_error), newest.provider_batch_id,
       {use claim_of_attempt}
JOIN holdfast.job_running AS held
  ON {same(held.org_id, changes.org_id)} AND {same(held.job_id, changes.id)}
 AND held.lease_token = changes.lease_token AND held.stage IN (changes.at_stage, '')
JOIN holdfast.job_envelope AS asked ON asked.org_id = held.org_id AND asked.id = held.job_id
{last_attempt newest: held.org_id, held.job_id}
WHERE TRUE
RETURNING org_id, job_id, lease_token;

-- insert_attempts_of_batch :many — crosses tenants: the same for jobs that a provider had
{use new_attempt}
       changes.attempt_count, coalesce(changes.max_attempts, newest.max_attempts, asked.max_attempts), changes.keeps_lease,
       changes.stage, coalesce(newest.pipeline_version, asked.pipeline_version),
       coalesce(changes.error_class, newest.error_class),
       coalesce(changes.last_error, newest.last_error), coalesce(newest.provider_batch_id, held.provider_batch_id),
       {use claim_of_attempt}
JOIN holdfast.job_submitted AS held
  ON {same(held.org_id, changes.org_id)} AND {same(held.job_id, changes.id)}
 AND held.lease_token = changes.lease_token AND held.stage IN (changes.at_stage, '')
JOIN holdfast.job_envelope AS asked ON asked.org_id = held.org_id AND asked.id = held.job_id
{last_attempt newest: held.org_id, held.job_id}
WHERE TRUE
RETURNING org_id, job_id, lease_token;

-- insert_submitted :many — crosses tenants: held claims whose request was sent in a batch
-- The first provider batch of a job is kept.
INSERT INTO holdfast.job_submitted
    (org_id, job_id, started_event_id, started_attempt, claimed_at, claimed_by, submitted_at,
     lease_token, queue, stage, provider_batch_id)
SELECT held.org_id, held.job_id, held.started_event_id, held.started_attempt, held.claimed_at,
       held.claimed_by, {now}, held.lease_token, held.queue, changes.stage,
       changes.provider_batch_id
FROM {rows changes: org_id uuid, id uuid, lease_token integer, stage text, provider_batch_id text,
      at_stage text}
JOIN holdfast.job_running AS held
  ON {same(held.org_id, changes.org_id)} AND {same(held.job_id, changes.id)}
 AND held.lease_token = changes.lease_token AND held.stage IN (changes.at_stage, '')
WHERE TRUE
RETURNING org_id, job_id, lease_token;

-- hold_claims :affected — crosses tenants: lock the claims of these jobs in the order of their ids
SELECT held.job_id
FROM {rows jobs: org_id uuid, id uuid}
JOIN holdfast.job_running AS held
  ON {same(held.org_id, jobs.org_id)} AND {same(held.job_id, jobs.id)}
ORDER BY jobs.org_id, jobs.id
{lock_row(held)};

-- find_recorded :many — crosses tenants: outcomes that the same claim has already recorded
SELECT changes.place, job.state, job.lease_token, job.cancel_requested_at
FROM {rows changes: place integer, org_id uuid, id uuid, lease_token bigint, state text, event text,
      at_stage text}
JOIN holdfast.job AS job ON job.org_id = changes.org_id AND job.id = changes.id
WHERE CASE WHEN changes.event IS NULL
    THEN job.finished_at IS NOT NULL AND job.lease_token = changes.lease_token
         AND job.state = changes.state
    ELSE EXISTS (
        SELECT 1 FROM holdfast.audit_event AS event
        WHERE event.jobs IS NULL AND event.job_id = job.id AND event.org_id = job.org_id
          AND event.name = changes.event
          AND event.actor_id = :actor_id
          AND CAST({field(event.detail, lease_token)} AS text) = CAST(changes.lease_token AS text)
          AND coalesce({field(event.detail, stage)}, changes.at_stage) = changes.at_stage)
    END;

-- insert_events :affected bulk — crosses tenants: unchanged fields come from the job row
-- An event of a change has a digest of the resulting job and, after a colon, one of the finished
-- stage. Verify compares the newest of them with the rows.
INSERT INTO holdfast.audit_event
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
JOIN holdfast.job_stage AS stage ON stage.org_id = jobs.org_id AND stage.job_id = jobs.id;

-- list_cancelable :many — crosses tenants: the columns of these jobs that a cancel needs
SELECT job.org_id, job.id, job.job_type, job.state, job.attempt_count, job.replay_of,
       job.idempotency_key, rule.cancel_role
FROM {rows jobs: org_id uuid, id uuid}
JOIN holdfast.job AS job ON job.org_id = jobs.org_id AND job.id = jobs.id
LEFT JOIN holdfast.job_type_rule AS rule ON rule.job_type = job.job_type;

-- hold_places :many — crosses tenants: these jobs, each kept where it is until the transaction ends
-- It waits for a transaction that moves a job, and then does not return the job: where it is now is
-- found by the next call. Rows are locked in the order of their ids, so that two calls never wait for
-- each other.
WITH held_running AS MATERIALIZED (
    SELECT place.org_id, place.job_id
    FROM {rows jobs: org_id uuid, id uuid}
    JOIN holdfast.job_running AS place
  ON {same(place.org_id, jobs.org_id)} AND {same(place.job_id, jobs.id)}
    ORDER BY place.org_id, place.job_id
    {hold_row}
),
held_submitted AS MATERIALIZED (
    SELECT place.org_id, place.job_id
    FROM {rows jobs: org_id uuid, id uuid}
    JOIN holdfast.job_submitted AS place
  ON {same(place.org_id, jobs.org_id)} AND {same(place.job_id, jobs.id)}
    ORDER BY place.org_id, place.job_id
    {lock_row(place)}
),
held_waiting AS MATERIALIZED (
    SELECT place.org_id, place.job_id
    FROM {rows jobs: org_id uuid, id uuid}
    JOIN holdfast.job_waiting AS place
  ON {same(place.org_id, jobs.org_id)} AND {same(place.job_id, jobs.id)}
    ORDER BY place.org_id, place.job_id
    {lock_row(place)}
),
held_ready AS MATERIALIZED (
    SELECT place.org_id, place.job_id
    FROM {rows jobs: org_id uuid, id uuid}
    JOIN holdfast.job_envelope AS asked ON asked.org_id = jobs.org_id AND asked.id = jobs.id
    JOIN holdfast.job_ready AS place
      ON place.queue IN (asked.origin_queue, asked.queue)
     AND place.limit_key = asked.limit_key AND place.org_id = asked.org_id
     AND place.turn = coalesce(asked.turn, asked.id) AND place.job_id = asked.id
    ORDER BY place.org_id, place.job_id
    {lock_row(place)}
)
SELECT org_id, job_id AS id FROM held_running
UNION ALL SELECT org_id, job_id FROM held_submitted
UNION ALL SELECT org_id, job_id FROM held_waiting
UNION ALL SELECT org_id, job_id FROM held_ready
UNION ALL SELECT ended.org_id, ended.job_id
FROM {rows jobs: org_id uuid, id uuid}
JOIN holdfast.job_outcome AS ended ON ended.org_id = jobs.org_id AND ended.job_id = jobs.id;

-- insert_cancels :affected — crosses tenants: request the cancellation of jobs that have not ended
-- After hold_places, which says which have not. SQLite refuses a second request before it finds the
-- conflict.
INSERT INTO holdfast.job_cancel (org_id, job_id, requested_at)
SELECT jobs.org_id, jobs.id, {now}
FROM {rows jobs: org_id uuid, id uuid}
WHERE NOT EXISTS (SELECT 1 FROM holdfast.job_cancel AS earlier
                  WHERE earlier.org_id = jobs.org_id AND earlier.job_id = jobs.id)
ORDER BY jobs.org_id, jobs.id
ON CONFLICT DO NOTHING;

-- find_cancels :many — crosses tenants: the cancel requests of these jobs
SELECT cancel.org_id, cancel.job_id, cancel.requested_at
FROM {rows jobs: org_id uuid, id uuid}
JOIN holdfast.job_cancel AS cancel ON cancel.org_id = jobs.org_id AND cancel.job_id = jobs.id;

-- count_attempts :many — crosses tenants: how many attempts of these jobs have failed
SELECT job.org_id, job.id, job.job_type, job.attempt_count
FROM {rows jobs: org_id uuid, id uuid}
JOIN holdfast.job AS job ON job.org_id = jobs.org_id AND job.id = jobs.id;

-- cancel_jobs :many — crosses tenants: cancel jobs that no worker runs
INSERT INTO holdfast.job_outcome
    (org_id, job_id, started_event_id, started_attempt, claimed_at, claimed_by, finished_at,
     key_expires_at, lease_token, attempt_count, state, provider_batch_id)
SELECT job.org_id, job.id, submitted.started_event_id, submitted.started_attempt,
       submitted.claimed_at, submitted.claimed_by, {now},
       {later(coalesce(category.key_ttl_ms, 2592000000))}, job.lease_token, job.attempt_count,
       'canceled', job.provider_batch_id
FROM {rows jobs: org_id uuid, id uuid}
JOIN holdfast.job AS job ON job.org_id = jobs.org_id AND job.id = jobs.id
LEFT JOIN holdfast.job_submitted AS submitted
  ON submitted.org_id = jobs.org_id AND submitted.job_id = jobs.id
LEFT JOIN holdfast.category AS category ON category.name = job.category
WHERE job.state IN ('queued', 'batch_submitted')
RETURNING org_id, job_id AS id;

-- find_job :maybe — one job of one tenant
SELECT * FROM holdfast.job WHERE org_id = :org_id AND id = :id;

-- find_org :maybe — crosses tenants: the tenant of a job, for operators who have only an id
-- One lookup by the primary key for each tenant.
WITH RECURSIVE tenants (org_id) AS (
    SELECT (SELECT job.org_id FROM holdfast.job_envelope AS job ORDER BY job.org_id LIMIT 1)
    UNION ALL
    SELECT (SELECT job.org_id FROM holdfast.job_envelope AS job
            WHERE job.org_id > tenants.org_id ORDER BY job.org_id LIMIT 1)
    FROM tenants
    WHERE tenants.org_id IS NOT NULL
)
SELECT coalesce(
    (SELECT tenants.org_id FROM tenants
     WHERE EXISTS (SELECT 1 FROM holdfast.job_envelope AS job
                   WHERE job.org_id = tenants.org_id AND job.id = CAST(:id AS {uuid}))
     LIMIT 1),
    (SELECT event.org_id FROM holdfast.audit_event AS event
     WHERE event.job_id = CAST(:id AS {uuid}) AND event.jobs IS NULL LIMIT 1)) AS org_id
WHERE TRUE;

-- list_events :many — the timeline of one job
SELECT id, org_id, project_id, job_id, job_type, name, attempt, actor_type, actor_id, request_id,
       correlation_id, at, detail
FROM holdfast.job_event
WHERE org_id = :org_id AND job_id = :job_id
ORDER BY id;

-- find_dead_letter :maybe — the dead letter of one job
SELECT * FROM holdfast.dead_letter WHERE org_id = :org_id AND job_id = :job_id;

-- find_key :maybe — the record of an idempotency key until it expires
SELECT record.* FROM holdfast.idempotency_key AS record
WHERE record.org_id = :org_id AND record.job_id = coalesce(
        (SELECT given.id FROM holdfast.job_envelope AS given
         WHERE given.org_id = :org_id AND given.idempotency_key = :idempotency_key),
        (SELECT own.id FROM holdfast.job_envelope AS own
         WHERE own.org_id = :org_id AND own.id = CAST(:key_of AS {uuid})
           AND own.idempotency_key IS NULL))
  AND record.idempotency_key = :idempotency_key
  AND (record.expires_at IS NULL OR record.expires_at > {now});
