-- Gauges of batch processing.

-- count_batches :many — crosses tenants: open batches by state, and the age of the oldest
SELECT live.state, count(*) AS batches, sum(live.items) AS items,
       max({ms_since(live.created_at)}) AS age_ms
FROM (SELECT batch.state, batch.items, batch.created_at FROM holdfast.provider_batch AS batch
      WHERE batch.state NOT IN ('collected', 'released')
      ORDER BY batch.state, batch.created_at
      LIMIT :bound) AS live
GROUP BY live.state;

-- read_overdue :one — crosses tenants: overdue batches: polls, and files to delete
SELECT {ms_since(min(CASE WHEN due.state NOT IN ('collected', 'released')
                          THEN due.next_at END))} AS overdue_ms,
       coalesce(sum(CASE WHEN due.state IN ('collected', 'released') THEN 1 ELSE 0 END), 0)
           AS undeleted
FROM (SELECT batch.state, batch.next_at FROM holdfast.provider_batch AS batch
      WHERE batch.state IN ('prepared', 'uploaded', 'creating', 'submitted', 'ended')
         OR (batch.state IN ('collected', 'released') AND batch.files_deleted_at IS NULL)
      ORDER BY batch.next_at
      LIMIT :bound) AS due;

-- count_circuits :many — crosses tenants: accounts with an open circuit
SELECT provider, count(*) AS accounts
FROM holdfast.provider_account
WHERE closed_at IS NULL
GROUP BY provider;
