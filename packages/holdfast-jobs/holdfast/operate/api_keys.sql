-- Statements of API keys, sessions and the rate of requests. A key is found by its hash, which the
-- caller cannot choose; every other statement names the tenant or is for operations.

-- insert_key :affected — a new key
INSERT INTO holdfast.api_key
    (id, name, prefix, secret_hash, role, scopes, org_id, requests_per_minute, created_by,
     created_at, expires_at)
VALUES (:id, :name, :prefix, :secret_hash, :role, :scopes, :org_id, :requests_per_minute,
        :created_by, {now}, :expires_at);

-- find_secret :maybe prepared — crosses tenants: the key of a request, with whether it is valid
SELECT id, name, prefix, role, scopes, org_id, requests_per_minute,
       CASE WHEN revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {now}) THEN 1 ELSE 0
       END AS is_valid,
       CASE WHEN last_used_at IS NULL OR {ms_since(last_used_at)} >= 60000 THEN 1 ELSE 0
       END AS is_stale
FROM holdfast.api_key
WHERE secret_hash = :secret_hash;

-- touch_key :affected — crosses tenants: when a key was last used, to the minute
UPDATE holdfast.api_key
SET last_used_at = {now}
WHERE id = :id AND (last_used_at IS NULL OR {ms_since(last_used_at)} >= 60000);

-- find_key :maybe — crosses tenants: one key, of a tenant or for operations
SELECT id, name, prefix, role, scopes, org_id, requests_per_minute, created_by, created_at,
       expires_at, last_used_at, replaced_by, revoked_at, revoked_by
FROM holdfast.api_key
WHERE id = :id AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id);

-- list_keys :many — crosses tenants: the keys of a tenant or of all, newest first
SELECT id, name, prefix, role, scopes, org_id, requests_per_minute, created_by, created_at,
       expires_at, last_used_at, replaced_by, revoked_at, revoked_by
FROM holdfast.api_key
WHERE id < :before AND (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id)
ORDER BY id DESC
LIMIT :limit;

-- count_valid :one — crosses tenants: how many keys can be used now
SELECT count(*) AS keys
FROM holdfast.api_key
WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {now});

-- replace_key :affected — crosses tenants: the old key of a rotation ends after the overlap
UPDATE holdfast.api_key
SET replaced_by = :replaced_by,
    expires_at = CASE WHEN expires_at < {later(:overlap_ms)} THEN expires_at
                      ELSE {later(:overlap_ms)} END
WHERE id = :id AND revoked_at IS NULL AND replaced_by IS NULL
  AND (expires_at IS NULL OR expires_at > {now});

-- revoke_key :affected — crosses tenants: end a key at once
UPDATE holdfast.api_key
SET revoked_at = {now}, revoked_by = :revoked_by
WHERE id = :id AND revoked_at IS NULL;

-- take_requests :one — crosses tenants: count requests of a key in a minute; how many there are now
INSERT INTO holdfast.api_key_window AS kept (key_id, minute, used)
VALUES (:key_id, :minute, :requests)
ON CONFLICT (key_id) DO UPDATE
SET used = CASE WHEN excluded.minute <= kept.minute THEN kept.used + excluded.used
                ELSE excluded.used END,
    minute = CASE WHEN excluded.minute <= kept.minute THEN kept.minute ELSE excluded.minute END
RETURNING used;

-- insert_session :affected — a new session of the console
INSERT INTO holdfast.console_session
    (secret_hash, key_id, actor_type, actor_id, role, scopes, org_id, created_at, expires_at)
VALUES (:secret_hash, :key_id, :actor_type, :actor_id, :role, :scopes, :org_id, {now},
        {later(:lasts_ms)});

-- find_session :maybe prepared — crosses tenants: an open session; a key's permissions are current
SELECT session.key_id, session.actor_type, session.actor_id,
       coalesce(key.role, session.role) AS role, coalesce(key.scopes, session.scopes) AS scopes,
       coalesce(key.org_id, session.org_id) AS org_id,
       key.requests_per_minute, session.expires_at
FROM holdfast.console_session AS session
LEFT JOIN holdfast.api_key AS key ON key.id = session.key_id
WHERE session.secret_hash = :secret_hash AND session.ended_at IS NULL
  AND session.expires_at > {now}
  AND (session.key_id IS NULL OR (key.id IS NOT NULL AND key.revoked_at IS NULL
       AND (key.expires_at IS NULL OR key.expires_at > {now})));

-- end_session :affected — crosses tenants: a logout
UPDATE holdfast.console_session
SET ended_at = {now}
WHERE secret_hash = :secret_hash AND ended_at IS NULL;

-- prune_sessions :affected — crosses tenants: sessions that ended or expired
DELETE FROM holdfast.console_session
WHERE expires_at < {now};

-- find_signing_key :one — crosses tenants: the secret of this database that cursors are signed with
SELECT key FROM holdfast.outbox_key WHERE id = 1;
