"""The findings of the doctor, and their thresholds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from holdfast.clock import read_instant
from holdfast.config import Settings
from holdfast.extension import Extension
from holdfast.store import Row, Statement, Statements, Store

SQL = Statements("holdfast.operate.doctor", "doctor.sql")


RUN = "Start a dispatcher (holdfast worker --dispatch), or run it once: holdfast run {name}"


class Severity(StrEnum):
    """The severity of a finding. Only a problem should page an operator."""

    OK = "ok"
    NOTICE = "notice"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check: what was *seen*, and the remedy."""

    check: str
    severity: Severity
    seen: str
    remedy: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """The thresholds of findings."""

    # With a snapshot held open, the claim rate drops by four fifths within a minute.
    transaction: timedelta = timedelta(seconds=60)
    transaction_problem: timedelta = timedelta(minutes=15)
    # Transactions of Holdfast do not pause between statements; only a handler may.
    idle: timedelta = timedelta(seconds=10)
    slot_transactions: int = 1_000_000
    dead_rows: int = 10_000
    dead_share: float = 0.5
    # The server freezes rows from 200 million on, and stops at two billion.
    frozen: int = 500_000_000
    frozen_problem: int = 1_500_000_000
    connections: float = 0.8
    notifications: float = 0.1
    notifications_problem: float = 0.5
    statement_ms: int = 30_000
    free_bytes: int = 256 * 1024 * 1024
    wal_bytes: int = 64 * 1024 * 1024
    clock: timedelta = timedelta(seconds=5)
    waiting: timedelta = timedelta(minutes=5)
    lease: timedelta = timedelta(seconds=60)
    # An outcome is recorded within milliseconds; after an outage within seconds.
    unrecorded: timedelta = timedelta(seconds=60)
    sealing: timedelta = timedelta(minutes=10)
    letter: timedelta = timedelta(days=7)
    pause: timedelta = timedelta(days=1)
    schedule: timedelta = timedelta(minutes=5)
    # A collector runs every half hour; one skipped run is not a finding yet.
    batch: timedelta = timedelta(hours=1)
    batch_wait: timedelta = timedelta(hours=1)
    # The reconciler runs every five minutes.
    delivery: timedelta = timedelta(minutes=30)
    batch_files: timedelta = timedelta(days=1)
    unpriced: timedelta = timedelta(days=7)
    # The limit of counts, and the number of events that run times are taken from.
    count: int = 1_000
    events: int = 5_000


@dataclass(frozen=True, slots=True)
class CheckContext:
    """What the checks of one run of doctor share: the store, its settings and the limits."""

    store: Store
    settings: Settings
    limits: Limits
    extensions: tuple[Extension, ...] = ()

    def many(self, statement: Statement, **params: Any) -> list[Row]:
        """Run a query in its own snapshot, so that a failed query does not affect the others."""
        return self.store.read(lambda tx: tx.many(statement, **params))


DoctorCheck = Callable[[CheckContext], Iterator[Finding]]


def last_of(name: str, ran: Mapping[str, Any]) -> str:
    """Return when a run last began, for display."""
    began = ran.get(name)
    return f"{name} " + (
        "never ran" if began is None else f"last ran at {read_instant(began):%F %T} UTC"
    )


def length(seconds: float) -> str:
    """Return a duration for display."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"
