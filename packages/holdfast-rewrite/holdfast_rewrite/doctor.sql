-- The doctor's statement for the complaint rewrite.

-- count_left :many — crosses tenants: abandoned rewrites, and since when
SELECT count(*) AS requests, min(waiting.since) AS since
FROM (SELECT request.updated_at AS since
      FROM holdfast.rewrite_request AS request
      WHERE request.updated_at < {later(-CAST(:age_ms AS bigint))}
        AND (request.step IN ('received', 'queued', 'classified', 'context_built', 'routed')
             OR (request.step = 'judging'
                 AND EXISTS (SELECT 1 FROM holdfast.rewrite_draft AS draft
                             WHERE draft.org_id = request.org_id
                               AND draft.rewrite_request_id = request.rewrite_request_id
                               AND draft.judge_job_id IS NULL))
             OR (request.step IN ('completed', 'failed', 'canceled')
                 AND request.concluded_at IS NULL))
      LIMIT :limit) AS waiting;

-- count_held :many — crosses tenants: rewrites that wait for a person for too long, and since when
SELECT count(*) AS rewrites, min(waiting.held_at) AS since
FROM (SELECT held_at FROM holdfast.rewrite_draft
      WHERE state = 'held' AND held_at < {later(-CAST(:age_ms AS bigint))}
      ORDER BY held_at
      LIMIT :limit) AS waiting;
