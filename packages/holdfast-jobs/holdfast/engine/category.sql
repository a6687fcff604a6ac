-- Statements for the categories that applications declare.

-- save_categories :many — crosses tenants: insert new categories and update changed ones
INSERT INTO holdfast.category AS kept
    (name, queue, max_attempts, longest_ms, key_ttl_ms, duty, replay_refusal)
SELECT categories.name, categories.queue, categories.max_attempts, categories.longest_ms,
       categories.key_ttl_ms, categories.duty, categories.replay_refusal
FROM {rows categories: name text, queue text, max_attempts integer, longest_ms bigint,
      key_ttl_ms bigint, duty text, replay_refusal text}
WHERE TRUE
ON CONFLICT (name) DO UPDATE
SET queue = excluded.queue, max_attempts = excluded.max_attempts, longest_ms = excluded.longest_ms,
    key_ttl_ms = excluded.key_ttl_ms, duty = excluded.duty,
    replay_refusal = excluded.replay_refusal
WHERE kept.queue <> excluded.queue OR kept.max_attempts <> excluded.max_attempts
   OR kept.longest_ms <> excluded.longest_ms OR kept.key_ttl_ms <> excluded.key_ttl_ms
   OR kept.duty <> excluded.duty OR kept.replay_refusal IS DISTINCT FROM excluded.replay_refusal
RETURNING name;

-- list_categories :many — crosses tenants: all stored categories
SELECT name, queue, max_attempts, longest_ms, key_ttl_ms, duty, replay_refusal
FROM holdfast.category ORDER BY name;
