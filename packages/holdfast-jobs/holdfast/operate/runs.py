"""Bounded runs: start one, and read the log of those that were performed.

A run serves every tenant, so a context of one tenant is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.actor import Actor, ActorType
from holdfast.arguments import anything, checked, flag, instance, name, whole
from holdfast.engine import run_log
from holdfast.engine.bounded_run import BoundedRun
from holdfast.engine.execute import current
from holdfast.engine.run_log import RunOutcome, RunReport, Trigger, TriggerKind
from holdfast.errors import Forbidden
from holdfast.operate.admit import admit
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.page import NEWEST, Page, check_limit, page_of, read_filter, read_id
from holdfast.operate.refusal import InvalidAction
from holdfast.operate.short_ids import RUNS

__all__ = ["BoundedRun", "OperatorRuns", "RunFilter", "RunOutcome", "RunReport"]

TIMER = Actor(ActorType.SYSTEM, "cron")


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs to list; a field that is None matches every run."""

    name: str | None = None

    def check(self) -> RunFilter:
        """Return the validated filter; raises InvalidAction."""
        return read_filter(self, {"name": name})


@checked(
    InvalidAction,
    checks={
        "async_concurrency": whole(1),
        "by_timer": flag,
        "concurrency": whole(1),
        "max_jobs": whole(1),
        "run_id": anything,
        "wanted": instance(RunFilter),
        # Checked by the method, so that a refusal is audited.
        "reason": anything,
    },
)
class OperatorRuns:
    """The bounded runs of an application."""

    id_space = RUNS

    def __init__(self, context: OperatorContext) -> None:
        self.context = context

    def list(
        self, wanted: RunFilter | None = None, *, limit: int = 50, before: str = NEWEST
    ) -> Page[RunReport]:
        """Runs, newest first."""
        self.context.check(Action.LOOK, org_id=None, subject="runs")
        wanted = (wanted or RunFilter()).check()
        found = run_log.list_runs(
            self.context.store, name=wanted.name, limit=check_limit(limit) + 1, before=before
        )
        return page_of(found, limit, lambda run: run.run_id)

    def get(self, run_id: str) -> RunReport:
        """One run. Raises RunNotFound."""
        self.context.check(Action.LOOK, org_id=None, subject=f"run:{str(run_id)[:100]}")
        return run_log.find_run(self.context.store, read_id("run_id", run_id))

    def start(self, name: str, *, reason: str, max_jobs: int | None = None) -> RunReport:
        """Perform a run now, in this process, and return its report."""
        return self.prepare(name, reason=reason, max_jobs=max_jobs).perform()

    def prepare(
        self,
        name: str,
        *,
        reason: str = "",
        by_timer: bool = False,
        max_jobs: int | None = None,
        concurrency: int = 10,
        async_concurrency: int = 200,
    ) -> BoundedRun:
        """Prepare a run, for callers that drain it on a signal. Nothing is written yet.

        *by_timer* marks a run without a person: it is not audited and needs no reason. *max_jobs*
        replaces ``max_jobs_per_run`` of its profile.
        """
        action, subject = Action.START_RUN, f"run:{name}"
        self.context.check(action, org_id=None, subject=subject)
        if current.get() is not None:
            error = Forbidden(f"Run {name!r} was not started: a job may not start runs.")
            self.context.refuse(action, error, org_id=None, subject=subject)
        if by_timer:
            trigger = Trigger(TriggerKind.CRON, TIMER)
        else:
            reason = admit(self.context, action, reason, org_id=None, subject=subject)
            trigger = Trigger(TriggerKind.MANUAL, self.context.actor, reason)
        return BoundedRun(
            self.context.app,
            name,
            trigger=trigger,
            concurrency=concurrency,
            async_concurrency=async_concurrency,
            max_jobs=max_jobs,
        )
