-- PostgreSQL locks the rows of each group with LATERAL; SQLite has one writer and no LATERAL.

-- find_prunable :many — crosses tenants: archived jobs past the retention of their kind
-- Never before the key has expired, and never a job with a unit, which stays unique forever. The
-- query starts from the kinds, and each finds its jobs by the index. If nothing is over, the
-- planner would prefer to scan all of history for the few expired keys; coalesce prevents that.
SELECT job.org_id, job.id
FROM {rows kinds: category text, job_type text, state text, keep_ms bigint}
CROSS JOIN LATERAL (
    SELECT past.org_id, past.id FROM holdfast.job_history AS past
    WHERE past.category = kinds.category AND past.job_type = kinds.job_type
      AND past.state = kinds.state AND past.finished_at < {later(-kinds.keep_ms)}
      AND coalesce(past.key_expires_at, {now}) < {now} AND past.unit_key IS NULL
    ORDER BY past.finished_at
    LIMIT :limit
    {skip_locked}
) AS job
LIMIT :limit;

-- find_prunable_failed :many — crosses tenants: failed jobs past their retention
-- They are kept while the dead letter is open, and the retention starts when it is closed.
SELECT job.org_id, job.id
FROM {rows kinds: category text, job_type text, keep_ms bigint}
CROSS JOIN LATERAL (
    SELECT past.org_id, past.id FROM holdfast.dead_letter AS letter
    JOIN holdfast.job AS past ON past.org_id = letter.org_id AND past.id = letter.job_id
    WHERE letter.job_type = kinds.job_type AND letter.ended_at < {later(-kinds.keep_ms)}
      AND past.state = 'failed' AND past.category = kinds.category
      AND coalesce(past.key_expires_at, {now}) < {now} AND past.unit_key IS NULL
    ORDER BY letter.job_type, letter.ended_at
    LIMIT :limit
    FOR UPDATE OF past SKIP LOCKED
) AS job
LIMIT :limit;

-- find_prunable_replays :many — crosses tenants: failed replays whose dead letter is closed
SELECT job.org_id, job.id
FROM {rows kinds: category text, job_type text, keep_ms bigint}
CROSS JOIN LATERAL (
    SELECT past.org_id, past.id FROM holdfast.job AS past
    WHERE past.state = 'failed' AND past.replay_of IS NOT NULL
      AND past.category = kinds.category AND past.job_type = kinds.job_type
      AND past.finished_at < {later(-kinds.keep_ms)}
      AND coalesce(past.key_expires_at, {now}) < {now}
      AND NOT EXISTS (
          SELECT 1 FROM holdfast.dead_letter AS letter
          WHERE letter.org_id = past.org_id AND letter.job_id = past.replay_of
            AND letter.ended_at IS NULL)
    ORDER BY past.finished_at
    LIMIT :limit
    {skip_locked}
) AS job
LIMIT :limit;
