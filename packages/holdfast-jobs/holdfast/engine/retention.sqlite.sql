-- PostgreSQL locks the rows of each group with LATERAL; SQLite has one writer and no LATERAL.

-- find_prunable :many — crosses tenants: archived jobs past the retention of their kind
SELECT job.org_id, job.id
FROM {rows kinds: category text, job_type text, state text, keep_ms bigint}
CROSS JOIN holdfast.job_history AS job
WHERE job.category = kinds.category AND job.job_type = kinds.job_type AND job.state = kinds.state
  AND job.finished_at < {later(-kinds.keep_ms)}
  AND job.key_expires_at < {now} AND job.unit_key IS NULL
LIMIT :limit;

-- find_prunable_failed :many — crosses tenants: failed jobs past their retention
SELECT job.org_id, job.id
FROM {rows kinds: category text, job_type text, keep_ms bigint}
CROSS JOIN holdfast.dead_letter AS letter
CROSS JOIN holdfast.job AS job
WHERE letter.job_type = kinds.job_type AND letter.ended_at < {later(-kinds.keep_ms)}
  AND job.org_id = letter.org_id AND job.id = letter.job_id
  AND job.state = 'failed' AND job.category = kinds.category
  AND job.key_expires_at < {now} AND job.unit_key IS NULL
LIMIT :limit;

-- find_prunable_replays :many — crosses tenants: failed replays whose dead letter is closed
SELECT job.org_id, job.id
FROM {rows kinds: category text, job_type text, keep_ms bigint}
CROSS JOIN holdfast.job AS job
WHERE job.state = 'failed' AND job.replay_of IS NOT NULL
  AND job.category = kinds.category AND job.job_type = kinds.job_type
  AND job.finished_at < {later(-kinds.keep_ms)} AND job.key_expires_at < {now}
  AND NOT EXISTS (
      SELECT 1 FROM holdfast.dead_letter AS letter
      WHERE letter.org_id = job.org_id AND letter.job_id = job.replay_of
        AND letter.ended_at IS NULL)
LIMIT :limit;
