-- Statements of requests with an idempotency key, and their kept answers.

-- prune_requests :affected — crosses tenants: requests whose keys expired
DELETE FROM holdfast.api_request
WHERE expires_at <= {now};

-- claim_request :affected — take an idempotency key, unless an earlier request has it
INSERT INTO holdfast.api_request
    (org_id, idempotency_key, request_hash, claim_token, created_at, expires_at)
VALUES (:org_id, :idempotency_key, :request_hash, :claim_token, {now}, {later(:keep_ms)})
ON CONFLICT (org_id, idempotency_key) DO NOTHING;

-- find_request :maybe — the request that has an idempotency key
SELECT request_hash, claim_token, status, answer, location, {ms_since(created_at)} AS age_ms
FROM holdfast.api_request
WHERE org_id = :org_id AND idempotency_key = :idempotency_key;

-- keep_answer :affected — the answer of a request
UPDATE holdfast.api_request
SET status = :status, answer = :answer, location = :location
WHERE org_id = :org_id AND idempotency_key = :idempotency_key AND claim_token = :claim_token;

-- release_request :affected — a request that changed nothing gives its key back
DELETE FROM holdfast.api_request
WHERE org_id = :org_id AND idempotency_key = :idempotency_key AND claim_token = :claim_token;
