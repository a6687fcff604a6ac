-- The circuits of channels that refuse us. They belong to no tenant, and so do their statements.

-- list_circuits :many — crosses tenants: every circuit that is open
SELECT channel, endpoint, kind, fingerprint, code, refusals, opened_at, open_until, probe_until
FROM holdfast.channel_circuit;

-- open_circuits :many — crosses tenants: nothing more is sent there; one that is open stays as it is
INSERT INTO holdfast.channel_circuit AS circuit
    (channel, endpoint, kind, fingerprint, code, refusals, opened_at, open_until)
SELECT refused.channel, refused.endpoint, refused.kind, refused.fingerprint, refused.code, 1, {now},
       {later(refused.pause_ms)}
FROM {rows refused: channel text, endpoint text, kind text, fingerprint text, code text,
      pause_ms bigint}
WHERE TRUE
ON CONFLICT (channel, endpoint) DO UPDATE
SET refusals = CASE WHEN circuit.fingerprint = excluded.fingerprint AND circuit.kind = excluded.kind
                    THEN circuit.refusals + 1 ELSE 1 END,
    kind = excluded.kind, fingerprint = excluded.fingerprint, code = excluded.code, open_until = excluded.open_until,
    probe_until = NULL
WHERE circuit.open_until <= {now} OR circuit.fingerprint <> excluded.fingerprint
RETURNING channel, endpoint;

-- take_probe :affected — crosses tenants: whoever writes this sends one message to see whether it goes
UPDATE holdfast.channel_circuit
SET probe_until = {later(:lease_ms)}
WHERE channel = :channel AND endpoint = :endpoint
  AND (open_until <= {now} OR fingerprint <> :fingerprint)
  AND (probe_until IS NULL OR probe_until <= {now});

-- close_circuits :many — crosses tenants: it takes messages again
DELETE FROM holdfast.channel_circuit
WHERE (channel, endpoint) IN (SELECT closed.channel, closed.endpoint
                              FROM {rows closed: channel text, endpoint text})
RETURNING channel, endpoint;

-- allow_probes :many — crosses tenants: the pause is over now, whatever was left of it
UPDATE holdfast.channel_circuit
SET open_until = {now}
WHERE (channel, endpoint) IN (SELECT allowed.channel, allowed.endpoint
                              FROM {rows allowed: channel text, endpoint text})
  AND open_until > {now}
RETURNING channel, endpoint;

-- release_waiting :many — crosses tenants: what waited for these circuits is due
UPDATE holdfast.delivery
SET not_before_at = NULL, reason = NULL
FROM {rows freed: name text, place text}
WHERE state = 'pending' AND reason = 'circuit_open' AND channel = freed.name
  AND (freed.place = '' OR endpoint = freed.place)
RETURNING org_id, awaited_by;

-- count_waiting :one — crosses tenants: how much waits for these circuits, counted no further than :most
SELECT count(*) AS deliveries
FROM (SELECT 1
      FROM {rows kept: name text, place text}
      JOIN holdfast.delivery AS delivery
        ON delivery.channel = kept.name AND (kept.place = '' OR delivery.endpoint = kept.place)
      WHERE delivery.state = 'pending' AND delivery.reason = 'circuit_open'
      LIMIT :most) AS waiting;

-- prune_circuits :affected — crosses tenants: nothing has been sent there for so long that it says nothing
DELETE FROM holdfast.channel_circuit WHERE open_until < {later(:age_ms)};
