-- Requests of the HTTP API that carry an idempotency key, and their answers.
CREATE TABLE holdfast.api_request (
    -- The tenant of the caller; the platform's own (all zeros) for operations.
    org_id {uuid} NOT NULL,
    idempotency_key text NOT NULL,
    -- SHA-256 of the caller, the method, the path and the body.
    request_hash text NOT NULL,
    -- Tells a request from a later one that has the same key after this one expired.
    claim_token {uuid} NOT NULL,
    -- NULL until the request is answered.
    status integer,
    answer text,
    location text,
    created_at {instant} NOT NULL,
    expires_at {instant} NOT NULL,
    PRIMARY KEY (org_id, idempotency_key),
    CONSTRAINT api_request_answered CHECK ((status IS NULL) = (answer IS NULL)),
    CONSTRAINT api_request_status_is_success CHECK (status BETWEEN 200 AND 299),
    CONSTRAINT api_request_key_length CHECK (length(idempotency_key) BETWEEN 1 AND 200),
    CONSTRAINT api_request_ends CHECK (expires_at > created_at)
);

CREATE INDEX api_request_expired ON holdfast.api_request (expires_at);
