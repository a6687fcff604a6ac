"""The run log: one row per bounded run, written when it starts and updated when it ends.

A run whose process dies leaves its row open. Its claims expire with their leases. Maintenance
closes the row as lost once the longest possible run time is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from holdfast.actor import SYSTEM, Actor, ActorType
from holdfast.clock import ms, read_instant, write_instant
from holdfast.config import RunProfile, RunSettings
from holdfast.document import decode, encode
from holdfast.errors import RateLimited, RunNotFound, UpstreamDown
from holdfast.event import WorkerRunFinished
from holdfast.store import Row, Statements, Store, Tx

SQL = Statements("holdfast.engine", "run.sql")

NOTHING_PENDING = "no pending items"
# How long a run may take beyond its run time and the patience for its last jobs.
SLACK = timedelta(minutes=1)


class TriggerKind(StrEnum):
    """What started a run: the dispatcher, an operator, or a cron job of the machine."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    CRON = "cron"


@dataclass(frozen=True, slots=True)
class Trigger:
    """Why a run starts. A *tick* is performed at most once."""

    kind: TriggerKind
    actor: Actor = SYSTEM
    reason: str = ""
    tick: datetime | None = None


class RunOutcome(StrEnum):
    """How a run ended. The first four are not failures; the next run continues the work."""

    DONE = "done"
    FULL = "full"
    OUT_OF_TIME = "out_of_time"
    STOPPED = "stopped"
    FAILED = "failed"
    SKIPPED = "skipped"
    LOST = "lost"


@dataclass(slots=True)
class RunCounts:
    """Counts of the claims of a run by outcome."""

    claimed: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)

    @property
    def columns(self) -> dict[str, Any]:
        """The counts as the run log stores them."""
        succeeded, failed = self.outcomes["completed"], self.outcomes["dead"]
        requeued = sum(self.outcomes[verb] for verb in ("retry", "snoozed", "released"))
        canceled = self.outcomes["canceled"]
        return {
            "claimed": self.claimed,
            "succeeded": succeeded,
            "failed": failed,
            "requeued": requeued,
            "released": self.outcomes["released"],
            "canceled": canceled,
            # The lease was lost, the job was still running when the patience for it was over, or it
            # waits for a provider batch.
            "remaining": self.claimed - succeeded - failed - requeued - canceled,
            "submitted": self.outcomes["submitted"],
            "rate_limit_errors": self.errors[RateLimited.error_class],
            "capacity_errors": self.errors[UpstreamDown.error_class],
            "error_counts": encode(dict(sorted(self.errors.items()))),
            "model_counts": encode(dict(sorted(self.models.items()))),
        }


@dataclass(frozen=True, slots=True)
class RunReport:
    """The record of a bounded run. The counts of an open or lost run are unknown."""

    run_id: str
    name: str
    profile: str
    trigger_kind: TriggerKind
    actor: Actor
    tick: datetime | None
    settings: Mapping[str, Any]
    max_jobs_per_run: int
    started_at: datetime
    finished_at: datetime | None
    outcome: RunOutcome | None
    reason: str | None
    claimed_count: int | None
    succeeded_count: int | None
    failed_count: int | None
    requeued_count: int | None
    released_count: int | None
    canceled_count: int | None
    left_count: int | None
    submitted_count: int | None
    rate_limit_errors: int | None
    capacity_errors: int | None
    error_counts: Mapping[str, int]
    model_counts: Mapping[str, int]

    @classmethod
    def from_row(cls, row: Row) -> RunReport:
        """The report of a stored run."""
        finished_at, tick, outcome = row["finished_at"], row["tick"], row["outcome"]
        read: dict[str, Any] = {
            "trigger_kind": TriggerKind(row["trigger_kind"]),
            "actor": Actor(ActorType(row["actor_type"]), row["actor_id"]),
            "tick": None if tick is None else read_instant(tick),
            "settings": decode(row["settings"]),
            "started_at": read_instant(row["started_at"]),
            "finished_at": None if finished_at is None else read_instant(finished_at),
            "outcome": None if outcome is None else RunOutcome(outcome),
            "error_counts": decode(row["error_counts"] or "{}"),
            "model_counts": decode(row["model_counts"] or "{}"),
        }
        plain = {item.name: row[item.name] for item in fields(cls) if item.name not in read}
        return cls(**plain, **read)

    @property
    def event(self) -> WorkerRunFinished:
        """The event for logs and metrics."""
        names = [item.name for item in fields(WorkerRunFinished)]
        return WorkerRunFinished(**{name: getattr(self, name) for name in names})


def run_row(
    *, run_id: str, name: str, profile: str, settings: Mapping[str, Any], trigger: Trigger
) -> dict[str, Any]:
    """The row of a run that starts."""
    longest = timedelta(seconds=settings["max_runtime_seconds"] + settings["claim_timeout_seconds"])
    return {
        "run_id": run_id,
        "name": name,
        "profile": profile,
        "trigger_kind": trigger.kind,
        "actor_type": trigger.actor.type,
        "actor_id": trigger.actor.id,
        "tick": None if trigger.tick is None else write_instant(trigger.tick),
        "settings": encode(settings),
        "max_jobs_per_run": settings["max_jobs_per_run"],
        "lost_ms": ms(longest + SLACK),
        "reason": trigger.reason or None,
    }


def open_run(tx: Tx, row: Mapping[str, Any]) -> bool:
    """Insert the row of a run; False if its tick was performed already."""
    return bool(tx.many(SQL.open_run, runs=[row]))


def skip_runs(tx: Tx, rows: Sequence[Mapping[str, Any]]) -> list[RunReport]:
    """Insert skipped runs; ticks that were performed already are left out."""
    ended = [{**row, "reason": NOTHING_PENDING, "counts": "{}"} for row in rows]
    return [RunReport.from_row(row) for row in tx.many(SQL.skip_runs, runs=ended)] if ended else []


def close_run(
    tx: Tx, run_id: str, outcome: RunOutcome, counts: RunCounts, reason: str | None = None
) -> bool:
    """Record how a run ended; False if it was closed as lost before."""
    row = {"run_id": run_id, "outcome": outcome, "reason": reason, **counts.columns}
    return bool(tx.many(SQL.close_run, ends=[row]))


PRUNE_LIMIT = 1_000


def clean_run_log(store: Store, *, retention: timedelta) -> tuple[list[RunReport], int]:
    """Close runs whose process died and delete runs that ended before the *retention*.

    Returns the lost runs and the number of deleted ones. Bounded and safe to run concurrently.
    """
    keep_ms = ms(retention)

    def work(tx: Tx) -> tuple[list[RunReport], int]:
        lost = [RunReport.from_row(row) for row in tx.many(SQL.close_lost)]
        return lost, tx.affected(SQL.prune_runs, keep_ms=keep_ms, limit=PRUNE_LIMIT)

    return store.write(work)


NEWEST = "ffffffff-ffff-ffff-ffff-ffffffffffff"


def list_runs(
    store: Store, *, name: str | None = None, limit: int = 50, before: str = NEWEST
) -> list[RunReport]:
    """Runs, newest first. For the next page, pass the id of the last run as *before*."""
    rows = store.many(SQL.list_runs, name=name, limit=limit, before=before)
    return [RunReport.from_row(row) for row in rows]


def find_run(store: Store, run_id: str) -> RunReport:
    """One run. Raises RunNotFound."""
    row = store.maybe(SQL.find_run, run_id=run_id)
    if row is None:
        raise RunNotFound(run_id)
    return RunReport.from_row(row)


def find_tick(store: Store, name: str, tick: datetime) -> RunReport:
    """The run that a tick started."""
    row = store.one(SQL.find_tick, name=name, tick=write_instant(tick))
    return RunReport.from_row(row)


def settings_of(run: RunSettings, profile: RunProfile) -> dict[str, Any]:
    """The effective settings of a run, as the run log stores them."""
    return {
        "queues": list(run.queues),
        "job_types": list(run.job_types),
        "max_jobs_per_run": profile.max_jobs_per_run,
        "max_runtime_seconds": profile.max_runtime_seconds,
        "claim_timeout_seconds": profile.claim_timeout_seconds,
        "order": profile.order,
        "eligible_statuses": list(profile.eligible_statuses),
        "respect_not_before_at": profile.respect_not_before_at,
        "retry_backoff_seconds": list(profile.retry_backoff_seconds),
    }


def count_pending(
    store: Store,
    queues: Sequence[str],
    job_types: Sequence[str],
    profile: RunProfile,
    *,
    of_batch: bool = False,
) -> int:
    """The number of jobs that a run would find now, counted up to its job limit."""

    row = store.one(
        SQL.count_pending,
        queues=[{"name": queue} for queue in queues],
        job_types=f" {' '.join(job_types)} " if job_types else None,
        of_batch=int(of_batch),
        early=int(not profile.respect_not_before_at),
        most=profile.max_jobs_per_run,
    )
    return min(int(row["jobs"]), profile.max_jobs_per_run)
