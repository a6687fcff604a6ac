"""Deliveries under one lease, with the attempts and evidence of each."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from holdfast.channel.channel import Channel
from holdfast.clock import ms, read_instant
from holdfast.errors import StoreError
from holdfast.outbox.circuit import Circuits
from holdfast.outbox.decide import Decision, decide
from holdfast.outbox.delivery import Attempt, Delivery, Evidence, Phase, Reason
from holdfast.store import Row, Statements, Tx

if TYPE_CHECKING:
    from holdfast.outbox.outbox import Outbox

SQL = Statements("holdfast.outbox", "delivery.sql")

T = TypeVar("T")
R = TypeVar("R")
Key = tuple[str, str]

LONGEST_NAME = 500
_WORD = re.compile(r"[A-Za-z0-9_.:-]+")


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """A leased delivery with all its attempts and evidence."""

    delivery: Delivery
    attempts: tuple[Attempt, ...]
    evidence: tuple[Evidence, ...]
    # The time at which its job was canceled.
    canceled_at: datetime | None = None

    @property
    def key(self) -> Key:
        return self.delivery.org_id, self.delivery.id

    @property
    def named(self) -> dict[str, str | int]:
        """Parameters that identify it in statements, with its fencing token."""
        one = self.delivery
        return {"home": one.org_id, "delivery_id": one.id, "was": one.fence}


@dataclass(frozen=True, slots=True)
class DeliveryLease:
    """Deliveries that were leased together, and the store's time of the lease."""

    outbox: Outbox
    cases: tuple[DeliveryState, ...]
    taken_at: datetime
    taken_monotonic: float
    circuits: Circuits = field(default_factory=Circuits)

    @property
    def now(self) -> datetime:
        """The store's time, estimated with the monotonic clock."""
        passed = self.outbox.app.clock.monotonic() - self.taken_monotonic
        return self.taken_at + timedelta(seconds=passed)

    def channel(self, case: DeliveryState) -> Channel | None:
        return self.outbox.channels.get(case.delivery.channel)

    def decide(self, case: DeliveryState, channel: Channel) -> Decision:
        one = case.delivery
        policy = self.outbox.policy(one.channel)
        told = (one, case.attempts, case.evidence)
        given = (channel.capabilities, policy, self.now)
        return decide(*told, *given, canceled_at=case.canceled_at)


def lease_deliveries(
    outbox: Outbox, take: Callable[[Tx], list[Row]], circuits: Circuits | None = None
) -> DeliveryLease | None:
    """Lease deliveries and read their history; None if there are none."""
    began = outbox.app.clock.monotonic()

    def work(tx: Tx) -> tuple[list[Row], _History]:
        rows = take(tx)
        return rows, _read_history(tx, [(row["org_id"], row["id"]) for row in rows])

    rows, history = outbox.store.write(work)
    if not rows:
        return None
    cases = _cases([Delivery.from_row(row) for row in rows], history)
    return DeliveryLease(outbox, cases, read_instant(rows[0]["now"]), began, circuits or Circuits())


def read_again(tx: Tx, cases: Sequence[DeliveryState]) -> dict[Key, DeliveryState]:
    """Read the states again: new evidence, outcomes of attempts, canceled jobs."""
    made = {case.key: case.delivery.attempts for case in cases}
    history = _read_history(tx, made)
    # Only the lease holder makes attempts. A later one is from our own commit that had no answer.
    known = [
        row
        for row in history.attempts
        if row["number"] <= made[str(row["org_id"]), str(row["delivery_id"])]
    ]
    found = _cases([case.delivery for case in cases], replace(history, attempts=known))
    return {case.key: case for case in found}


@dataclass(frozen=True, slots=True)
class _History:
    """The stored attempts, evidence and canceled jobs of deliveries."""

    attempts: Sequence[Row] = ()
    evidence: Sequence[Row] = ()
    canceled: Sequence[Row] = ()


def _read_history(tx: Tx, keys: Iterable[Key]) -> _History:
    named = [{"home": str(org_id), "delivery_id": str(one)} for org_id, one in keys]
    if not named:
        return _History()
    statements = (SQL.list_attempts, SQL.list_evidence, SQL.list_canceled)
    return _History(*(tx.many(statement, named=named) for statement in statements))


def _cases(deliveries: Sequence[Delivery], history: _History) -> tuple[DeliveryState, ...]:
    tries: dict[Key, list[Attempt]] = defaultdict(list)
    for row in history.attempts:
        tries[_key_of(row)].append(read_attempt(row))
    said: dict[Key, list[Evidence]] = defaultdict(list)
    for row in history.evidence:
        said[_key_of(row)].append(read_evidence(row))
    canceled = {_key_of(row): read_instant(row["at"]) for row in history.canceled}
    keys = [(one, (one.org_id, one.id)) for one in deliveries]
    return tuple(
        DeliveryState(one, tuple(tries[key]), tuple(said[key]), canceled.get(key))
        for one, key in keys
    )


def _key_of(row: Row) -> Key:
    return str(row["org_id"]), str(row["delivery_id"])


def read_attempt(row: Row) -> Attempt:
    """Read an attempt from its row."""
    return Attempt(
        row["number"],
        Reason(row["reason"]),
        read_instant(row["began_at"]),
        row["outcome"],
        row["code"],
        row["provider_id"],
        row["body_hash"],
        None if row["phase"] is None else Phase(row["phase"]),
    )


def read_evidence(row: Row) -> Evidence:
    """Read a piece of evidence from its row."""
    return Evidence(
        row["source"],
        row["verdict"],
        row["after_attempt"],
        read_instant(row["at"]),
        row["provider_id"],
        row["code"],
    )


def get_code(said: object) -> str:
    """Return a channel's code as it may be stored; text that is no code becomes "unreadable"."""
    text = said[:100] if isinstance(said, str) else ""
    return text if _WORD.fullmatch(text) else "unreadable"


def name_at(said: object) -> str | None:
    """Return the id that a channel gave; None if it cannot be stored."""
    is_name = isinstance(said, str) and 0 < len(said) <= LONGEST_NAME and said.isprintable()
    return str(said) if is_name else None


def each(
    outbox: Outbox, items: Sequence[T], channel_of: Callable[[T], str], call: Callable[[T], R]
) -> list[R]:
    """Call a channel for every item, with the parallelism of each channel; results in order."""
    # A fake clock moves inside the calls; then everything happens in this thread.
    if outbox.app.clock.is_fake or len(items) < 2:
        return [call(item) for item in items]
    names = {channel_of(item) for item in items}
    pools = {
        name: ThreadPoolExecutor(outbox.channels.max_parallel(name), "outbox") for name in names
    }
    try:
        futures = [pools[channel_of(item)].submit(call, item) for item in items]
        return [future.result() for future in futures]
    finally:
        for pool in pools.values():
            pool.shutdown()


@dataclass(slots=True)
class LeaseGuard:
    """The deliveries whose lease is certainly held, until *until* on the monotonic clock."""

    keys: frozenset[Key]
    until: float

    def holds(self, case: DeliveryState, now: float) -> bool:
        return now < self.until and case.key in self.keys


@contextmanager
def renewing(lease: DeliveryLease, cases: Sequence[DeliveryState]) -> Iterator[LeaseGuard]:
    """Renew the lease of *cases* while a channel is called.

    If the lease expired during a call, another worker could send the same delivery.
    """
    outbox, clock = lease.outbox, lease.outbox.app.clock
    seconds = outbox.settings.outbox.lease_seconds
    grip = LeaseGuard(frozenset(case.key for case in cases), clock.monotonic() + seconds / 2)
    # A fake clock does not advance unless a test lets the lease expire.
    if clock.is_fake:
        yield grip
        return
    over = threading.Event()
    held = [case.named for case in cases]

    def renew() -> None:
        while not clock.wait(over, seconds / 4):
            now = clock.monotonic()
            with suppress(StoreError):
                rows = outbox.store.many(SQL.hold_deliveries, held=held, lease_ms=lease_ms(outbox))
                # A delivery that another worker leased during an outage is not ours again.
                grip.keys = frozenset((str(row["org_id"]), str(row["id"])) for row in rows)
                grip.until = now + seconds / 2

    thread = threading.Thread(target=renew, name="outbox-lease", daemon=True)
    thread.start()
    try:
        yield grip
    finally:
        over.set()
        thread.join()


def lease_ms(outbox: Outbox) -> int:
    return ms(outbox.settings.outbox.lease_seconds)
