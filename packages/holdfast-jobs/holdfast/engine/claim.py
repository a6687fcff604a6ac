"""Claim: lease due jobs, renew leases, and check that they are still held."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Any

from holdfast.engine.capacity import consume_tokens, find_capacity
from holdfast.engine.fairness import (
    NIL_ID,
    Allocation,
    Capacity,
    CursorPosition,
    RoundRobinCursor,
    TenantBacklog,
    allocate,
    interleave_tenants,
    mark_cuts,
)
from holdfast.engine.fairness import Order as Order
from holdfast.engine.fairness import unlimited as unlimited
from holdfast.engine.job import BATCH_KEY, Claimed, State
from holdfast.engine.limits import Rules, read_rules
from holdfast.engine.promote import poll_queues as poll_queues
from holdfast.engine.promote import promote_jobs
from holdfast.engine.settle import Settled
from holdfast.engine.stage_outputs import with_stages
from holdfast.engine.state_hook import follow_claims
from holdfast.errors import StoreError
from holdfast.store import Statements, Store, Tx

SQL = Statements("holdfast.engine", "job.sql")
FLOW = Statements("holdfast.engine", "flow.sql")

# How many keys without a rule are read at once; the next read continues after them.
KEYS = 1_000
# How many backlogs are read at once; the next read continues after them.
BACKLOGS = 256
# A few backlogs are counted to the depth of a claim; many are each counted to a part of it.
DEEP_BACKLOGS = 24


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """The jobs that a claim requests of a queue: from *backlogs* in rotation, or the oldest."""

    # The oldest jobs of several queues without limits are one request: *queue* first, then *more*.
    queue: str
    worker_id: str
    limit: int
    lease_ms: int
    backlogs: Sequence[TenantBacklog] = ()
    at: RoundRobinCursor = field(default_factory=RoundRobinCursor)
    order: Order = Order.FAIR
    more: Sequence[str] = ()
    respect_not_before_at: bool = True
    job_types: Sequence[str] = ()
    # Claim jobs that wait for a provider batch instead of jobs that wait for a worker.
    of_batch: bool = False
    # Jobs to skip when the oldest go first: a run claims a job only once.
    without: Collection[str] = ()
    # Tenant, provider and model of jobs to skip, because they could not be sent.
    shut: Sequence[tuple[str, str, str]] = ()
    # Jobs that were dead-lettered instead of claimed; the caller emits their events.
    dead_lettered: list[Settled] = field(default_factory=list)

    @property
    def queues(self) -> tuple[str, ...]:
        """Its queues in the order in which they are served."""
        return (self.queue, *self.more)

    @property
    def which_oldest(self) -> dict[str, Any]:
        """Parameters that select the jobs for a claim of the oldest."""
        return {
            "types": [{"job_type": job_type} for job_type in self.job_types],
            "any_type": 0 if self.job_types else 1,
            "waits_too": 0 if self.respect_not_before_at else 1,
            "of_batch": int(self.of_batch),
            "without": [{"id": job_id} for job_id in self.without],
            "any_route": 0 if self.shut else 1,
            "shut": [
                {"org_id": org_id, "provider": provider, "model": model}
                for org_id, provider, model in self.shut
            ],
        }


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
    dead_lettered: list[Settled] | None = None,
) -> list[Claimed]:
    """Claim up to *limit* due jobs of *queues*, or of one *queue*.

    Tenants take turns, or the oldest jobs go first; the queues are served in the order given. One
    statement finds the queues with jobs, and one claims from all queues without limits. If jobs are
    skipped because they are *shut*, the oldest of the others go first.
    """
    names = tuple(queues) if queue is None else (queue,)
    seen = poll_queues(store, names)
    due = [row["queue"] for row in seen if row["has_due"]]
    if due:
        promote_jobs(store, due)
    rules = read_rules(store)
    busy = {
        row["queue"]
        for row in seen
        if row["is_waiting"] or row["has_due"] or not respect_not_before_at
    }
    dead = [] if dead_lettered is None else dead_lettered
    first = ClaimRequest("", worker_id, limit, lease_ms, dead_lettered=dead)
    if order is Order.FAIR and respect_not_before_at and not (job_types or shut):
        return _claim_fair(store, rules, first, [name for name in names if name in busy], of_batch)
    oldest = replace(
        first,
        order=Order.CREATED_AT_ASC,
        respect_not_before_at=respect_not_before_at,
        job_types=job_types,
        of_batch=of_batch,
        without=without,
        shut=shut,
    )
    return _claim_in_order(store, rules, oldest, [name for name in names if name in busy])


def _claim_in_order(
    store: Store, rules: Rules, oldest: ClaimRequest, queues: Sequence[str]
) -> list[Claimed]:
    """Claim the oldest jobs of each queue, up to the remaining limit of *oldest*.

    Adjacent queues without limits share one statement. Jobs claimed from a queue with limits count
    against the capacity of the next one, so each such queue needs its own claim.
    """
    claimed: list[Claimed] = []
    waiting = [replace(oldest, queue=queue) for queue in queues if not rules.is_paused(queue)]
    groups = groupby(waiting, lambda one: one.queue if _is_limited(rules, one) else None)
    for _, (one, *others) in groups:
        limit = oldest.limit - len(claimed)
        request = replace(one, limit=limit, more=[other.queue for other in others])
        try:
            claimed += claim_queue(store, rules, request)
        except StoreError:
            # Jobs claimed from earlier queues are leased and must be run.
            if not claimed:
                raise
            break
    return claimed


def _claim_fair(
    store: Store, rules: Rules, first: ClaimRequest, queues: Sequence[str], of_batch: bool
) -> list[Claimed]:
    """Claim from each of *queues* in turn, up to the remaining limit of *first*."""
    if not queues:
        return []
    limit_key = BATCH_KEY if of_batch else ""
    cursors = load_cursors(store, queues, limit_key)
    keys = {
        queue: [BATCH_KEY] if of_batch else keys_of(rules, find_keys(store, queue))
        for queue in queues
    }
    backlogs = find_backlogs(store, keys, served=cursors, wanted=first.limit)
    requests, left = [], first.limit
    for queue in queues:
        waiting = backlogs.get(queue, ())
        own = min(left, sum(backlog.depth for backlog in waiting))
        if own > 0 or len(queues) == 1:
            limit = first.limit if len(queues) == 1 else own
            requests.append(
                replace(first, queue=queue, limit=limit, backlogs=waiting, at=cursors[queue])
            )
            left -= own
    claimed: list[Claimed] = []
    moved: dict[str, RoundRobinCursor] = {}
    try:
        for request, taken in claim_each(store, rules, requests):
            claimed += taken
            if taken:
                moved[request.queue] = request.at
    except StoreError:
        # Jobs claimed from earlier queues are leased and must be run.
        if not claimed:
            raise
    # The claimed jobs are leased even if this write fails.
    with suppress(StoreError):
        save_cursors(store, moved, limit_key)
    return claimed


def load_cursors(
    store: Store, queues: Collection[str], limit_key: str = ""
) -> dict[str, RoundRobinCursor]:
    """Cursors that continue where the last worker stopped."""
    names = [{"name": queue} for queue in queues]
    rows = store.values(FLOW.load_cursors, queues=names, lane=limit_key)
    return {
        queue: RoundRobinCursor(CursorPosition(str(org_id), left) if org_id else CursorPosition())
        for queue, org_id, left in rows
    }


def save_cursors(store: Store, cursors: Mapping[str, RoundRobinCursor], key: str = "") -> None:
    """Store the cursors for the next worker."""
    stand = [
        {"queue": queue, "stands_at": at.position.org_id, "turn_left": at.position.left}
        for queue, at in sorted(cursors.items())
    ]
    if stand:
        store.execute(FLOW.save_cursors, rounds=stand, lane=key)


def find_backlogs(
    store: Store,
    queues: Mapping[str, Collection[str]],
    *,
    served: Mapping[str, RoundRobinCursor],
    wanted: int,
    expected: int = 1,
) -> dict[str, list[TenantBacklog]]:
    """The backlogs of *queues* by limit key, each key in the order of its cursor."""
    fresh = RoundRobinCursor()
    seeds = [
        {"queue": queue, "limit_key": key, "served": served.get(queue, fresh).for_key(key).before}
        for queue, keys in queues.items()
        for key in keys
    ]
    reach = max(1, wanted if expected <= DEEP_BACKLOGS else max(4, 8 * wanted // expected))
    # At least one per key, so that a tenant with many keys cannot hide the others.
    limit = BACKLOGS + len(seeds)
    rows = store.values(
        FLOW.find_backlogs, seeds=seeds, seed_count=len(seeds), backlogs=limit, reach=reach
    )
    backlogs: dict[str, list[TenantBacklog]] = defaultdict(list)
    for row in rows:
        backlog = TenantBacklog(*row)
        backlog.is_deep = backlog.depth >= reach
        backlogs[backlog.queue].append(backlog)
    if len(rows) >= limit:
        for queue, found in backlogs.items():
            mark_cuts(found, own_rounds=served.get(queue, fresh).keys)
    return backlogs


def find_keys(store: Store, queue: str, after: str = "") -> list[str]:
    """The limit keys after *after* that have waiting jobs in *queue*."""
    rows = store.values(FLOW.find_keys, queue=queue, after=after, limit=KEYS)
    return [key for (key,) in rows]


def keys_of(rules: Rules, waiting: Collection[str]) -> list[str]:
    """The keys to search: those of waiting jobs, those with a rule, and '' for jobs without a key.

    Many arbitrary keys therefore hide no other jobs. Workers skip jobs of a provider batch.
    """
    return [key for key in dict.fromkeys(("", *rules.keys, *waiting)) if key != BATCH_KEY]


def claim_queue(store: Store, rules: Rules, request: ClaimRequest) -> list[Claimed]:
    """Claim the jobs of *request* under *rules*; nothing if the rules have changed meanwhile.

    Updates the backlogs and the cursor of the request.
    """
    return [job for _, claimed in claim_each(store, rules, [request]) for job in claimed]


def claim_each(
    store: Store, rules: Rules, requests: Sequence[ClaimRequest]
) -> Iterator[tuple[ClaimRequest, list[Claimed]]]:
    """Claim the jobs of each of *requests*, which are for different queues.

    Requests without limits share one statement, so fifty busy queues do not need fifty claims.
    """
    free, others = [], []
    for request in requests:
        if request.limit <= 0 or rules.is_paused(request.queue):
            yield request, []
        elif request.order is Order.CREATED_AT_ASC or _is_limited(rules, request):
            others.append(request)
        else:
            free.append(request)
    if free:
        yield from _claim_free(store, rules, free)
    for request in others:
        yield request, _claim_other(store, rules, request)


def _claim_free(
    store: Store, rules: Rules, requests: Sequence[ClaimRequest]
) -> Iterator[tuple[ClaimRequest, list[Claimed]]]:
    allocation = [
        allocate(request.backlogs, request.limit, unlimited(request.limit), request.at)
        for request in requests
    ]
    shares = [
        share
        for request, granted in zip(requests, allocation, strict=True)
        for share in _shares(request, granted)
    ]
    claimed = _write_claim(store, lambda tx: _claim_shares(tx, rules, requests[0], shares))
    claimed = with_stages(store, claimed)
    for request, granted in zip(requests, allocation, strict=True):
        own = [job for job in claimed if job.queue == request.queue]
        _note(request, granted, own)
        yield request, interleave_tenants(own)


def claim_next(
    store: Store,
    rules: Rules,
    first: ClaimRequest,
    cursors: Mapping[str, RoundRobinCursor],
    floors: Mapping[tuple[str, str, str], str] | None = None,
) -> list[Claimed]:
    """Claim jobs without a limit key of the next waiting tenant of each queue, in one statement.

    For a worker that was idle: it saves the statement that finds the backlogs. *first* has the
    limit for each tenant; *cursors* are those of the queues. Queues with limits are left out. With
    *floors* these backlogs are claimed from instead, each after its floor.
    """
    free = [
        queue
        for queue in cursors
        if not rules.is_paused(queue) and not rules.is_limited(queue, ("",))
    ]
    share = {"limit_key": "", "quota": first.limit}
    if floors is None:
        next_tenant = {**share, "org_id": None, "floor": NIL_ID}
        shares = [
            {**next_tenant, "queue": queue, "served": cursors[queue].position.before}
            for queue in free
        ]
    else:
        shares = [
            {**share, "queue": queue, "org_id": org_id, "served": None, "floor": floor}
            for (queue, key, org_id), floor in floors.items()
            if queue in free and key == ""
        ]
    claimed = _write_claim(store, lambda tx: _claim_shares(tx, rules, first, shares))
    for job in claimed:
        cursors[job.queue].position = CursorPosition(job.org_id)
    return with_stages(store, claimed)


def _claim_other(store: Store, rules: Rules, request: ClaimRequest) -> list[Claimed]:
    """Claim from one queue that has limits, or claim its oldest jobs."""
    allocation = Allocation({}, request.at)
    if _is_limited(rules, request):
        claimed, allocation = store.write(lambda tx: _claim_limited(tx, rules, request))
    else:
        capacity = unlimited(request.limit)
        claimed = _write_claim(store, lambda tx: _claim_oldest(tx, rules, request, capacity))
    claimed = with_stages(store, claimed)
    if request.order is Order.CREATED_AT_ASC:
        # RETURNING has no order.
        places = {queue: place for place, queue in enumerate(request.queues)}
        return sorted(claimed, key=lambda job: (places[job.queue], str(job.created_at), job.id))
    _note(request, allocation, claimed)
    return interleave_tenants(claimed)


def _is_limited(rules: Rules, request: ClaimRequest) -> bool:
    """Whether this claim has to count running jobs."""
    if request.order is Order.CREATED_AT_ASC and rules.patterns:
        return True
    return rules.is_limited(request.queue, _keys(rules, request))


def _keys(rules: Rules, request: ClaimRequest) -> Collection[str]:
    """The limit keys of the jobs that may be claimed."""
    if request.order is Order.CREATED_AT_ASC:
        return rules.keys
    return {backlog.limit_key for backlog in request.backlogs}


def _claim_limited(tx: Tx, rules: Rules, request: ClaimRequest) -> tuple[list[Claimed], Allocation]:
    capacity = find_capacity(tx, rules, request.queue, request.limit, _keys(rules, request))
    allocation = allocate(request.backlogs, request.limit, capacity, request.at)
    if capacity.jobs <= 0:
        return [], allocation
    if request.order is Order.CREATED_AT_ASC:
        claimed = _claim_oldest(tx, rules, request, capacity)
    else:
        claimed = _claim_shares(tx, rules, request, _shares(request, allocation))
    if claimed:
        consume_tokens(tx, rules, request.queue, claimed)
    return claimed, allocation


def _shares(request: ClaimRequest, allocation: Allocation) -> list[dict[str, Any]]:
    floors = {backlog.name: backlog.floor for backlog in request.backlogs}
    return [
        {
            "queue": request.queue,
            "limit_key": key,
            "org_id": org_id,
            "served": None,
            "quota": jobs,
            "floor": floors[key, org_id],
        }
        for (key, org_id), jobs in allocation.shares.items()
    ]


def _claim_shares(
    tx: Tx, rules: Rules, request: ClaimRequest, shares: Sequence[Mapping[str, Any]]
) -> list[Claimed]:
    """Claim the share of each backlog, with the worker and the lease of *request*."""
    if not shares:
        return []
    limit = sum(share["quota"] for share in shares)
    params = {**_lease(rules, request, limit), "shares": shares, "backlog_count": len(shares)}
    return _start(tx, tx.values(SQL.claim_jobs, **params), request.lease_ms)


def _claim_oldest(tx: Tx, rules: Rules, request: ClaimRequest, capacity: Capacity) -> list[Claimed]:
    queues = [{"place": place, "name": name} for place, name in enumerate(request.queues)]
    params = {
        "queues": queues,
        "queue_count": len(queues),
        **_lease(rules, request, capacity.jobs),
        **_oldest(rules, request, capacity),
    }
    return _start(tx, tx.values(SQL.claim_oldest, **params), request.lease_ms)


_STARTED = (
    *("org_id", "id", "position", "claimed_at", "lease_token", "attempt_count", "max_attempts"),
    *("queue", "limit_key", "stage", "claimed_by"),
)
_started = attrgetter(*_STARTED)


def _start(tx: Tx, rows: Sequence[tuple[Any, ...]], lease_ms: int) -> list[Claimed]:
    """The claimed jobs; if the claim could not write them, their leases are written here."""
    claimed = [Claimed(*row) for row in rows]
    if claimed and not tx.dialect.has_writing_ctes:
        claims = [dict(zip(_STARTED, _started(job), strict=True)) for job in claimed]
        tx.affected(SQL.start_jobs, claims=claims, lease_ms=lease_ms)
    return follow_claims(tx, claimed)


def _write_claim(store: Store, work: Callable[[Tx], list[Claimed]]) -> list[Claimed]:
    """Run a claim as a single statement, unless there is another one after it."""
    is_one = store.dialect.has_writing_ctes and not store.follows(State.PROCESSING)
    return store.write_one(work) if is_one else store.write(work)


def _lease(rules: Rules, request: ClaimRequest, limit: int) -> dict[str, Any]:
    return {
        "worker_id": request.worker_id,
        "limit": limit,
        "lease_ms": request.lease_ms,
        "revision": rules.revision,
    }


def _oldest(rules: Rules, request: ClaimRequest, capacity: Capacity) -> dict[str, Any]:
    return {
        "patterns": [{"prefix": prefix, "room": own.max_running} for prefix, own in rules.patterns],
        "tenant_room": capacity.per_tenant,
        "keys": [{"limit_key": key, "room": left} for key, left in capacity.keys.items()],
        "caps": [{"org_id": org_id, "room": left} for org_id, left in capacity.tenants.items()],
        **request.which_oldest,
    }


def _note(request: ClaimRequest, allocation: Allocation, claimed: Sequence[Claimed]) -> None:
    """Update backlogs and cursor; a backlog that yielded less than asked is empty or locked."""
    request.at.position, request.at.keys = allocation.cursor.position, allocation.cursor.keys
    request.at.is_through = allocation.cursor.is_through
    taken: dict[tuple[str, str], list[str]] = defaultdict(list)
    for job in claimed:
        taken[job.limit_key, job.org_id].append(job.position)
    for backlog in request.backlogs:
        turns = taken[backlog.name]
        short = len(turns) < allocation.shares.get(backlog.name, 0)
        backlog.depth = 0 if short else backlog.depth - len(turns)
        # The next position is unknown, but it is not before these.
        backlog.position = max([*turns, backlog.position or ""])
        if turns:
            backlog.floor = max(turns)
