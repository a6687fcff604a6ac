-- Circuits of channels. A circuit belongs to no tenant, so the statements cross tenants.

-- list_circuits :many — crosses tenants: every open circuit
SELECT channel, endpoint, kind, fingerprint, code, refusals, opened_at, open_until, probe_until
FROM holdfast.channel_circuit;

-- open_circuits :many — crosses tenants: stop sending there; a circuit that is open already is not changed
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

-- take_probe :affected — crosses tenants: reserve the right to send one message as a probe
UPDATE holdfast.channel_circuit
SET probe_until = {later(:lease_ms)}
WHERE channel = :channel AND endpoint = :endpoint
  AND (open_until <= {now} OR fingerprint <> :fingerprint)
  AND (probe_until IS NULL OR probe_until <= {now});

-- close_circuits :many — crosses tenants: the channel accepts messages again
DELETE FROM holdfast.channel_circuit
WHERE (channel, endpoint) IN (SELECT closed.channel, closed.endpoint
                              FROM {rows closed: channel text, endpoint text})
RETURNING channel, endpoint;

-- allow_probes :many — crosses tenants: end the pause now
UPDATE holdfast.channel_circuit
SET open_until = {now}
WHERE (channel, endpoint) IN (SELECT allowed.channel, allowed.endpoint
                              FROM {rows allowed: channel text, endpoint text})
  AND open_until > {now}
RETURNING channel, endpoint;

-- release_waiting :many — crosses tenants: make deliveries that waited for these circuits due
UPDATE holdfast.delivery
SET not_before_at = NULL, reason = NULL
FROM {rows freed: name text, place text}
WHERE state = 'pending' AND reason = 'circuit_open' AND channel = freed.name
  AND (freed.place = '' OR endpoint = freed.place)
RETURNING org_id, awaited_by;

-- count_waiting :one — crosses tenants: deliveries that wait for these circuits, counted up to :most
SELECT count(*) AS deliveries
FROM (SELECT 1
      FROM {rows kept: name text, place text}
      JOIN holdfast.delivery AS delivery
        ON delivery.channel = kept.name AND (kept.place = '' OR delivery.endpoint = kept.place)
      WHERE delivery.state = 'pending' AND delivery.reason = 'circuit_open'
      LIMIT :most) AS waiting;

-- prune_circuits :affected — crosses tenants: circuits that have not been used for a long time
DELETE FROM holdfast.channel_circuit WHERE open_until < {later(:age_ms)};
