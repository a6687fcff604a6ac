"""Room: how many jobs a limited queue may still start, counted from live leases and buckets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from holdfast.engine.job import Claimed
from holdfast.engine.rules import Rules
from holdfast.store import Statements, Tx

SQL = Statements("holdfast.engine", "flow.sql")

# Claims under a limit take turns: two that count at once would both find the same room.
TURN = "holdfast.flow"
# More than can ever run, and a number that both databases can count to.
NO_LIMIT = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Room:
    """What one claim may take of a queue, its keys and its tenants."""

    jobs: int
    # Of the keys that have a rule; the others have all the room there is.
    keys: dict[str, int]
    per_tenant: int
    tenants: dict[str, int]

    def of_tenant(self, org_id: str) -> int:
        return self.tenants.get(org_id, self.per_tenant)


def whole_room(limit: int) -> Room:
    """The room of a queue without limits."""
    return Room(limit, {}, NO_LIMIT, {})


def find_room(tx: Tx, rules: Rules, queue: str, limit: int, keys: Collection[str]) -> Room:
    """The room that is left. Holds the turn until the transaction ends."""
    tx.lock_units([TURN])
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
        room = NO_LIMIT if cap is None else cap - of_tenant_here[org_id]
        tenant = rules.tenants.get(org_id)
        if tenant is not None and tenant.max_running is not None:
            room = min(room, tenant.max_running - of_tenant[org_id])
        if room < NO_LIMIT:
            tenants[org_id] = max(0, room)

    key_rooms = _key_rooms(tx, rules, keys, by_key)
    return Room(max(0, jobs), key_rooms, NO_LIMIT if cap is None else cap, tenants)


def _key_rooms(
    tx: Tx, rules: Rules, keys: Collection[str], running: Counter[str]
) -> dict[str, int]:
    """The room of each of *keys* that has a rule."""
    ruled = {key: rules.keys[key] for key in keys if key in rules.keys}
    rated = [{"limit_key": key} for key, own in ruled.items() if own.rate is not None]
    buckets: dict[str, float] = {}
    if rated:
        buckets = {row["name"]: row["tokens"] for row in tx.many(SQL.refill_keys, keys=rated)}
    rooms = {}
    for key, own in ruled.items():
        room = NO_LIMIT
        if own.max_running is not None:
            room = min(room, own.max_running - running[key])
        if own.rate is not None:
            room = min(room, int(buckets.get(key, 0)))
        rooms[key] = max(0, room)
    return rooms


def spend_room(tx: Tx, rules: Rules, queue: str, claimed: Sequence[Claimed]) -> None:
    """Take what was claimed out of the buckets."""
    rule = rules.queues.get(queue)
    if rule is not None and rule.settings.rate is not None:
        tx.affected(SQL.spend_queue, queue=queue, jobs=len(claimed))
    keys = Counter(job.limit_key for job in claimed if job.limit_key in rules.keys)
    rated = [
        {"name": key, "jobs": jobs}
        for key, jobs in keys.items()
        if rules.keys[key].rate is not None
    ]
    if rated:
        tx.affected(SQL.spend_keys, spent=rated)
