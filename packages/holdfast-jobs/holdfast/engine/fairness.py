"""Fairness: how a claim is divided over tenants and queues, and how much capacity is left. Pure.

Tenants take turns: a turn is as many jobs as the tenant's weight, and the next claim continues
where this one ended. What a short backlog does not need goes to the others. A limit key with less
capacity than its tenants want has a cursor of its own, or the first tenant of the queue would get
all of it every time. Queues share a worker by weight.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from holdfast.engine.job import Claimed

NOBODY = "00000000-0000-0000-0000-000000000000"
# More than can ever run, and a number that both databases can count to.
NO_LIMIT = 1_000_000_000


class Order(StrEnum):
    """Which of the due jobs of a queue a claim takes first."""

    FAIR = "fair"
    CREATED_AT_ASC = "created_at_asc"


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one claim may take of a queue, its keys and its tenants."""

    jobs: int
    # Of the keys that have a rule; the others have all the capacity there is.
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
    """What waits there; *depth* is what we know of it, and goes down as we claim.

    *position* is that of its first job, *is_deep* says that there may be more than we know, and
    *is_cut* that other tenants may follow whom the look did not reach.
    """

    queue: str
    limit_key: str
    org_id: str
    weight: int
    depth: int
    position: str | None = None
    is_deep: bool = False
    is_cut: bool = False

    @property
    def name(self) -> tuple[str, str]:
        return self.limit_key, self.org_id


@dataclass(frozen=True, slots=True)
class CursorPosition:
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
class RoundRobinCursor:
    """Where a queue's round over its tenants stands, and that of each of its scarce keys."""

    position: CursorPosition = field(default_factory=CursorPosition)
    keys: dict[str, CursorPosition] = field(default_factory=dict)
    # Every backlog of the last look has had its turn, and there are more behind them.
    is_through: bool = False

    def for_key(self, limit_key: str) -> CursorPosition:
        return self.keys.get(limit_key, self.position)

    def is_reached(self, org_id: str, cut: str | None) -> bool:
        """Whether a tenant comes before those that a look which ended at *cut* did not see."""
        return cut is None or self.position.place(org_id) <= self.position.place(cut)


@dataclass(frozen=True, slots=True)
class Allocation:
    """How many jobs each backlog gives, (key, tenant) → jobs, and where the cursor ends."""

    shares: Mapping[tuple[str, str], int]
    cursor: RoundRobinCursor


def mark_cuts(backlogs: Iterable[TenantBacklog], own_rounds: Collection[str]) -> None:
    """Mark where a look that had to end somewhere ended: at the last backlog of every long key."""
    by_key: dict[str, list[TenantBacklog]] = defaultdict(list)
    for backlog in backlogs:
        by_key[backlog.limit_key].append(backlog)
    longest = max(map(len, by_key.values()))
    for key, found in by_key.items():
        # Keys are looked through side by side: a shorter one has come to its end.
        if len(found) >= longest - 1 and key not in own_rounds:
            found[-1].is_cut = True


def allocate(
    backlogs: Sequence[TenantBacklog], wanted: int, capacity: Capacity, at: RoundRobinCursor
) -> Allocation:
    """Divide a claim: at most *wanted* jobs in all, and never beyond *capacity*."""
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
    for key, left in capacity.keys.items():
        wish = {org_id: most for (its_key, org_id), most in caps.items() if its_key == key}
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
        # Others wait whom we have not seen: one turn for each, then we look on.
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
    """Deal *total* jobs round by round, each as many a round as its weight, none beyond its most.

    Also says where the last round ended.
    """
    given = dict.fromkeys(order, 0)
    if total <= 0:
        return given, position
    active = [each for each in order if most[each] > 0]
    first, last = (position.left if active and active[0] == position.org_id else 0), position
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
            last = CursorPosition(str(each), 0 if is_done else (allowed - jobs) % weights[each])
            if not is_done:
                still.append(each)
            if total <= 0:
                return given, last
        active = still
    # Nobody was left out: it does not matter who comes first.
    return given, last if not order else CursorPosition(str(order[-1]))


def _split(
    backlogs: Iterable[TenantBacklog], caps: Mapping[tuple[str, str], int], given: Mapping[str, int]
) -> dict[tuple[str, str], int]:
    """A tenant has one share and not one for each of its keys: the oldest first, then in turn."""
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
    """Where a key's own round stands: whom the queue's round has not reached is still next.

    Who was reached and took an older job under another key has had its turn.
    """
    reached = begin
    for org_id, jobs in granted.items():
        if jobs > 0 and given[org_id] == 0:
            return reached
        if jobs > 0:
            reached = CursorPosition(org_id)
    return end


def interleave_tenants(claimed: Sequence[Claimed]) -> list[Claimed]:
    """One of each tenant, then the next of each, every tenant's in the order of its turns."""
    places: Counter[str] = Counter()
    placed = []
    for job in sorted(claimed, key=lambda job: job.position):
        placed.append((places[job.org_id], job.position, job))
        places[job.org_id] += 1
    return [job for _, _, job in sorted(placed, key=lambda item: item[:2])]


# A take is cut into so many pieces at most, so that fifty busy queues do not mean fifty claims.
PIECES = 8


@dataclass(slots=True)
class QueueShares:
    """What each queue has had, in jobs over its weight. The one that had least goes next."""

    had: dict[str, float] = field(default_factory=dict)
    # Where those that waited the last time stood; it never goes back.
    level: float = 0.0
    _waited: frozenset[str] = frozenset()

    def split(
        self, wanted: int, waiting: Collection[str], weights: Mapping[str, int]
    ) -> list[tuple[str, int]]:
        """How many of *wanted* jobs to ask of each waiting queue, in the order to ask."""
        if not waiting:
            return []
        self._catch_up(waiting)
        after = {queue: self.had[queue] for queue in waiting}
        asked: dict[str, int] = {}
        piece = max(1, wanted // PIECES)
        while wanted > 0:
            # Equal claims go to the heavier queue, then by name: the same state, the same split.
            queue = min(after, key=lambda name: (after[name], -weights.get(name, 1), name))
            size = min(piece, wanted)
            asked[queue] = asked.get(queue, 0) + size
            after[queue] += size / weights.get(queue, 1)
            wanted -= size
        return list(asked.items())

    def spend(self, queue: str, jobs: int, weights: Mapping[str, int]) -> None:
        """Note what a queue was given."""
        self.had[queue] = self.had.get(queue, 0.0) + jobs / weights.get(queue, 1)

    def _catch_up(self, waiting: Collection[str]) -> None:
        """A queue that was empty has saved up nothing, and is let off nothing that it had."""
        stayed = [self.had[queue] for queue in waiting if queue in self._waited]
        self.level = max(self.level, min(stayed, default=self.level))
        for queue in waiting:
            self.had[queue] = max(self.had.get(queue, 0.0), self.level)
        self._waited = frozenset(waiting)


T = TypeVar("T")


class TenantQueue(Generic[T]):
    """A queue that takes turns between tenants: a late one is not behind what another piled up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waitings: dict[str, deque[T]] = {}
        self._turns: deque[str] = deque()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, tenant: str, item: T) -> None:
        with self._lock:
            waiting = self._waitings.get(tenant)
            if waiting is None:
                waiting = self._waitings[tenant] = deque()
                self._turns.append(tenant)
            waiting.append(item)
            self._size += 1

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
            self._size -= 1
            return item
