"""Fairness: how a claim is divided over tenants and queues, and how much capacity is left. Pure.

Tenants take turns. A turn is as many jobs as the tenant's weight, and the next claim continues
where the last one ended. Slots that a short backlog does not need go to the others. A limit key
with less capacity than its tenants want has its own cursor; otherwise the first tenant of the queue
would always get all of it. Queues share a worker by weight.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter, itemgetter
from typing import Generic, TypeVar

from holdfast.engine.job import Claimed

NIL_ID = "00000000-0000-0000-0000-000000000000"
# More jobs than can ever run, and a number that both databases can represent.
NO_LIMIT = 1_000_000_000


class Order(StrEnum):
    """Which of the due jobs of a queue a claim takes first."""

    FAIR = "fair"
    CREATED_AT_ASC = "created_at_asc"


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many jobs one claim may take from a queue, its keys and its tenants."""

    jobs: int
    # Only keys with a rule; other keys are unlimited.
    keys: dict[str, int]
    per_tenant: int
    tenants: dict[str, int]

    def of_tenant(self, org_id: str) -> int:
        return self.tenants.get(org_id, self.per_tenant)


def unlimited(limit: int) -> Capacity:
    """The capacity of a queue without limits."""
    return Capacity(limit, {}, NO_LIMIT, {})


@dataclass(slots=True)
class TenantBacklog:
    """The waiting jobs of a tenant under a limit key.

    *depth* is the number of known jobs; claims reduce it. *position* is that of the first job.
    *is_deep* means that there may be more jobs than known. *is_cut* means that the poll ended here
    and other tenants may follow.
    """

    queue: str
    limit_key: str
    org_id: str
    weight: int
    depth: int
    position: str | None = None
    is_deep: bool = False
    is_cut: bool = False
    # A claim reads the positions after this one: those before it were claimed.
    floor: str = NIL_ID

    @property
    def name(self) -> tuple[str, str]:
        return self.limit_key, self.org_id


@dataclass(frozen=True, slots=True)
class CursorPosition:
    """The tenant of a cursor, and the jobs left in its turn. With none left, the turn is over."""

    org_id: str = NIL_ID
    left: int = 0

    def place(self, org_id: str) -> tuple[bool, str]:
        """The sort key that orders tenants by their distance from the cursor."""
        return (org_id < self.org_id if self.left else org_id <= self.org_id), org_id

    @property
    def before(self) -> str:
        """The id after which the rotation continues."""
        if not self.left or self.org_id == NIL_ID:
            return self.org_id
        return str(uuid.UUID(int=uuid.UUID(self.org_id).int - 1))


@dataclass(slots=True)
class RoundRobinCursor:
    """The position of a queue's rotation over its tenants, and of each of its scarce keys."""

    position: CursorPosition = field(default_factory=CursorPosition)
    keys: dict[str, CursorPosition] = field(default_factory=dict)
    # Every backlog of the last poll has had its turn, and more tenants follow.
    is_through: bool = False

    def for_key(self, limit_key: str) -> CursorPosition:
        return self.keys.get(limit_key, self.position)

    def is_reached(self, org_id: str, cut: str | None) -> bool:
        """Whether a tenant precedes those that a poll which ended at *cut* did not see."""
        return cut is None or self.position.place(org_id) <= self.position.place(cut)


@dataclass(frozen=True, slots=True)
class Allocation:
    """The number of jobs per backlog, (key, tenant) → jobs, and the final cursor position."""

    shares: Mapping[tuple[str, str], int]
    cursor: RoundRobinCursor


def mark_cuts(backlogs: Iterable[TenantBacklog], own_rounds: Collection[str]) -> None:
    """Mark where a bounded poll ended: at the last backlog of every long key."""
    by_key: dict[str, list[TenantBacklog]] = defaultdict(list)
    for backlog in backlogs:
        by_key[backlog.limit_key].append(backlog)
    longest = max(map(len, by_key.values()))
    for key, found in by_key.items():
        # Keys are polled in parallel, so a shorter key was read to its end.
        if len(found) >= longest - 1 and key not in own_rounds:
            found[-1].is_cut = True


def allocate(
    backlogs: Sequence[TenantBacklog], wanted: int, capacity: Capacity, at: RoundRobinCursor
) -> Allocation:
    """Divide a claim: at most *wanted* jobs in total, and never beyond *capacity*."""
    total = min(wanted, capacity.jobs)
    if total <= 0:
        return Allocation({}, at)
    cut = min(
        (backlog.org_id for backlog in backlogs if backlog.is_cut),
        key=at.position.place,
        default=None,
    )
    caps = {
        backlog.name: min(backlog.depth, capacity.of_tenant(backlog.org_id))
        for backlog in backlogs
        if backlog.depth > 0
        and (backlog.limit_key in at.keys or at.is_reached(backlog.org_id, cut))
    }
    weights = {backlog.org_id: backlog.weight for backlog in backlogs}
    scarce: dict[str, dict[str, int]] = {}
    key_positions: dict[str, CursorPosition] = {}
    wishes: dict[str, dict[str, int]] = defaultdict(dict)
    for (key, org_id), most in caps.items():
        wishes[key][org_id] = most
    for key, left in capacity.keys.items():
        wish = wishes.get(key, {})
        if sum(wish.values()) <= left:
            continue
        given, key_positions[key] = _round_robin(
            _in_order(wish, at.for_key(key)), weights, wish, left, at.for_key(key)
        )
        scarce[key] = given
        caps |= {(key, org_id): jobs for org_id, jobs in given.items()}

    of_tenant: Counter[str] = Counter()
    for (_, org_id), most in caps.items():
        of_tenant[org_id] = min(of_tenant[org_id] + most, capacity.of_tenant(org_id))
    if cut is not None:
        # Unseen tenants are waiting: give each tenant one turn, then poll again.
        for org_id, most in of_tenant.items():
            left = at.position.left if org_id == at.position.org_id else 0
            of_tenant[org_id] = min(most, left or weights[org_id])
    order = _in_order(of_tenant, at.position)
    given, position = _round_robin(order, weights, of_tenant, total, at.position)
    after = RoundRobinCursor(position)
    for key, granted in scarce.items():
        after.keys[key] = _key_position(granted, given, at.for_key(key), key_positions[key])
    if cut is not None:
        if not at.is_reached(position.org_id, cut):
            after.position = CursorPosition(cut)
        after.is_through = after.position == CursorPosition(cut)
    return Allocation(_split(backlogs, caps, given), after)


K = TypeVar("K", bound=Hashable)


def _in_order(tenants: Iterable[str], position: CursorPosition) -> list[str]:
    return sorted(tenants, key=position.place)


def _round_robin(
    order: Sequence[K],
    weights: Mapping[K, int],
    most: Mapping[K, int],
    total: int,
    position: CursorPosition,
) -> tuple[dict[K, int], CursorPosition]:
    """Distribute *total* jobs round-robin by weight, up to the maximum of each.

    Also return where the last round ended.
    """
    given = dict.fromkeys(order, 0)
    if total <= 0:
        return given, position
    active = [each for each in order if most[each] > 0]
    first, last = (position.left if active and active[0] == position.org_id else 0), position
    while active and total > 0:
        # Allocate as many whole rounds at once as *total* covers.
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
            last = CursorPosition(str(each), 0 if is_done else (allowed - jobs) % weights[each])
            if not is_done:
                still.append(each)
            if total <= 0:
                return given, last
        active = still
    # Every tenant got all it wanted, so the order does not matter.
    return given, last if not order else CursorPosition(str(order[-1]))


def _split(
    backlogs: Iterable[TenantBacklog], caps: Mapping[tuple[str, str], int], given: Mapping[str, int]
) -> dict[tuple[str, str], int]:
    """Divide a tenant's single share over its keys: the oldest first, then in turn."""
    by_tenant: dict[str, list[TenantBacklog]] = defaultdict(list)
    for backlog in backlogs:
        if caps.get(backlog.name, 0) > 0 and given[backlog.org_id] > 0:
            by_tenant[backlog.org_id].append(backlog)
    shares: dict[tuple[str, str], int] = {}
    for org_id, own in by_tenant.items():
        if len(own) == 1:
            shares[own[0].name] = given[org_id]
            continue
        names = [
            backlog.name for backlog in sorted(own, key=lambda backlog: backlog.position or "")
        ]
        parts, _ = _round_robin(
            names, dict.fromkeys(names, 1), caps, given[org_id], CursorPosition()
        )
        shares |= {name: jobs for name, jobs in parts.items() if jobs > 0}
    return shares


def _key_position(
    granted: Mapping[str, int], given: Mapping[str, int], begin: CursorPosition, end: CursorPosition
) -> CursorPosition:
    """The position of a key's own rotation.

    A tenant that the queue's rotation has not reached is still next. A tenant that was reached and
    took an older job under another key has had its turn.
    """
    reached = begin
    for org_id, jobs in granted.items():
        if jobs > 0 and given[org_id] == 0:
            return reached
        if jobs > 0:
            reached = CursorPosition(org_id)
    return end


def interleave_tenants(claimed: Sequence[Claimed]) -> list[Claimed]:
    """Interleave: the first job of each tenant, then the second of each, each tenant's in order."""
    in_order = sorted(claimed, key=attrgetter("position"))
    if len({job.org_id for job in in_order}) < 2:
        return in_order
    places: Counter[str] = Counter()
    placed = []
    for job in in_order:
        placed.append((places[job.org_id], job))
        places[job.org_id] += 1
    # Stable, so jobs in the same place stay in the order of their positions.
    return [job for _, job in sorted(placed, key=itemgetter(0))]


# A take is split into at most this many pieces, so that fifty busy queues do not mean fifty claims.
PIECES = 8


@dataclass(slots=True)
class QueueShares:
    """Jobs served per queue, divided by its weight. The queue with the least goes next."""

    had: dict[str, float] = field(default_factory=dict)
    # The level of the queues that were waiting last time. It never decreases.
    level: float = 0.0
    _waited: frozenset[str] = frozenset()

    def split(
        self, wanted: int, waiting: Collection[str], weights: Mapping[str, int]
    ) -> list[tuple[str, int]]:
        """How many of *wanted* jobs to claim from each waiting queue, in claim order."""
        if not waiting:
            return []
        self._catch_up(waiting)
        after = {queue: self.had[queue] for queue in waiting}
        asked: dict[str, int] = {}
        piece = max(1, wanted // PIECES)
        while wanted > 0:
            # Ties go to the heavier queue, then by name, so the split is deterministic.
            queue = min(after, key=lambda name: (after[name], -weights.get(name, 1), name))
            size = min(piece, wanted)
            asked[queue] = asked.get(queue, 0) + size
            after[queue] += size / weights.get(queue, 1)
            wanted -= size
        return list(asked.items())

    def spend(self, queue: str, jobs: int, weights: Mapping[str, int]) -> None:
        """Record the jobs claimed from a queue."""
        self.had[queue] = self.had.get(queue, 0.0) + jobs / weights.get(queue, 1)

    def _catch_up(self, waiting: Collection[str]) -> None:
        """Raise queues that were empty to the current level; none gains credit or loses debt."""
        stayed = [self.had[queue] for queue in waiting if queue in self._waited]
        self.level = max(self.level, min(stayed, default=self.level))
        for queue in waiting:
            self.had[queue] = max(self.had.get(queue, 0.0), self.level)
        self._waited = frozenset(waiting)


T = TypeVar("T")


class TenantQueue(Generic[T]):
    """A queue that takes turns between tenants, so that one tenant's backlog delays no other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waitings: dict[str, deque[T]] = {}
        self._turns: deque[str] = deque()
        self.size = 0

    def __len__(self) -> int:
        return self.size

    def put(self, tenant: str, item: T) -> None:
        self.put_all([(tenant, item)])

    def put_all(self, items: Iterable[tuple[str, T]]) -> None:
        """Add items, each with its tenant."""
        with self._lock:
            for tenant, item in items:
                waiting = self._waitings.get(tenant)
                if waiting is None:
                    waiting = self._waitings[tenant] = deque()
                    self._turns.append(tenant)
                waiting.append(item)
                self.size += 1

    def pop(self) -> T:
        """The next item. Raises IndexError if there is none."""
        with self._lock:
            tenant = self._turns.popleft()
            waiting = self._waitings[tenant]
            item = waiting.popleft()
            if waiting:
                self._turns.append(tenant)
            else:
                del self._waitings[tenant]
            self.size -= 1
            return item
