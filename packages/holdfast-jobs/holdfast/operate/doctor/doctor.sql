-- What the doctor looks at: the database itself, then what stands in Holdfast's tables. Where one
-- database has no such thing, its statement finds nothing. Ages inside PostgreSQL are by its own
-- clock; what Holdfast wrote is as old as {now} says.

-- read_settings :many — crosses tenants: what decides whether an acknowledged commit stays
-- What the session would have by itself: this very transaction has limits of its own.
{only postgres}
SELECT name, reset_val AS setting FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names',
               'idle_in_transaction_session_timeout', 'statement_timeout', 'autovacuum',
               'track_counts')
ORDER BY name
{end}{only sqlite}
SELECT 'journal_mode' AS name, journal_mode AS setting FROM pragma_journal_mode
UNION ALL SELECT 'synchronous', synchronous FROM pragma_synchronous
UNION ALL SELECT 'busy_timeout', timeout FROM pragma_busy_timeout
UNION ALL SELECT 'sqlite_version', sqlite_version()
{end};

-- count_connections :many — crosses tenants: how many of the connections that there may be are in use
{only postgres}
SELECT 'the server' AS whose, CAST((SELECT sum(numbackends) FROM pg_stat_database) AS bigint) AS used,
       CAST(current_setting('max_connections') AS integer)
       - CAST(current_setting('superuser_reserved_connections') AS integer) AS most
UNION ALL
SELECT 'this database', stat.numbackends, db.datconnlimit
FROM pg_database AS db JOIN pg_stat_database AS stat ON stat.datid = db.oid
WHERE db.datname = current_database() AND db.datconnlimit >= 0
UNION ALL
SELECT 'this role', (SELECT count(*) FROM pg_stat_activity WHERE usename = current_user), rolconnlimit
FROM pg_roles WHERE rolname = current_user AND rolconnlimit >= 0
{end}{only sqlite}
SELECT 'the file' AS whose, 0 AS used, 0 AS most WHERE FALSE
{end};

-- read_notifications :many — crosses tenants: how full the queue of notifications is; full, it stops commits
{only postgres}
SELECT pg_notification_queue_usage() AS used
{end}{only sqlite}
SELECT 0.0 AS used WHERE FALSE
{end};

-- list_pins :many — crosses tenants: what keeps dead rows from being removed, the oldest first
{only postgres}
SELECT * FROM (
    SELECT 'session' AS kind,
           'pid ' || pid || coalesce(' of ' || usename, '') || coalesce(', ' || state, '') AS what,
           CAST(EXTRACT(EPOCH FROM clock_timestamp() - xact_start) AS double precision) AS seconds,
           greatest(age(backend_xmin), age(backend_xid)) AS transactions
    FROM pg_stat_activity
    WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()
      AND (datname = current_database() OR backend_type = 'walsender')
      -- Autovacuum's snapshot is short, and PostgreSQL disregards it when it removes rows.
      AND backend_type IS DISTINCT FROM 'autovacuum worker'
    UNION ALL
    SELECT 'prepared', 'prepared transaction ' || gid,
           CAST(EXTRACT(EPOCH FROM clock_timestamp() - prepared) AS double precision),
           age(transaction)
    FROM pg_prepared_xacts WHERE database = current_database()
    UNION ALL
    SELECT 'slot', 'replication slot ' || slot_name || CASE WHEN active THEN '' ELSE ', inactive' END,
           NULL, greatest(age(xmin), age(catalog_xmin))
    FROM pg_replication_slots WHERE xmin IS NOT NULL OR catalog_xmin IS NOT NULL) AS pins
ORDER BY seconds DESC NULLS LAST, transactions DESC
LIMIT :limit
{end}{only sqlite}
SELECT '' AS kind, '' AS what, 0.0 AS seconds, 0 AS transactions WHERE FALSE
{end};

-- list_idle :many — crosses tenants: sessions of Holdfast in a transaction that has stood still for so long
{only postgres}
SELECT pid, CAST(EXTRACT(EPOCH FROM clock_timestamp() - state_change) AS double precision) AS seconds,
       coalesce(host(client_addr), 'this machine') AS client,
       (SELECT count(*) FROM pg_stat_activity AS other
        WHERE session.pid = ANY (pg_blocking_pids(other.pid))) AS waiting
FROM pg_stat_activity AS session
WHERE application_name = 'holdfast' AND datname = current_database()
  AND state IN ('idle in transaction', 'idle in transaction (aborted)')
  AND pid <> pg_backend_pid()
  AND EXTRACT(EPOCH FROM clock_timestamp() - state_change) >= CAST(:seconds AS double precision)
ORDER BY seconds DESC
LIMIT :limit
{end}{only sqlite}
SELECT 0 AS pid, 0.0 AS seconds, '' AS client, 0 AS waiting WHERE FALSE
{end};

-- list_bloat :many — crosses tenants: tables with more dead rows than they should have
{only postgres}
SELECT relname AS name, n_live_tup AS live, n_dead_tup AS dead,
       greatest(last_vacuum, last_autovacuum) AS vacuumed_at
FROM pg_stat_user_tables
WHERE schemaname = 'holdfast' AND n_dead_tup >= :dead
  AND n_dead_tup > CAST(:share AS double precision) * n_live_tup
ORDER BY n_dead_tup DESC
{end}{only sqlite}
SELECT '' AS name, 0 AS live, 0 AS dead, NULL AS vacuumed_at WHERE FALSE
{end};

-- list_unvacuumed :many — crosses tenants: tables that autovacuum was told to leave alone
{only postgres}
SELECT relname AS name FROM pg_class
WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'holdfast')
  AND reloptions && ARRAY['autovacuum_enabled=false', 'autovacuum_enabled=off']
ORDER BY relname
{end}{only sqlite}
SELECT '' AS name WHERE FALSE
{end};

-- read_wraparound :many — crosses tenants: how many transactions ago everything was frozen
{only postgres}
SELECT greatest(age(datfrozenxid), mxid_age(datminmxid)) AS transactions
FROM pg_database WHERE datname = current_database()
{end}{only sqlite}
SELECT 0 AS transactions WHERE FALSE
{end};

-- find_file :many — crosses tenants: where the database lies, and how much of it is free
{only postgres}
SELECT '' AS file, 0 AS pages, 0 AS free_pages, 0 AS page_size WHERE FALSE
{end}{only sqlite}
SELECT main.file, pages.page_count AS pages, free.freelist_count AS free_pages, size.page_size
FROM pragma_database_list AS main, pragma_page_count AS pages, pragma_freelist_count AS free,
     pragma_page_size AS size
WHERE main.name = 'main'
{end};

-- list_unbound_logins :many — crosses tenants: the engine's own login, if row-level security does not apply to it
{only postgres}
SELECT role.rolname AS name
FROM pg_catalog.pg_roles AS role
WHERE role.rolname = session_user AND (role.rolsuper OR role.rolbypassrls)
{end}{only sqlite}
SELECT '' AS name WHERE FALSE
{end};

-- list_refused_tables :many — crosses tenants: tables that jobs died of, because handlers may not use them
{only postgres}
SELECT namespace.nspname || '.' || found.relname AS table_name, count(*) AS jobs
FROM holdfast.dead_letter AS letter
JOIN pg_catalog.pg_class AS found
  ON found.relkind IN ('r', 'p', 'v', 'm', 'f')
JOIN pg_catalog.pg_namespace AS namespace
  ON namespace.oid = found.relnamespace
 AND namespace.nspname || '.' || found.relname = {field(letter.sanitized_context, table)}
WHERE letter.error_class = 'CONFIG_INVALID'
  AND letter.state NOT IN ('resolved', 'discarded', 'fixed_forward')
  AND {field(letter.sanitized_context, role)} = 'holdfast_tenant'
  AND EXISTS (
      SELECT FROM unnest(string_to_array({field(letter.sanitized_context, missing)}, '+')) AS word
      WHERE word IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
        AND NOT has_table_privilege('holdfast_tenant', found.oid, word))
GROUP BY namespace.nspname, found.relname
ORDER BY count(*) DESC
LIMIT :limit
{end}{only sqlite}
SELECT '' AS table_name, 0 AS jobs WHERE FALSE
{end};

-- list_own_tables :many — crosses tenants: tables of the application, and whether handlers may use them
{only postgres}
SELECT namespace.nspname AS schema_name, found.relname AS table_name,
       pg_get_userbyid(found.relowner) AS owner,
       has_schema_privilege('holdfast_tenant', namespace.oid, 'USAGE')
           AND has_any_column_privilege('holdfast_tenant', found.oid, 'SELECT, INSERT, UPDATE')
           AS is_granted,
       found.relrowsecurity AS has_policies
FROM pg_catalog.pg_class AS found
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = found.relnamespace
WHERE found.relkind IN ('r', 'p') AND NOT found.relispartition
  AND left(namespace.nspname, 3) <> 'pg_'
  AND namespace.nspname NOT IN ('holdfast', 'information_schema')
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend AS part
                  WHERE part.classid = CAST('pg_catalog.pg_class' AS regclass)
                    AND part.objid = found.oid AND part.deptype = 'e')
ORDER BY namespace.nspname, found.relname
{end}{only sqlite}
SELECT '' AS schema_name, '' AS table_name, '' AS owner, FALSE AS is_granted, FALSE AS has_policies
WHERE FALSE
{end};

-- list_migrations :many — crosses tenants: what was applied
SELECT component, version, name FROM holdfast.migration ORDER BY component, version;

-- list_waiting :many — crosses tenants: which queues have work, and for how long their oldest job waits
-- What waits for the batch lane waits for no worker.
WITH RECURSIVE queues (name) AS (
    SELECT (SELECT job.queue FROM holdfast.claimable AS job
            ORDER BY job.queue, job.limit_key LIMIT 1)
    UNION ALL
    SELECT (SELECT job.queue FROM holdfast.claimable AS job WHERE job.queue > queues.name
            ORDER BY job.queue, job.limit_key LIMIT 1)
    FROM queues
    WHERE queues.name IS NOT NULL
),
found AS (
    SELECT queues.name,
           (SELECT job.created_at FROM holdfast.job AS job
            WHERE job.finished_at IS NULL AND job.claimed_at IS NULL AND job.not_before_at IS NULL
              AND job.state <> 'batch_submitted' AND job.queue = queues.name
              AND job.limit_key <> '~batch'
            ORDER BY job.queue, job.created_at, job.id LIMIT 1) AS since
    FROM queues
    WHERE queues.name IS NOT NULL
    UNION ALL
    SELECT queue.name,
           (SELECT job.not_before_at FROM holdfast.job AS job
            WHERE job.state = 'queued' AND job.queue = queue.name AND job.not_before_at <= {now}
              AND job.limit_key <> '~batch'
            ORDER BY job.queue, job.not_before_at LIMIT 1)
    FROM holdfast.queue AS queue
)
SELECT found.name, max({ms_since(found.since)}) AS waits_ms
FROM found
WHERE found.since IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM holdfast.queue AS queue
                  WHERE queue.name = found.name AND queue.paused_at IS NOT NULL)
GROUP BY found.name
ORDER BY found.name;

-- list_run_times :many — crosses tenants: how long the newest jobs that succeeded were claimed
SELECT ended.job_type, {ms_since(started.at)} - {ms_since(ended.at)} AS ran_ms
FROM (SELECT newest.id, newest.job_id, newest.job_type, newest.at
      FROM (SELECT id, job_id, job_type, at, name FROM holdfast.job_event
            ORDER BY id DESC LIMIT :events) AS newest
      WHERE newest.name = 'job.succeeded') AS ended
JOIN holdfast.job_event AS started ON started.job_id = ended.job_id
WHERE started.id = (SELECT max(begun.id) FROM holdfast.job_event AS begun
                    WHERE begun.job_id = ended.job_id AND begun.name = 'job.started'
                      AND begun.id < ended.id);

-- count_stale :one — crosses tenants: leases that ran out and that nobody rescues, counted no further than :limit
SELECT count(*) AS jobs, max({ms_since(stale.lease_expires_at)}) AS late_ms
FROM (SELECT job.lease_expires_at FROM holdfast.job AS job
      WHERE state = 'processing' AND lease_expires_at < {later(-CAST(:grace_ms AS bigint))}
        AND NOT EXISTS (SELECT 1 FROM holdfast.batch_item AS item
                        WHERE item.org_id = job.org_id AND item.job_id = job.id
                          AND item.is_open = 1 AND item.execution_mode = 'batch')
      ORDER BY lease_expires_at
      LIMIT :limit) AS stale;

-- find_unsealed :maybe — crosses tenants: the oldest event that no seal covers
SELECT {ms_since(event.at)} AS lag_ms
FROM holdfast.job_event AS event
WHERE event.id > (SELECT sealed_to FROM holdfast.audit_cursor WHERE only_row = 1)
ORDER BY event.id
LIMIT 1;

-- count_letters :one — crosses tenants: dead letters that wait for somebody, counted no further than :limit
SELECT count(*) AS letters, min(old.created_at) AS oldest_at
FROM (SELECT created_at FROM holdfast.dead_letter
      WHERE ended_at IS NULL AND created_at < {later(-CAST(:age_ms AS bigint))}
      ORDER BY created_at, job_id
      LIMIT :limit) AS old;

-- list_paused :many — crosses tenants: queues that somebody paused and perhaps forgot
SELECT name, paused_at, paused_by, pause_reason FROM holdfast.queue
WHERE paused_at < {later(-CAST(:age_ms AS bigint))}
ORDER BY paused_at;

-- list_late :many — crosses tenants: schedules whose tick is over and was not dealt with
SELECT schedule.name, schedule.next_fire_at, {ms_since(schedule.next_fire_at)} AS late_ms,
       tick.detail
FROM holdfast.schedule AS schedule
LEFT JOIN holdfast.schedule_tick AS tick
  ON tick.schedule = schedule.name AND tick.fire_at = schedule.next_fire_at
  AND tick.outcome = 'held'
WHERE schedule.paused_at IS NULL AND schedule.next_fire_at < {later(-CAST(:late_ms AS bigint))}
ORDER BY schedule.next_fire_at
LIMIT :limit;

-- list_stuck :many — crosses tenants: batches that somebody should have looked at, by how far they are
SELECT stuck.state, count(*) AS batches, sum(stuck.items) AS items,
       max({ms_since(stuck.next_at)}) AS late_ms
FROM (SELECT batch.state, batch.items, batch.next_at FROM holdfast.provider_batch AS batch
      WHERE batch.state IN ('prepared', 'uploaded', 'creating', 'submitted', 'ended')
        AND batch.next_at < {later(-CAST(:late_ms AS bigint))}
      ORDER BY batch.next_at
      LIMIT :limit) AS stuck
GROUP BY stuck.state
ORDER BY stuck.state;

-- list_quarantined :many — crosses tenants: batches that wait for an operator, the oldest first
SELECT batch.id, batch.provider, batch.items, batch.error_code, batch.updated_at
FROM holdfast.provider_batch AS batch
WHERE batch.state = 'quarantined'
ORDER BY batch.created_at
LIMIT :limit;

-- count_undeleted :one — crosses tenants: batches that are over and whose files nobody could delete
SELECT count(*) AS batches, min(old.updated_at) AS since
FROM (SELECT batch.updated_at FROM holdfast.provider_batch AS batch
      WHERE batch.state IN ('collected', 'released') AND batch.files_deleted_at IS NULL
        AND batch.execution_mode = 'batch'
        AND batch.updated_at < {later(-CAST(:age_ms AS bigint))}
      LIMIT :limit) AS old;

-- find_unsubmitted :many — crosses tenants: for how long the oldest job waits for the batch lane
WITH RECURSIVE queues (name) AS (
    SELECT (SELECT job.queue FROM holdfast.claimable AS job
            ORDER BY job.queue, job.limit_key LIMIT 1)
    UNION ALL
    SELECT (SELECT job.queue FROM holdfast.claimable AS job WHERE job.queue > queues.name
            ORDER BY job.queue, job.limit_key LIMIT 1)
    FROM queues
    WHERE queues.name IS NOT NULL
)
SELECT max({ms_since(found.since)}) AS waits_ms
FROM (SELECT (SELECT min(head.created_at) FROM (
                  SELECT job.created_at FROM holdfast.job AS job
                  WHERE job.state = 'queued' AND job.not_before_at IS NULL
                    AND job.queue = queues.name AND job.limit_key = '~batch'
                  ORDER BY job.queue, job.limit_key, job.org_id, job.turn
                  LIMIT :limit) AS head) AS since
      FROM queues
      WHERE queues.name IS NOT NULL) AS found
WHERE found.since IS NOT NULL;

-- list_routes :many — crosses tenants: where what waits for the batch lane is to go
SELECT waiting.routing_decision, count(*) AS jobs
FROM (SELECT CAST(job.routing_decision AS text) AS routing_decision
      FROM holdfast.job AS job
      WHERE job.state = 'queued' AND job.limit_key = '~batch'
      LIMIT :limit) AS waiting
WHERE waiting.routing_decision IS NOT NULL
GROUP BY waiting.routing_decision
ORDER BY waiting.routing_decision;

-- list_unreached :many — crosses tenants: batches that nobody who collects has the account of
SELECT batch.account, count(*) AS batches, sum(batch.items) AS items,
       min(batch.submitted_at) AS since
FROM holdfast.provider_batch AS batch
WHERE batch.state IN ('submitted', 'ended') AND batch.error_code = :error_code
GROUP BY batch.account
ORDER BY batch.account;

-- find_last_runs :many — crosses tenants: when the runs of these names last began
SELECT runs.name, (SELECT max(run.started_at) FROM holdfast.worker_run AS run
                   WHERE run.name = runs.name AND run.outcome IS DISTINCT FROM 'skipped')
           AS started_at
FROM {rows runs: name text};

-- count_left :many — crosses tenants: rewrites that nobody goes on with, and since when
SELECT count(*) AS requests, min(waiting.since) AS since
FROM (SELECT request.updated_at AS since
      FROM holdfast.rewrite_request AS request
      WHERE request.updated_at < {later(-CAST(:age_ms AS bigint))}
        AND (request.step IN ('received', 'queued', 'classified', 'context_built', 'routed')
             OR (request.step IN ('completed', 'failed', 'canceled')
                 AND request.concluded_at IS NULL))
      LIMIT :limit) AS waiting;

-- list_circuits :many — crosses tenants: accounts at providers that said no to everything
SELECT account.account, account.provider, account.error_code, account.times, account.opened_at,
       account.open_until
FROM holdfast.provider_account AS account
WHERE account.closed_at IS NULL
ORDER BY account.opened_at
LIMIT :limit;

-- list_unpriced :many — crosses tenants: models that were used and whose price nobody has named
SELECT found.provider, found.model, found.execution_mode, count(*) AS calls
FROM (SELECT call.provider, coalesce(call.model_billed, call.model) AS model, call.execution_mode
      FROM holdfast.provider_call AS call
      WHERE call.cost_pico IS NULL AND call.kind <> 'unknown'
        AND call.occurred_at > {later(-CAST(:age_ms AS bigint))}
      ORDER BY call.occurred_at DESC
      LIMIT :limit) AS found
GROUP BY found.provider, found.model, found.execution_mode
ORDER BY found.provider, found.model, found.execution_mode;

-- list_provider_kinds :many — crosses tenants: providers of batches and waiting jobs, and their adapters
SELECT batch.provider, batch.adapter_kind FROM holdfast.provider_batch AS batch
WHERE batch.created_at > {later(-CAST(7776000000 AS bigint))}
UNION
SELECT {field(job.routing_decision, provider)}, {field(job.routing_decision, adapter_kind)}
FROM holdfast.job AS job
WHERE job.state = 'queued' AND job.limit_key = '~batch' AND job.routing_decision IS NOT NULL;

-- list_used_providers :many — crosses tenants: the providers that were paid within 90 days
SELECT DISTINCT call.provider
FROM holdfast.provider_call AS call
WHERE call.occurred_at > {later(-CAST(7776000000 AS bigint))};

-- count_held :many — crosses tenants: deliveries that wait for a person, by channel
SELECT held.channel, count(*) AS deliveries, min(held.updated_at) AS since
FROM (SELECT delivery.channel, delivery.updated_at FROM holdfast.delivery AS delivery
      WHERE delivery.state = 'held'
      ORDER BY delivery.updated_at
      LIMIT :limit) AS held
GROUP BY held.channel
ORDER BY held.channel;

-- count_undelivered :many — crosses tenants: deliveries that are due and that nobody goes on with
SELECT late.channel, count(*) AS deliveries,
       sum(CASE WHEN late.attempts > 0 THEN 1 ELSE 0 END) AS tried,
       max({ms_since(late.since)}) AS waits_ms
FROM (SELECT delivery.channel, delivery.attempts,
             coalesce(delivery.not_before_at, delivery.created_at) AS since
      FROM holdfast.delivery AS delivery
      WHERE delivery.state = 'pending'
        AND coalesce(delivery.not_before_at, delivery.created_at)
            < {later(-CAST(:age_ms AS bigint))}
        AND (delivery.lease_expires_at IS NULL
             OR delivery.lease_expires_at < {later(-CAST(:age_ms AS bigint))})
      LIMIT :limit) AS late
GROUP BY late.channel
ORDER BY late.channel;

-- list_channels :many — crosses tenants: the channels that something waits for
SELECT waiting.channel, count(*) AS deliveries
FROM (SELECT delivery.channel FROM holdfast.delivery AS delivery
      WHERE delivery.state = 'pending'
      LIMIT :limit) AS waiting
GROUP BY waiting.channel
ORDER BY waiting.channel;

-- list_channel_circuits :many — crosses tenants: channels that refuse us or are away, and what waits for them
SELECT circuit.channel, circuit.kind, min(circuit.code) AS code, count(*) AS circuits,
       sum(CASE WHEN circuit.endpoint = '' THEN 1 ELSE 0 END) AS whole,
       min(circuit.opened_at) AS opened_at, min(circuit.open_until) AS open_until,
       (SELECT count(*) FROM (
           SELECT 1 FROM holdfast.delivery AS delivery
           WHERE delivery.state = 'pending' AND delivery.reason = 'circuit_open'
             AND delivery.channel = circuit.channel
           LIMIT :limit) AS waiting) AS deliveries
FROM holdfast.channel_circuit AS circuit
GROUP BY circuit.channel, circuit.kind
ORDER BY circuit.channel, circuit.kind;
