-- Heartbeats of workers. A worker serves every tenant, so its row belongs to none.

-- record_heartbeat :one — crosses tenants: write the row of a worker; returns the time of the store
INSERT INTO holdfast.worker
    (worker_id, state, queues, job_types, host, process_id, pool_size, version, lease_ms,
     clock_off_ms, longest_ms, longest_type, settled_at, unsettled, unsettled_ms, started_at, seen_at)
VALUES
    (:worker_id, :state, :queues, :job_types, :host, :process_id, :pool_size, :version, :lease_ms,
     :clock_off_ms, :longest_ms, :longest_type,
     CASE WHEN CAST(:settled_ago_ms AS bigint) IS NOT NULL
          THEN {later(-CAST(:settled_ago_ms AS bigint))} END,
     :unsettled, :unsettled_ms, {now}, {now})
ON CONFLICT (worker_id) DO UPDATE
SET state = excluded.state, queues = excluded.queues, job_types = excluded.job_types,
    pool_size = excluded.pool_size, lease_ms = excluded.lease_ms,
    clock_off_ms = excluded.clock_off_ms, longest_ms = excluded.longest_ms,
    longest_type = excluded.longest_type, settled_at = excluded.settled_at,
    unsettled = excluded.unsettled, unsettled_ms = excluded.unsettled_ms,
    seen_at = excluded.seen_at
RETURNING {now} AS now;

-- prune_workers :affected — crosses tenants: delete old rows of workers that died
DELETE FROM holdfast.worker WHERE seen_at < {later(-CAST(:keep_ms AS bigint))};

-- remove_worker :affected — crosses tenants: delete the row of a worker that stops
DELETE FROM holdfast.worker WHERE worker_id = :worker_id;

-- list_workers :many — crosses tenants: workers by their last heartbeat, newest first
SELECT worker_id, state, queues, job_types, host, process_id, pool_size, version, lease_ms,
       clock_off_ms, longest_ms, longest_type, settled_at, unsettled, unsettled_ms, started_at, seen_at,
       {ms_since(seen_at)} AS silent_ms
FROM holdfast.worker
ORDER BY seen_at DESC, worker_id
LIMIT :limit;
