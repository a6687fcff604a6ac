"""Lanes: what one tenant waits for in one queue under one key, and how a claim is poured over them.

Pouring is fair: tenants take turns, a turn is as many jobs as the tenant's weight, and the next
claim goes on where this one ended. What a short lane does not need goes to the others. A key that
has less room than its tenants want has a round of its own, or whoever stands first in the queue's
would have all of it every time. Pure, but for :func:`find_lanes` and the two that start and save
rounds.
"""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from holdfast.engine.room import Room
from holdfast.store import Statements, Store

SQL = Statements("holdfast.engine", "flow.sql")

NOBODY = "00000000-0000-0000-0000-000000000000"
# How many lanes are looked at at once; the next look goes on after them.
LANES = 256
# Few lanes are looked into as deep as a claim could use; of many, each only as deep as this part.
DEEP_LANES = 24


@dataclass(slots=True)
class Lane:
    """What waits there; *depth* is what we know of it, and goes down as we claim.

    *turn* is that of its first job, *is_deep* says that there may be more than we know, and
    *is_cut* that other tenants may follow whom the look did not reach.
    """

    queue: str
    limit_key: str
    org_id: str
    weight: int
    depth: int
    turn: str | None = None
    is_deep: bool = False
    is_cut: bool = False

    @property
    def name(self) -> tuple[str, str]:
        return self.limit_key, self.org_id


@dataclass(frozen=True, slots=True)
class Turn:
    """The tenant a round stands at, and how many jobs its turn still has; with none, it is over."""

    org_id: str = NOBODY
    left: int = 0

    def place(self, org_id: str) -> tuple[bool, str]:
        """What to sort tenants by, to have them in the order in which they follow."""
        return (org_id < self.org_id if self.left else org_id <= self.org_id), org_id

    @property
    def before(self) -> str:
        """The id after which the round goes on."""
        return str(uuid.UUID(int=uuid.UUID(self.org_id).int - 1)) if self.left else self.org_id


@dataclass(slots=True)
class Round:
    """Where a queue's round over its tenants stands, and that of each of its scarce keys."""

    turn: Turn = field(default_factory=Turn)
    keys: dict[str, Turn] = field(default_factory=dict)
    # Every lane of the last look has had its turn, and there are more behind them.
    is_through: bool = False

    def of(self, limit_key: str) -> Turn:
        return self.keys.get(limit_key, self.turn)

    def is_reached(self, org_id: str, cut: str | None) -> bool:
        """Whether a tenant comes before those that a look which ended at *cut* did not see."""
        return cut is None or self.turn.place(org_id) <= self.turn.place(cut)


@dataclass(frozen=True, slots=True)
class Poured:
    """How many jobs each lane of a queue gives, (key, tenant) → jobs, and where the round ends."""

    shares: Mapping[tuple[str, str], int]
    round: Round


def start_rounds(store: Store, queues: Collection[str], lane: str = "") -> dict[str, Round]:
    """Rounds that go on where the last worker's ended: who starts often leaves nobody out."""
    names = [{"name": queue} for queue in queues]
    rows = store.values(SQL.find_rounds, queues=names, lane=lane)
    return {
        queue: Round(Turn(str(org_id), left) if org_id else Turn()) for queue, org_id, left in rows
    }


def save_rounds(store: Store, rounds: Mapping[str, Round], lane: str = "") -> None:
    """Keep where rounds stand, for who comes next."""
    stand = [
        {"queue": queue, "stands_at": at.turn.org_id, "turn_left": at.turn.left}
        for queue, at in sorted(rounds.items())
    ]
    if stand:
        store.execute(SQL.save_rounds, rounds=stand, lane=lane)


def find_lanes(
    store: Store,
    queues: Mapping[str, Collection[str]],
    *,
    served: Mapping[str, Round],
    wanted: int,
    expected: int = 1,
) -> dict[str, list[Lane]]:
    """The lanes of *queues*, each given with its keys, each key in the order of its round."""
    fresh = Round()
    seeds = [
        {"queue": queue, "limit_key": key, "served": served.get(queue, fresh).of(key).before}
        for queue, keys in queues.items()
        for key in keys
    ]
    reach = max(1, wanted if expected <= DEEP_LANES else max(4, 8 * wanted // expected))
    # One of every key at least: whoever has many keys must not hide the others'.
    limit = LANES + len(seeds)
    rows = store.values(
        SQL.find_lanes, seeds=seeds, seed_count=len(seeds), lanes=limit, reach=reach
    )
    lanes: dict[str, list[Lane]] = defaultdict(list)
    for row in rows:
        lane = Lane(*row)
        lane.is_deep = lane.depth >= reach
        lanes[lane.queue].append(lane)
    if len(rows) >= limit:
        for queue, found in lanes.items():
            _mark_cuts(found, own_rounds=served.get(queue, fresh).keys)
    return lanes


def _mark_cuts(lanes: Iterable[Lane], own_rounds: Collection[str]) -> None:
    """Mark where a look that had to end somewhere ended: at the last lane of every long key."""
    by_key: dict[str, list[Lane]] = defaultdict(list)
    for lane in lanes:
        by_key[lane.limit_key].append(lane)
    longest = max(map(len, by_key.values()))
    for key, found in by_key.items():
        # Keys are looked through side by side: a shorter one has come to its end.
        if len(found) >= longest - 1 and key not in own_rounds:
            found[-1].is_cut = True


def pour(lanes: Sequence[Lane], wanted: int, room: Room, at: Round) -> Poured:
    """How many jobs each lane gives: at most *wanted* in all, and never beyond *room*."""
    total = min(wanted, room.jobs)
    if total <= 0:
        return Poured({}, at)
    cut = min((lane.org_id for lane in lanes if lane.is_cut), key=at.turn.place, default=None)
    caps = {
        lane.name: min(lane.depth, room.of_tenant(lane.org_id))
        for lane in lanes
        if lane.depth > 0 and (lane.limit_key in at.keys or at.is_reached(lane.org_id, cut))
    }
    weights = {lane.org_id: lane.weight for lane in lanes}
    scarce: dict[str, dict[str, int]] = {}
    key_turns: dict[str, Turn] = {}
    for key, left in room.keys.items():
        wish = {org_id: most for (its_key, org_id), most in caps.items() if its_key == key}
        if sum(wish.values()) <= left:
            continue
        given, key_turns[key] = _deal(_in_order(wish, at.of(key)), weights, wish, left, at.of(key))
        scarce[key] = given
        caps |= {(key, org_id): jobs for org_id, jobs in given.items()}

    of_tenant: Counter[str] = Counter()
    for (_, org_id), most in caps.items():
        of_tenant[org_id] = min(of_tenant[org_id] + most, room.of_tenant(org_id))
    if cut is not None:
        # Others wait whom we have not seen: one turn for each, then we look on.
        for org_id, most in of_tenant.items():
            left = at.turn.left if org_id == at.turn.org_id else 0
            of_tenant[org_id] = min(most, left or weights[org_id])
    order = _in_order(of_tenant, at.turn)
    given, turn = _deal(order, weights, of_tenant, total, at.turn)
    after = Round(turn)
    for key, granted in scarce.items():
        after.keys[key] = _key_turn(granted, given, at.of(key), key_turns[key])
    if cut is not None:
        if not at.is_reached(turn.org_id, cut):
            after.turn = Turn(cut)
        after.is_through = after.turn == Turn(cut)
    return Poured(_split(lanes, caps, given), after)


K = TypeVar("K", bound=Hashable)


def _in_order(tenants: Iterable[str], turn: Turn) -> list[str]:
    return sorted(tenants, key=turn.place)


def _deal(
    order: Sequence[K], weights: Mapping[K, int], most: Mapping[K, int], total: int, turn: Turn
) -> tuple[dict[K, int], Turn]:
    """Deal *total* jobs round by round, each as many a round as its weight, none beyond its most.

    Also says where the last round ended.
    """
    given = dict.fromkeys(order, 0)
    if total <= 0:
        return given, turn
    active = [each for each in order if most[each] > 0]
    first, last = (turn.left if active and active[0] == turn.org_id else 0), turn
    while active and total > 0:
        # As many whole rounds at once as there are jobs for.
        rounds = max(1, total // sum(weights[each] for each in active))
        still = []
        for each in active:
            allowed = rounds * weights[each]
            if first:
                allowed, first = allowed - weights[each] + min(first, weights[each]), 0
            jobs = min(allowed, most[each] - given[each], total)
            given[each] += jobs
            total -= jobs
            is_done = given[each] >= most[each]
            last = Turn(str(each), 0 if is_done else (allowed - jobs) % weights[each])
            if not is_done:
                still.append(each)
            if total <= 0:
                return given, last
        active = still
    # Nobody was left out: it does not matter who comes first.
    return given, last if not order else Turn(str(order[-1]))


def _split(
    lanes: Iterable[Lane], caps: Mapping[tuple[str, str], int], given: Mapping[str, int]
) -> dict[tuple[str, str], int]:
    """A tenant has one share and not one for each of its keys: the oldest first, then in turn."""
    by_tenant: dict[str, list[Lane]] = defaultdict(list)
    for lane in lanes:
        if caps.get(lane.name, 0) > 0 and given[lane.org_id] > 0:
            by_tenant[lane.org_id].append(lane)
    shares: dict[tuple[str, str], int] = {}
    for org_id, own in by_tenant.items():
        if len(own) == 1:
            shares[own[0].name] = given[org_id]
            continue
        names = [lane.name for lane in sorted(own, key=lambda lane: lane.turn or "")]
        parts, _ = _deal(names, dict.fromkeys(names, 1), caps, given[org_id], Turn())
        shares |= {name: jobs for name, jobs in parts.items() if jobs > 0}
    return shares


def _key_turn(granted: Mapping[str, int], given: Mapping[str, int], begin: Turn, end: Turn) -> Turn:
    """Where a key's own round stands: whom the queue's round has not reached is still next.

    Who was reached and took an older job under another key has had its turn.
    """
    reached = begin
    for org_id, jobs in granted.items():
        if jobs > 0 and given[org_id] == 0:
            return reached
        if jobs > 0:
            reached = Turn(org_id)
    return end
