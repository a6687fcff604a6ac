"""Circuits: pause a channel that refuses our credential or is unavailable.

A wrong credential, a missing permission or a wrong address affects every message of a channel, or
of one endpoint. Its circuit opens: the messages wait, and no attempt is counted. When the pause is
over, or when the credential or the settings of the channel change, one message probes it. If the
channel accepts it, the circuit closes; if not, the next pause is four times as long.

A channel that is unreachable or overloaded gets shorter pauses. An outage then costs one attempt of
one message per pause instead of all attempts of every message.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast.clock import ms, read_instant
from holdfast.config import OutboxSettings
from holdfast.engine.audit import PLATFORM_ORG, Deed, record_actions
from holdfast.engine.job import SYSTEM
from holdfast.engine.retry import RETRY_AFTER_CEILING
from holdfast.event import DeliveryAlert, DeliveryTrouble
from holdfast.outbox.delivery import Attempt, Delivery
from holdfast.outbox.wait import awaiting, wake_jobs
from holdfast.store import Statements, Tx

if TYPE_CHECKING:
    from holdfast.outbox.outbox import Outbox

SQL = Statements("holdfast.outbox", "circuit.sql")

# Channel and endpoint; an empty endpoint means the whole channel.
CircuitKey = tuple[str, str]

OPEN = "circuit_open"
REFUSED, UNAVAILABLE = "refused", "unavailable"
# Pauses of an unavailable channel: 5, 20, 80, 320, 1,280 seconds, then half an hour.
FIRST_PAUSE = timedelta(seconds=5)
LONGEST_PAUSE = timedelta(minutes=30)
# The maximum number of probes of one delivery with the same credential. A delivery has ten
# attempts, so two remain for the time after the channel is repaired.
MOST_PROBES = 8
GROWTH = 4
# A circuit that has not been probed for this long is pruned.
KEPT = timedelta(days=30)


class Probing(Protocol):
    """A delivery that is ready to be sent, with its earlier attempts."""

    @property
    def delivery(self) -> Delivery: ...

    @property
    def attempts(self) -> Sequence[Attempt]: ...


P = TypeVar("P", bound=Probing)


@dataclass(frozen=True, slots=True)
class Circuit:
    """An open circuit: endpoint, refused credential, consecutive refusals, end of the pause."""

    channel: str
    endpoint: str
    kind: str
    fingerprint: str
    code: str
    refusals: int
    open_until: datetime
    probe_until: datetime | None = None

    @property
    def key(self) -> CircuitKey:
        return self.channel, self.endpoint

    @property
    def named(self) -> dict[str, str]:
        return {"channel": self.channel, "endpoint": self.endpoint}

    def may_probe(self, fingerprint: str, now: datetime) -> bool:
        """Whether one message may be sent as a probe."""
        if self.probe_until is not None and self.probe_until > now:
            return False
        return self.open_until <= now or self.fingerprint != fingerprint


@dataclass(frozen=True, slots=True)
class Trip:
    """Why a circuit opens, and the pause that the channel requested."""

    kind: str
    code: str
    retry_after: timedelta = timedelta(0)


@dataclass(slots=True)
class Circuits:
    """The open circuits as one pass sees them, and the changes that it made."""

    open: dict[CircuitKey, Circuit] = field(default_factory=dict)
    # Opened or reopened by this pass, and not yet stored.
    _tripped: dict[CircuitKey, tuple[Circuit, timedelta]] = field(default_factory=dict)
    _seen_tripping: set[CircuitKey] = field(default_factory=set)
    _closed: dict[CircuitKey, Circuit] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def blocking(self, one: Delivery) -> Circuit | None:
        """The circuit that blocks a delivery; None if none does."""
        found = self.open.get((one.channel, ""))
        return found or self.open.get((one.channel, one.endpoint))

    def has_tripped(self, one: Delivery) -> Circuit | None:
        """The circuit that this pass opened for a delivery that it was about to send."""
        with self._lock:
            for key in ((one.channel, ""), (one.channel, one.endpoint)):
                if key in self._seen_tripping:
                    return self.open.get(key)
        return None

    def trip(
        self, key: CircuitKey, why: Trip, fingerprint: str, now: datetime, own: OutboxSettings
    ) -> None:
        """Record that a channel refused us or is unavailable, and how long to pause."""
        with self._lock:
            if key in self._seen_tripping:
                return
            before = self.open.get(key)
            refusals = 0
            if before is not None and (before.fingerprint, before.kind) == (fingerprint, why.kind):
                refusals = before.refusals
            pause = pause_after(refusals, why, own)
            made = Circuit(*key, why.kind, fingerprint, why.code, refusals + 1, now + pause)
            self.open[key] = made
            self._tripped[key] = made, pause
            self._seen_tripping.add(key)

    def close(self, key: CircuitKey) -> None:
        """Record that a channel accepts messages again."""
        with self._lock:
            found = self.open.pop(key, None)
            if found is not None:
                self._closed[key] = found

    def take_news(self) -> News:
        """Return the changes that are not yet stored, and clear them."""
        with self._lock:
            news = News(dict(self._tripped), dict(self._closed))
            self._tripped.clear()
            self._closed.clear()
            return news


@dataclass(frozen=True, slots=True)
class News:
    """The changes of a pass to circuits."""

    tripped: Mapping[CircuitKey, tuple[Circuit, timedelta]]
    closed: Mapping[CircuitKey, Circuit]

    def write(self, tx: Tx) -> tuple[list[Circuit], list[tuple[str, str]]]:
        """Store the changes; return the opened circuits and the jobs whose deliveries are due."""
        opened: list[Circuit] = []
        if self.tripped:
            changed = tx.many(
                SQL.open_circuits, refused=[_row(*one) for one in self.tripped.values()]
            )
            opened = [self.tripped[row["channel"], row["endpoint"]][0] for row in changed]
        freed: list[tuple[str, str]] = []
        if self.closed:
            tx.many(SQL.close_circuits, closed=[one.named for one in self.closed.values()])
            freed = release_waiting(tx, self.closed)
        record_actions(tx, [_deed(one, "opened") for one in opened])
        record_actions(tx, [_deed(one, "closed") for one in self.closed.values()])
        return opened, freed

    def __bool__(self) -> bool:
        return bool(self.tripped or self.closed)


def _row(one: Circuit, pause: timedelta) -> dict[str, Any]:
    said = {"fingerprint": one.fingerprint, "code": one.code, "pause_ms": ms(pause)}
    return {**one.named, "kind": one.kind, **said}


def _deed(one: Circuit, change: str) -> Deed:
    detail = {"kind": one.kind, "code": one.code, "refusals": one.refusals}
    detail |= {"is_endpoint": one.endpoint != ""}
    return Deed(SYSTEM, PLATFORM_ORG, f"channel:{one.channel}", f"channel.circuit_{change}", detail)


def tell_opened(outbox: Outbox, opened: Iterable[Circuit]) -> None:
    """Raise an alert: an operator has to correct a credential, a permission or an address."""
    for one in opened:
        # An unavailable or overloaded channel recovers without an operator.
        if one.kind == REFUSED:
            trouble = DeliveryTrouble.CHANNEL_REFUSED
            outbox.app.events.emit(DeliveryAlert(one.channel, trouble, detail=one.code))


def pause_after(refusals: int, why: Trip, own: OutboxSettings) -> timedelta:
    """The pause after this many refusals in a row."""
    first, longest = FIRST_PAUSE, LONGEST_PAUSE
    if why.kind == REFUSED:
        first = timedelta(seconds=own.circuit_seconds)
        longest = timedelta(seconds=own.max_circuit_seconds)
    growth = float(GROWTH ** min(refusals, 16))
    return max(min(first * growth, longest), min(why.retry_after, RETRY_AFTER_CEILING))


def read_circuits(tx: Tx) -> Circuits:
    """Read the open circuits."""
    found = {}
    for row in tx.many(SQL.list_circuits):
        probe = row["probe_until"]
        one = Circuit(
            row["channel"],
            row["endpoint"],
            row["kind"],
            row["fingerprint"],
            row["code"],
            row["refusals"],
            read_instant(row["open_until"]),
            None if probe is None else read_instant(probe),
        )
        found[one.key] = one
    return Circuits(found)


def release_waiting(tx: Tx, keys: Iterable[CircuitKey]) -> list[tuple[str, str]]:
    """Make deliveries that wait for these circuits due; return the waiting jobs (tenant, id)."""
    rows = _places(keys)
    return awaiting(tx.many(SQL.release_waiting, freed=rows)) if rows else []


def count_waiting(tx: Tx, circuits: Sequence[Circuit], *, most: int) -> int:
    """Count the deliveries that wait for these circuits, up to *most*."""
    rows = _places(one.key for one in circuits)
    if not rows:
        return 0
    return int(tx.one(SQL.count_waiting, kept=rows, most=most)["deliveries"])


def _places(keys: Iterable[CircuitKey]) -> list[dict[str, str]]:
    return [{"name": channel, "place": endpoint} for channel, endpoint in keys]


def fingerprint_of(outbox: Outbox, name: str) -> str:
    """A keyed hash of the channel's current credential and settings."""
    channels: Any = outbox.channels
    find: Callable[[str], str] | None = getattr(channels, "fingerprint", None)
    plain = "" if find is None else find(name)
    return hmac.new(outbox.key.encode(), plain.encode(), hashlib.sha256).hexdigest()[:16]


def find_changed(outbox: Outbox, circuits: Circuits) -> list[Circuit]:
    """Open circuits of channels whose credential or settings changed since the refusal."""
    return [
        one
        for one in circuits.open.values()
        if outbox.channels.knows(one.channel)
        and fingerprint_of(outbox, one.channel) != one.fingerprint
    ]


def allow_changed(outbox: Outbox, circuits: Circuits) -> None:
    """Allow probes of the changed channels, and wake the jobs that wait for them."""
    changed = find_changed(outbox, circuits)
    if not changed:
        return

    def work(tx: Tx) -> list[str]:
        tx.many(SQL.allow_probes, allowed=[one.named for one in changed])
        return wake_jobs(tx, release_waiting(tx, [one.key for one in changed]))

    outbox.store.announce(outbox.store.write(work))
    now = outbox.store.clock.now()
    for one in changed:
        circuits.open[one.key] = replace(one, open_until=min(one.open_until, now))


def take_probe(outbox: Outbox, circuit: Circuit, fingerprint: str) -> bool:
    """Reserve the probe; False if another worker has it."""
    lease = ms(outbox.settings.outbox.lease_seconds)
    given = {**circuit.named, "fingerprint": fingerprint, "lease_ms": lease}
    return outbox.store.execute(SQL.take_probe, **given) > 0


def choose_probe(circuit: Circuit, fingerprint: str, waiting: Sequence[P]) -> P | None:
    """Choose the delivery with the fewest attempts; None if all have reached the limit."""
    able = [
        one
        for one in waiting
        if circuit.kind == UNAVAILABLE
        or circuit.fingerprint != fingerprint
        or refused_tries(one.attempts) < MOST_PROBES
    ]
    return min(able, key=lambda one: len(one.attempts), default=None)


def refused_tries(attempts: Sequence[Attempt]) -> int:
    """The number of attempts that the channel itself refused."""
    return sum(one.outcome == "channel_refused" and one.code != OPEN for one in attempts)
