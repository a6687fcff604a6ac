"""Finish requests whose job has ended, and reveal rewrites to their senders.

A job that ends moves its request in its own transaction. Only this module decides what follows: the
time of the reveal, the reveal itself, and their events. Passes are idempotent and may run
concurrently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

from holdfast.clock import read_instant, write_instant
from holdfast.config import Settings
from holdfast.engine.audit import Deed, record_actions
from holdfast.engine.periodic_task import RunBudget
from holdfast.event import Events
from holdfast.store import Row, Statements, Store, Tx
from holdfast_rewrite.enums import Step
from holdfast_rewrite.erase import deed_of, ids_of
from holdfast_rewrite.event import RewriteMoved
from holdfast_rewrite.judging import (
    ORCHESTRATOR,
    count_drafts,
    expire_held_once,
    tell_judged_once,
)
from holdfast_rewrite.text_retention import count_overdue, forget_once

SQL = Statements("holdfast_rewrite", "finish.sql")

# Requests per transaction, each with a fixed number of statements.
BITE = 500


def finish_once(store: Store, *, reveal_delay: timedelta, limit: int = BITE) -> list[RewriteMoved]:
    """Finish up to *limit* ended requests; return the outcome of each."""

    def work(tx: Tx) -> list[Row]:
        rows = tx.many(SQL.list_ended, limit=limit)
        if not rows:
            return []
        ended = [_end(row, reveal_delay) for row in rows]
        rows = _among(rows, tx.many(SQL.finish_requests, ended=ended))
        record_actions(tx, [_deed(row, Step(row["step"])) for row in rows])
        return rows

    return [_moved(row, Step(row["step"])) for row in store.write(work)]


def reveal_once(store: Store, *, limit: int = BITE) -> list[RewriteMoved]:
    """Reveal up to *limit* due rewrites to their senders."""

    def work(tx: Tx) -> list[Row]:
        rows = tx.many(SQL.list_due, limit=limit)
        if not rows:
            return []
        rows = _among(rows, tx.many(SQL.reveal_requests, due=ids_of(rows)))
        record_actions(tx, [_deed(row, Step.REVEALED) for row in rows])
        return rows

    return [_moved(row, Step.REVEALED) for row in store.write(work)]


def count_to_finish(store: Store, *, most: int) -> int:
    """Count the requests to finish or reveal, up to twice *most*."""
    return int(store.read(lambda tx: tx.one(SQL.count_to_finish, most=most))["requests"])


# Instants are stored in milliseconds, and no rewrite may be revealed early.
_UP = timedelta(microseconds=999)


def _end(row: Row, reveal_delay: timedelta) -> dict[str, str | None]:
    completed = row["rewrite_completed_at"]
    reveal = None if completed is None else read_instant(completed) + reveal_delay + _UP
    return {
        "org_id": row["org_id"],
        "id": row["rewrite_request_id"],
        "sender_reveal_at": None if reveal is None else write_instant(reveal),
    }


def _among(rows: Sequence[Row], told: Sequence[Row]) -> list[Row]:
    """Return the *rows* that this pass moved; a concurrent pass may have moved others."""
    moved = {row["rewrite_request_id"] for row in told}
    return [row for row in rows if row["rewrite_request_id"] in moved]


def _deed(row: Row, step: Step) -> Deed:
    detail: dict[str, Any] = {"job_id": row["job_id"]}
    if step is Step.FAILED:
        detail["failure_code"] = row["failure_code"]
    return deed_of(row, ORCHESTRATOR, step.event, detail)


def _moved(row: Row, step: Step) -> RewriteMoved:
    return RewriteMoved(
        rewrite_request_id=row["rewrite_request_id"],
        org_id=row["org_id"],
        step=step,
        surface=row["surface"],
        strength=row["rewrite_strength"],
        lane=row["lane"],
        code=row["failure_code"] if step is Step.FAILED else None,
    )


# -- the run


class Orchestrating(Protocol):
    """The application's parts that the run needs."""

    settings: Settings
    events: Events

    @property
    def store(self) -> Store: ...


def _nothing(_limit: int) -> int:
    return 0


class OrchestratorTask:
    """The run ``rewrite_orchestrator``: resumes, judges, finishes, reveals, deletes expired texts.

    *resume* continues up to the given number of abandoned requests and returns how many;
    *count_unfinished* counts them. *judge* enqueues the judges' jobs of drafts.
    """

    eligible_statuses: Sequence[str] = ("completed", "failed", "canceled")

    def __init__(
        self,
        app: Orchestrating,
        *,
        resume: Callable[[int], int],
        count_unfinished: Callable[[int], int],
        judge: Callable[[int], int] = _nothing,
    ) -> None:
        self.app = app
        self.resume = resume
        self.judge = judge
        self.count_unfinished = count_unfinished

    def count_pending(self, budget: RunBudget) -> int:
        store, most = self.app.store, budget.profile.max_jobs_per_run
        return (
            self.count_unfinished(most)
            + count_to_finish(store, most=most)
            + count_overdue(store, self.app.settings.rewrite, most=most)
            + count_drafts(store, self.app.settings.rewrite, most=most)
        )

    def perform(self, budget: RunBudget) -> None:
        store, settings = self.app.store, self.app.settings.rewrite
        delay = timedelta(seconds=settings.reveal_delay_seconds)
        # One chunk of each in turn, the step that may wait for a model last, so that none starves.
        steps: list[Callable[[int], int]] = [
            # The audit has the verdict before the end that follows from it.
            self._tell_judged,
            lambda limit: self._tell(finish_once(store, reveal_delay=delay, limit=limit)),
            lambda limit: self._tell(reveal_once(store, limit=limit)),
            self.judge,
            lambda limit: expire_held_once(store, settings, limit=limit),
            lambda limit: forget_once(store, settings, limit=limit),
            self.resume,
        ]
        while steps:
            steps = [step for step in steps if _bite(step, budget)]

    def _tell(self, moved: Sequence[RewriteMoved]) -> int:
        for event in moved:
            self.app.events.emit(event)
        return len(moved)

    def _tell_judged(self, limit: int) -> int:
        told, events = tell_judged_once(self.app.store, limit=limit)
        for event in events:
            self.app.events.emit(event)
        return told


def _bite(step: Callable[[int], int], budget: RunBudget) -> bool:
    """Execute one chunk of a step; return whether more may remain."""
    if not budget.may_continue or budget.left <= 0:
        return False
    taken = step(min(BITE, budget.left))
    budget.counts.claimed += taken
    budget.counts.outcomes["completed"] += taken
    return taken > 0
