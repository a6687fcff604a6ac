"""Claim: take due jobs under a lease, renew it, and ask whether it still holds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any

from holdfast.clock import read_instant
from holdfast.document import decode
from holdfast.engine.job import BATCH_KEY, Actor, ActorType, Claimed
from holdfast.engine.lane import Lane, Poured, Round, find_lanes, pour, save_rounds, start_rounds

# A lease begins with the claim; who renews it finds that here.
from holdfast.engine.lease import renew_leases as renew_leases
from holdfast.engine.promote import promote_jobs
from holdfast.engine.quarantine import bury_broken_in
from holdfast.engine.room import Room, find_room, spend_room, whole_room
from holdfast.engine.rules import Rules, read_rules
from holdfast.engine.settle import Settled
from holdfast.errors import RuleBroken, StoreError
from holdfast.store import Row, Statements, Store, Tx

SQL = Statements("holdfast.engine", "job.sql")
FLOW = Statements("holdfast.engine", "flow.sql")

# How many keys without a rule are looked under at once; the next look goes on after them.
KEYS = 1_000


class Order(StrEnum):
    """Which of the due jobs of a queue a claim takes first."""

    FAIR = "fair"
    CREATED_AT_ASC = "created_at_asc"


@dataclass(frozen=True, slots=True)
class Ask:
    """What a claim asks of a queue: of these *lanes* in turn, or the oldest."""

    queue: str
    worker_id: str
    limit: int
    lease_ms: int
    lanes: Sequence[Lane] = ()
    at: Round = field(default_factory=Round)
    order: Order = Order.FAIR
    respect_not_before_at: bool = True
    job_types: Sequence[str] = ()
    # Of those that wait for a provider's batch, or of those that wait for a worker.
    of_batch: bool = False
    # Jobs to pass over, where the oldest go first: a run takes a job once.
    without: Collection[str] = ()
    # Tenant, provider and model of jobs to pass over: they could not be sent.
    shut: Sequence[tuple[str, str, str]] = ()
    # What was buried on the way is put here: it is a dead letter that somebody has to tell of.
    buried: list[Settled] = field(default_factory=list)


def claim_jobs(
    store: Store,
    *,
    queue: str | None = None,
    queues: Sequence[str] = (),
    worker_id: str,
    limit: int,
    lease_ms: int,
    order: Order = Order.FAIR,
    respect_not_before_at: bool = True,
    job_types: Sequence[str] = (),
    of_batch: bool = False,
    without: Collection[str] = (),
    shut: Sequence[tuple[str, str, str]] = (),
    buried: list[Settled] | None = None,
) -> list[Claimed]:
    """Claim up to *limit* due jobs of *queues*, or of one *queue*.

    Tenants take turns, or the oldest jobs go first; the queues are served in the order given. One
    statement finds the queues that have jobs, and those without limits are one claim for all. Where
    jobs are passed over because they are *shut*, the oldest of the others go first.
    """
    names = tuple(queues) if queue is None else (queue,)
    seen = look_around(store, names)
    due = [row["queue"] for row in seen if row["has_due"]]
    if due:
        promote_jobs(store, due)
    rules = read_rules(store)
    busy = {
        row["queue"]
        for row in seen
        if row["is_waiting"] or row["has_due"] or not respect_not_before_at
    }
    first = Ask("", worker_id, limit, lease_ms, buried=[] if buried is None else buried)
    if order is Order.FAIR and respect_not_before_at and not (job_types or shut):
        return _claim_fair(store, rules, first, [name for name in names if name in busy], of_batch)
    claimed: list[Claimed] = []
    for name in names:
        if name not in busy or len(claimed) >= limit:
            continue
        ask = replace(
            first,
            queue=name,
            limit=limit - len(claimed),
            order=Order.CREATED_AT_ASC,
            respect_not_before_at=respect_not_before_at,
            job_types=job_types,
            of_batch=of_batch,
            without=without,
            shut=shut,
        )
        try:
            claimed += claim_by(store, rules, ask)
        except StoreError:
            # The jobs of the queues before are claimed and must be run.
            if not claimed:
                raise
            break
    return claimed


def _claim_fair(
    store: Store, rules: Rules, first: Ask, queues: Sequence[str], of_batch: bool
) -> list[Claimed]:
    """Claim of each of *queues* in turn, as many as are left of the limit of *first*."""
    if not queues:
        return []
    lane = BATCH_KEY if of_batch else ""
    rounds = start_rounds(store, queues, lane)
    keys = {
        queue: [BATCH_KEY] if of_batch else keys_of(rules, find_keys(store, queue))
        for queue in queues
    }
    lanes = find_lanes(store, keys, served=rounds, wanted=first.limit)
    asks, left = [], first.limit
    for queue in queues:
        waiting = lanes.get(queue, ())
        own = min(left, sum(lane.depth for lane in waiting))
        if own > 0 or len(queues) == 1:
            limit = first.limit if len(queues) == 1 else own
            asks.append(replace(first, queue=queue, limit=limit, lanes=waiting, at=rounds[queue]))
            left -= own
    claimed: list[Claimed] = []
    moved: dict[str, Round] = {}
    try:
        for ask, taken in claim_each(store, rules, asks):
            claimed += taken
            if taken:
                moved[ask.queue] = ask.at
    except StoreError:
        # The jobs of the queues before are claimed and must be run.
        if not claimed:
            raise
    # What is claimed is ours, whether this can be written or not.
    with suppress(StoreError):
        save_rounds(store, moved, lane)
    return claimed


def look_around(store: Store, queues: Iterable[str]) -> list[Row]:
    """Which of *queues* have jobs to claim or to promote, in one statement."""
    return store.many(FLOW.look_around, queues=[{"name": queue} for queue in queues])


def find_keys(store: Store, queue: str, after: str = "") -> list[str]:
    """The limit keys that follow *after*, and under which something waits in *queue*."""
    rows = store.values(FLOW.find_keys, queue=queue, after=after, limit=KEYS)
    return [key for (key,) in rows]


def keys_of(rules: Rules, waiting: Collection[str]) -> list[str]:
    """The keys to look under: those that wait, and always '', which is none, and those with a rule.

    Whoever makes up a thousand keys hides nobody's job that has none, or one that means something.
    What waits for a provider's batch is not a worker's.
    """
    return [key for key in dict.fromkeys(("", *rules.keys, *waiting)) if key != BATCH_KEY]


def claim_by(store: Store, rules: Rules, ask: Ask) -> list[Claimed]:
    """Claim what *ask* says under *rules*; nothing if the rules have changed meanwhile.

    The lanes of the ask are told what was taken of them, and its round where it stands.
    """
    return [job for _, claimed in claim_each(store, rules, [ask]) for job in claimed]


def claim_each(
    store: Store, rules: Rules, asks: Sequence[Ask]
) -> Iterator[tuple[Ask, list[Claimed]]]:
    """Claim what each of *asks* says, which are of different queues.

    Those that no limit concerns are one statement: fifty busy queues are not fifty claims.
    """
    free, others = [], []
    for ask in asks:
        if ask.limit <= 0 or rules.is_paused(ask.queue):
            yield ask, []
        elif ask.order is Order.CREATED_AT_ASC or _is_limited(rules, ask):
            others.append(ask)
        else:
            free.append(ask)
    if free:
        yield from _claim_free(store, rules, free)
    for ask in others:
        yield ask, _claim_other(store, rules, ask)


def _claim_free(
    store: Store, rules: Rules, asks: Sequence[Ask]
) -> Iterator[tuple[Ask, list[Claimed]]]:
    poured = [pour(ask.lanes, ask.limit, whole_room(ask.limit), ask.at) for ask in asks]
    shares = [
        share for ask, drops in zip(asks, poured, strict=True) for share in _shares(ask, drops)
    ]
    try:
        claimed = store.write_one(lambda tx: _claim_lanes(tx, rules, asks[0], shares))
        claimed = with_stages(store, claimed)
    except RuleBroken:
        claimed = [job for ask in asks for job in _claim_one_by_one(store, rules, ask)]
    for ask, drops in zip(asks, poured, strict=True):
        own = [job for job in claimed if job.queue == ask.queue]
        _note(ask, drops, own)
        yield ask, take_turns(own)


def _claim_other(store: Store, rules: Rules, ask: Ask) -> list[Claimed]:
    """The same for one queue that has limits, or whose oldest jobs are asked for."""
    poured = Poured({}, ask.at)
    try:
        if _is_limited(rules, ask):
            claimed, poured = store.write(lambda tx: _claim_limited(tx, rules, ask))
        else:
            room = whole_room(ask.limit)
            claimed = store.write_one(lambda tx: _claim_oldest(tx, rules, ask, room))
        claimed = with_stages(store, claimed)
    except RuleBroken:
        claimed = _claim_one_by_one(store, rules, ask)
    if ask.order is Order.CREATED_AT_ASC:
        # The order of RETURNING is nobody's promise.
        return sorted(claimed, key=lambda job: (str(job.created_at), job.id))
    _note(ask, poured, claimed)
    return take_turns(claimed)


def _is_limited(rules: Rules, ask: Ask) -> bool:
    """Whether this claim has to count what runs."""
    return rules.is_limited(ask.queue, _keys(rules, ask))


def _keys(rules: Rules, ask: Ask) -> Collection[str]:
    """The limit keys of what may be claimed."""
    if ask.order is Order.CREATED_AT_ASC:
        return rules.keys
    return {lane.limit_key for lane in ask.lanes}


def _claim_limited(tx: Tx, rules: Rules, ask: Ask) -> tuple[list[Claimed], Poured]:
    room = find_room(tx, rules, ask.queue, ask.limit, _keys(rules, ask))
    poured = pour(ask.lanes, ask.limit, room, ask.at)
    if room.jobs <= 0:
        return [], poured
    if ask.order is Order.CREATED_AT_ASC:
        claimed = _claim_oldest(tx, rules, ask, room)
    else:
        claimed = _claim_lanes(tx, rules, ask, _shares(ask, poured))
    if claimed:
        spend_room(tx, rules, ask.queue, claimed)
    return claimed, poured


def _shares(ask: Ask, poured: Poured) -> list[dict[str, Any]]:
    return [
        {"queue": ask.queue, "limit_key": key, "org_id": org_id, "quota": jobs}
        for (key, org_id), jobs in poured.shares.items()
    ]


def _claim_lanes(
    tx: Tx, rules: Rules, ask: Ask, shares: Sequence[Mapping[str, Any]]
) -> list[Claimed]:
    """Take of each lane its share; *ask* says for whom, and for how long."""
    if not shares:
        return []
    limit = sum(share["quota"] for share in shares)
    params = {**_lease(rules, ask, limit), "shares": shares, "lane_count": len(shares)}
    return [Claimed(*row) for row in tx.values(SQL.claim_jobs, **params)]


def _claim_oldest(tx: Tx, rules: Rules, ask: Ask, room: Room) -> list[Claimed]:
    params = {"queue": ask.queue, **_lease(rules, ask, room.jobs), **_oldest(ask, room)}
    return [Claimed(*row) for row in tx.values(SQL.claim_oldest, **params)]


def _lease(rules: Rules, ask: Ask, limit: int) -> dict[str, Any]:
    return {
        "worker_id": ask.worker_id,
        "limit": limit,
        "lease_ms": ask.lease_ms,
        "revision": rules.revision,
    }


def _oldest(ask: Ask, room: Room) -> dict[str, Any]:
    return {
        "tenant_room": room.per_tenant,
        "keys": [{"limit_key": key, "room": left} for key, left in room.keys.items()],
        "caps": [{"org_id": org_id, "room": left} for org_id, left in room.tenants.items()],
        **_which_oldest(ask),
    }


def _which_oldest(ask: Ask) -> dict[str, Any]:
    return {
        "types": [{"job_type": job_type} for job_type in ask.job_types],
        "any_type": 0 if ask.job_types else 1,
        "waits_too": 0 if ask.respect_not_before_at else 1,
        "of_batch": int(ask.of_batch),
        "without": [{"id": job_id} for job_id in ask.without],
        "any_route": 0 if ask.shut else 1,
        "shut": [
            {"org_id": org_id, "provider": provider, "model": model}
            for org_id, provider, model in ask.shut
        ],
    }


def _note(ask: Ask, poured: Poured, claimed: Sequence[Claimed]) -> None:
    """What is left of the lanes; one that gave less than it should is empty or held by others."""
    ask.at.turn, ask.at.keys = poured.round.turn, poured.round.keys
    ask.at.is_through = poured.round.is_through
    taken: dict[tuple[str, str], list[str]] = defaultdict(list)
    for job in claimed:
        taken[job.limit_key, job.org_id].append(job.turn)
    for lane in ask.lanes:
        turns = taken[lane.name]
        short = len(turns) < poured.shares.get(lane.name, 0)
        lane.depth = 0 if short else lane.depth - len(turns)
        # The next one's turn is not known, only that it is not before these.
        lane.turn = max([*turns, lane.turn or ""])


def take_turns(claimed: Sequence[Claimed]) -> list[Claimed]:
    """One of each tenant, then the next of each, every tenant's in the order of its turns."""
    places: Counter[str] = Counter()
    placed = []
    for job in sorted(claimed, key=lambda job: job.turn):
        placed.append((places[job.org_id], job.turn, job))
        places[job.org_id] += 1
    return [job for _, _, job in sorted(placed, key=lambda item: item[:2])]


# How many broken rows that cannot even be buried a claim looks past.
PASS_OVER = 500


def _claim_one_by_one(store: Store, rules: Rules, ask: Ask) -> list[Claimed]:
    """The same when one of the rows breaks a rule: it is buried, the others are taken."""
    claimed: list[Claimed] = []
    for quota, rows in _candidates(store, ask):
        wanted = len(claimed) + quota
        for org_id, job_id, limit_key in rows:
            if len(claimed) >= wanted:
                break
            one = _One(rules, ask, org_id, job_id, limit_key)
            try:
                claimed += with_stages(store, store.write(one.take))
            except RuleBroken as exc:
                with suppress(RuleBroken):
                    ask.buried.extend(store.write(partial(one.bury, rule=exc.rule)))
    return claimed


def _candidates(store: Store, ask: Ask) -> Iterator[tuple[int, list[tuple[str, str, str]]]]:
    """What the claim would have looked at, lane by lane, with how many to take of each."""
    if ask.order is Order.CREATED_AT_ASC:
        params = {"queue": ask.queue, "limit": ask.limit + PASS_OVER, **_which_oldest(ask)}
        yield ask.limit, store.values(SQL.list_due, **params)
        return
    shares = pour(ask.lanes, ask.limit, whole_room(ask.limit), ask.at).shares
    for (key, org_id), quota in shares.items():
        params = {"queue": ask.queue, "limit_key": key, "org_id": org_id}
        params["limit"] = quota + PASS_OVER
        yield quota, store.read(partial(_list_lane, params=params))


def _list_lane(tx: Tx, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return tx.values(SQL.list_lane, **params)


@dataclass(frozen=True, slots=True)
class _One:
    """One job that a claim may take, on its own."""

    rules: Rules
    ask: Ask
    org_id: str
    job_id: str
    limit_key: str

    def take(self, tx: Tx) -> list[Claimed]:
        rules, ask = self.rules, self.ask
        if tx.one(FLOW.read_revision)["revision"] != rules.revision:
            return []
        if not rules.is_limited(ask.queue, [self.limit_key]):
            return self._claim(tx)
        room = find_room(tx, rules, ask.queue, 1, [self.limit_key])
        if min(room.jobs, room.keys.get(self.limit_key, 1), room.of_tenant(self.org_id)) < 1:
            return []
        claimed = self._claim(tx)
        spend_room(tx, rules, ask.queue, claimed)
        return claimed

    def bury(self, tx: Tx, rule: str) -> list[Settled]:
        tx.affected(SQL.repair_job, org_id=self.org_id, id=self.job_id)
        actor = Actor(ActorType.SYSTEM, self.ask.worker_id)
        return [bury_broken_in(tx, job, rule=rule, actor=actor) for job in self._claim(tx)]

    def _claim(self, tx: Tx) -> list[Claimed]:
        rows = tx.values(
            SQL.claim_job,
            org_id=self.org_id,
            id=self.job_id,
            worker_id=self.ask.worker_id,
            lease_ms=self.ask.lease_ms,
        )
        return [Claimed(*row) for row in rows]


def with_stages(store: Store, claimed: list[Claimed]) -> list[Claimed]:
    """Give jobs that were under way before what their stages stored."""
    begun = [
        {"org_id": job.org_id, "id": job.id}
        for job in claimed
        if job.lease_token > 1 or job.replay_of is not None
    ]
    if not begun:
        return claimed
    stored: dict[str, list[Row]] = defaultdict(list)
    for row in store.many(SQL.list_stages, jobs=begun):
        stored[row["job_id"]].append(row)
    return [_with_stored(job, stored[job.id]) if job.id in stored else job for job in claimed]


def _with_stored(job: Claimed, rows: Iterable[Row]) -> Claimed:
    outputs: dict[str, Any] = {}
    checkpoint: Any = None
    for row in rows:
        if row["output"] is not None:
            outputs[row["stage"]] = decode(row["output"])
        elif row["stage"] == job.stage and row["checkpoint"] is not None:
            checkpoint = decode(row["checkpoint"])
    return replace(job, outputs=outputs, checkpoint=checkpoint)


def read_clock(store: Store) -> datetime:
    """The instant that decides: the store's own."""
    return read_instant(store.one(SQL.read_clock)["now"])
