-- Statements of webhooks.

-- has_endpoints :maybe — crosses tenants: whether any endpoint gets changes
SELECT 1 AS found FROM holdfast.webhook_endpoint WHERE paused_at IS NULL LIMIT 1;

-- lock_cursor :maybe — crosses tenants: one pass at a time; a second one finds nothing to do
SELECT top, gaps, {this_transaction} AS this_transaction
FROM holdfast.webhook_cursor
WHERE only_row = 1
{skip_locked};

-- hold_cursor :one — crosses tenants: wait for a running pass
SELECT top FROM holdfast.webhook_cursor WHERE only_row = 1 {hold_row};

-- move_cursor :affected — crosses tenants: the position after a pass
UPDATE holdfast.webhook_cursor SET top = :top, gaps = :gaps WHERE only_row = 1;

-- list_active :many — crosses tenants: the endpoints that get changes
SELECT org_id, id, url, events, after_position
FROM holdfast.webhook_endpoint
WHERE paused_at IS NULL
ORDER BY org_id, id;

-- list_endpoints :many — crosses tenants unless one is named: endpoints by id, without secrets
SELECT org_id, id, url, events, paused_at, previous_until, created_by, created_at, updated_at
FROM holdfast.webhook_endpoint
WHERE (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id) AND id > CAST(:after AS {uuid})
ORDER BY id
LIMIT :limit;

-- find_endpoint :maybe — crosses tenants unless one is named: one endpoint, without its secrets
SELECT org_id, id, url, events, paused_at, previous_until, created_by, created_at, updated_at
FROM holdfast.webhook_endpoint
WHERE (CAST(:org_id AS {uuid}) IS NULL OR org_id = :org_id) AND id = :id;

-- count_endpoints :one — the number of endpoints of a tenant
SELECT count(*) AS endpoints FROM holdfast.webhook_endpoint WHERE org_id = :org_id;

-- insert_endpoint :affected — a new endpoint of a tenant
INSERT INTO holdfast.webhook_endpoint
    (org_id, id, url, events, secret, after_position, created_by, created_at, updated_at)
SELECT made.org_id, made.id, made.url, made.events, made.secret, made.after_position,
       made.created_by, {now}, {now}
FROM {rows made: org_id uuid, id uuid, url text, events json, secret text, after_position text,
      created_by text}
WHERE TRUE;

-- rotate_secret :affected — a new secret; the present one signs as well for a while
UPDATE holdfast.webhook_endpoint
SET previous_secret = secret, previous_until = {later(:overlap_ms)}, secret = :secret,
    updated_at = {now}
WHERE org_id = :org_id AND id = :id;

-- pause_endpoint :affected — store no more deliveries for an endpoint
UPDATE holdfast.webhook_endpoint SET paused_at = {now}, updated_at = {now}
WHERE org_id = :org_id AND id = :id AND paused_at IS NULL;

-- resume_endpoint :affected — store deliveries again, from this position on
UPDATE holdfast.webhook_endpoint
SET paused_at = NULL, after_position = :after_position, updated_at = {now}
WHERE org_id = :org_id AND id = :id AND paused_at IS NOT NULL;

-- delete_endpoint :affected — an endpoint leaves with its secrets
DELETE FROM holdfast.webhook_endpoint WHERE org_id = :org_id AND id = :id;

-- find_secrets :maybe — the secrets that sign messages to an endpoint now
SELECT url, secret, CASE WHEN previous_until > {now} THEN previous_secret END AS previous_secret
FROM holdfast.webhook_endpoint
WHERE org_id = :org_id AND id = :id;
