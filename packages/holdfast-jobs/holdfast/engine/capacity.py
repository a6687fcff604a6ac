"""Capacity: how many more jobs a claim may take under the limits, counted in its transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from holdfast.engine.fairness import NO_LIMIT, Capacity
from holdfast.engine.job import Claimed
from holdfast.engine.limits import SQL, Rules
from holdfast.store import Tx

# Claims under a limit are serialized: two concurrent counts would find the same capacity.
CAPACITY_UNIT = "holdfast.flow"


def find_capacity(tx: Tx, rules: Rules, queue: str, limit: int, keys: Collection[str]) -> Capacity:
    """The remaining capacity. Other claims under a limit wait until the transaction ends."""
    tx.lock_units([CAPACITY_UNIT])
    in_queue, by_key = 0, Counter[str]()
    of_tenant, of_tenant_here = Counter[str](), Counter[str]()
    for row in tx.many(SQL.count_running):
        jobs = row["jobs"]
        by_key[row["limit_key"]] += jobs
        of_tenant[row["org_id"]] += jobs
        if row["queue"] == queue:
            in_queue += jobs
            of_tenant_here[row["org_id"]] += jobs

    rule = rules.queues.get(queue)
    own = None if rule is None else rule.settings
    jobs = limit
    if own is not None and own.max_running is not None:
        jobs = min(jobs, own.max_running - in_queue)
    if own is not None and own.rate is not None:
        bucket = tx.maybe(SQL.refill_queue, queue=queue)
        jobs = min(jobs, int(bucket["tokens"]) if bucket else 0)

    cap = None if own is None else own.max_running_per_tenant
    tenants = {}
    for org_id in {*of_tenant_here, *rules.tenants}:
        left = NO_LIMIT if cap is None else cap - of_tenant_here[org_id]
        tenant = rules.tenants.get(org_id)
        if tenant is not None and tenant.max_running is not None:
            left = min(left, tenant.max_running - of_tenant[org_id])
        if left < NO_LIMIT:
            tenants[org_id] = max(0, left)

    key_capacities = _key_capacities(tx, rules, keys, by_key)
    return Capacity(max(0, jobs), key_capacities, NO_LIMIT if cap is None else cap, tenants)


def _key_capacities(
    tx: Tx, rules: Rules, keys: Collection[str], running: Counter[str]
) -> dict[str, int]:
    """The capacity of each of *keys* and of each running key that has a rule."""
    found = {key: rules.key_settings(key) for key in (*keys, *running)}
    ruled = {key: own for key, own in found.items() if own is not None}
    rated = [{"limit_key": key} for key, own in ruled.items() if own.rate is not None]
    buckets: dict[str, float] = {}
    if rated:
        buckets = {row["name"]: row["tokens"] for row in tx.many(SQL.refill_keys, keys=rated)}
    capacities = {}
    for key, own in ruled.items():
        left = NO_LIMIT
        if own.max_running is not None:
            left = min(left, own.max_running - running[key])
        if own.rate is not None:
            left = min(left, int(buckets.get(key, 0)))
        capacities[key] = max(0, left)
    return capacities


def consume_tokens(tx: Tx, rules: Rules, queue: str, claimed: Sequence[Claimed]) -> None:
    """Take tokens for the claimed jobs from the rate buckets."""
    rule = rules.queues.get(queue)
    if rule is not None and rule.settings.rate is not None:
        tx.affected(SQL.consume_queue_tokens, queue=queue, jobs=len(claimed))
    keys = Counter(job.limit_key for job in claimed if job.limit_key in rules.keys)
    rated = [
        {"name": key, "jobs": jobs}
        for key, jobs in keys.items()
        if rules.keys[key].rate is not None
    ]
    if rated:
        tx.affected(SQL.consume_key_tokens, spent=rated)
