-- The doctor's statement for the complaint rewrite.

-- count_left :many — crosses tenants: abandoned rewrites, and since when
SELECT count(*) AS requests, min(waiting.since) AS since
FROM (SELECT request.updated_at AS since
      FROM holdfast.rewrite_request AS request
      WHERE request.updated_at < {later(-CAST(:age_ms AS bigint))}
        AND (request.step IN ('received', 'queued', 'classified', 'context_built', 'routed')
             OR (request.step IN ('completed', 'failed', 'canceled')
                 AND request.concluded_at IS NULL))
      LIMIT :limit) AS waiting;
