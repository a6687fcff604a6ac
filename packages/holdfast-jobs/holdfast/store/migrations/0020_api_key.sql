-- API keys, the sessions of the console, and the rate of requests per key.

CREATE TABLE holdfast.api_key (
    id {uuid} PRIMARY KEY,
    name text NOT NULL,
    -- The first characters of the key, by which people recognise it.
    prefix text NOT NULL,
    -- SHA-256 of the key. The key is random, so a slow hash would add nothing.
    secret_hash text NOT NULL,
    role text NOT NULL,
    -- Sorted names, separated by spaces.
    scopes text NOT NULL,
    -- The tenant that the key is bound to; the platform's own (all zeros) for operations, which sees
    -- every tenant.
    org_id {uuid} NOT NULL,
    -- NULL uses the limit of the server.
    requests_per_minute integer,
    created_by text NOT NULL,
    created_at {instant} NOT NULL,
    expires_at {instant},
    -- Written at most once a minute.
    last_used_at {instant},
    -- The key that a rotation made; this one is valid until expires_at.
    replaced_by {uuid},
    revoked_at {instant},
    revoked_by text,
    CONSTRAINT api_key_once UNIQUE (secret_hash),
    CONSTRAINT api_key_role_known CHECK (role IN ('viewer', 'operator', 'admin')),
    CONSTRAINT api_key_rate_positive CHECK (requests_per_minute > 0),
    CONSTRAINT api_key_revoked_by_someone CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
);

-- A key never changes what it may do: create another one.
{refuse api_key_never_widens BEFORE UPDATE ON holdfast.api_key
WHEN NEW.id <> OLD.id OR NEW.secret_hash <> OLD.secret_hash OR NEW.role <> OLD.role
    OR NEW.scopes <> OLD.scopes OR NEW.org_id <> OLD.org_id
    OR (OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS NULL)
SAYING 'an API key keeps its role, scopes and tenant, and stays revoked'};

CREATE TABLE holdfast.api_key_window (
    key_id {uuid} PRIMARY KEY,
    minute bigint NOT NULL,
    used integer NOT NULL,
    CONSTRAINT api_key_window_used CHECK (used >= 0)
);

CREATE TABLE holdfast.console_session (
    -- SHA-256 of the cookie.
    secret_hash text PRIMARY KEY,
    -- The key that the session was made from; its role, scopes and tenant apply. NULL for sessions
    -- of another authentication, which store them here.
    key_id {uuid},
    actor_type text NOT NULL,
    actor_id text NOT NULL,
    role text NOT NULL,
    scopes text NOT NULL,
    org_id {uuid} NOT NULL,
    created_at {instant} NOT NULL,
    expires_at {instant} NOT NULL,
    ended_at {instant},
    CONSTRAINT console_session_actor_known CHECK (actor_type IN ('user', 'system', 'api_key')),
    CONSTRAINT console_session_role_known CHECK (role IN ('viewer', 'operator', 'admin')),
    CONSTRAINT console_session_ends CHECK (expires_at > created_at)
);

CREATE INDEX console_session_expired ON holdfast.console_session (expires_at);
