-- Statements of the orchestrator's second half: finish requests and reveal rewrites.

-- count_to_finish :one — crosses tenants: requests to finish or to reveal, up to a bound
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM holdfast.rewrite_request
            WHERE step IN ('completed', 'failed', 'canceled') AND concluded_at IS NULL
            LIMIT :most) AS ended)
     + (SELECT count(*) FROM (
            SELECT 1 FROM holdfast.rewrite_request
            WHERE step = 'completed' AND sender_reveal_at <= {now} AND concluded_at IS NOT NULL
            LIMIT :most) AS due) AS requests;

-- list_ended :many — crosses tenants: requests whose job has ended and that are not finished yet
SELECT org_id, rewrite_request_id, step, surface, rewrite_strength, lane, failure_code, job_id,
       request_id, correlation_id, rewrite_completed_at
FROM holdfast.rewrite_request
WHERE step IN ('completed', 'failed', 'canceled') AND concluded_at IS NULL
ORDER BY updated_at
LIMIT :limit
{skip_locked};

-- finish_requests :many — crosses tenants: the only statement that sets the reveal time
UPDATE holdfast.rewrite_request AS request
SET concluded_at = {now}, sender_reveal_at = ended.sender_reveal_at, updated_at = {now}
FROM {rows ended: org_id uuid, id uuid, sender_reveal_at instant}
WHERE request.org_id = ended.org_id AND request.rewrite_request_id = ended.id
  AND request.concluded_at IS NULL
RETURNING rewrite_request_id;

-- list_due :many — crosses tenants: rewrites that are due to be revealed
SELECT org_id, rewrite_request_id, surface, rewrite_strength, lane, job_id, request_id,
       correlation_id
FROM holdfast.rewrite_request
WHERE step = 'completed' AND sender_reveal_at <= {now} AND concluded_at IS NOT NULL
ORDER BY sender_reveal_at
LIMIT :limit
{skip_locked};

-- reveal_requests :many — crosses tenants: a request is revealed once
UPDATE holdfast.rewrite_request AS request
SET step = 'revealed', revealed_at = {now}, updated_at = {now}
FROM {rows due: org_id uuid, id uuid}
WHERE request.org_id = due.org_id AND request.rewrite_request_id = due.id
  AND request.step = 'completed' AND request.sender_reveal_at <= {now}
RETURNING rewrite_request_id;
