"""Bounded runs: a worker run bounded by job count and run time.

A run claims jobs until it reaches its job limit, nothing is due, or its time is over. Then it
releases jobs that have not started, waits for running ones, and closes its row in the run log. The
next run continues. runs.py has the work of a run. The run's id is the worker id of its claims, so
the audit events of a run have it as their actor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from holdfast.actor import Actor, Role, read_actor
from holdfast.arguments import anything, checked, uuid
from holdfast.clock import Clock
from holdfast.config import RunSettings
from holdfast.engine import audit, run_log
from holdfast.engine.job import current
from holdfast.engine.maintenance import maintain
from holdfast.engine.run_log import (
    NOTHING_PENDING,
    RunCounts,
    RunOutcome,
    RunReport,
    Trigger,
    TriggerKind,
)
from holdfast.engine.runs import Application, TaskRun, check_run, run_body
from holdfast.errors import ConfigError, Forbidden, StoreError
from holdfast.store import Tx


class BoundedRun:
    """One bounded run of an application's jobs.

    *max_jobs* overrides ``max_jobs_per_run`` of its profile.
    """

    def __init__(
        self,
        app: Application,
        name: str,
        *,
        trigger: Trigger,
        concurrency: int = 10,
        async_concurrency: int = 200,
        inline: bool | None = None,
        max_jobs: int | None = None,
    ) -> None:
        self.app = app
        self.name = name
        self.trigger = trigger
        self.profile = app.settings.run_of(name)
        if max_jobs is not None:
            self.profile = replace(self.profile, max_jobs_per_run=max_jobs)
        check_run(app, self.settings)
        self.run_id = app.ids.new()
        self.stop_requested = False
        # A fake clock moves inside the handlers, so everything runs in this thread.
        self.inline = app.clock.is_fake if inline is None else inline
        self._body = run_body(
            app,
            name,
            self.run_id,
            self.profile,
            concurrency=concurrency,
            async_concurrency=async_concurrency,
        )

    @property
    def settings(self) -> RunSettings:
        return self.app.settings.runs[self.name]

    def drain(self) -> None:
        """Claim nothing more, release jobs that have not started, finish the others.

        Safe in a signal handler.
        """
        self.stop_requested = True
        self._body.drain()

    def stop(self) -> None:
        """Do not wait for running jobs: their leases expire. Safe in a signal handler."""
        self.stop_requested = True
        self._body.stop()

    def perform(self, *, is_maintained: bool = False) -> RunReport:
        """Perform the run and return its report. Without pending work the run is skipped.

        With *is_maintained*, the caller has already run the maintenance that precedes a run.
        """
        opened = self.open(is_maintained=is_maintained)
        return self.complete() if opened is None else opened

    def open(self, *, is_maintained: bool = False) -> RunReport | None:
        """Store the run as started, and return None; or the report of a run that has no work."""
        app = self.app
        if not is_maintained:
            maintain(
                app.store,
                app.settings,
                app.events,
                self.settings.queues,
                may_continue=lambda: not self.stop_requested,
                others=[step for chore in app.registry.chores if (step := chore.before_runs)],
            )
        pending = self._body.count_pending()
        if not app.store.write(lambda tx: self._open(tx, pending)):
            assert self.trigger.tick is not None
            return run_log.find_tick(app.store, self.name, self.trigger.tick)
        return self._report() if pending == 0 else None

    def complete(self) -> RunReport:
        """Perform a run that :meth:`open` has stored, and return its report."""
        try:
            self._work()
        except BaseException:
            # If this cannot be written either, maintenance closes the row as lost.
            with suppress(StoreError):
                self._close(RunOutcome.FAILED)
                self._report()
            raise
        self._close(RunOutcome.STOPPED if self.stop_requested else self._body.outcome)
        return self._report()

    def _open(self, tx: Tx, pending: int) -> bool:
        row = run_log.run_row(
            run_id=self.run_id,
            name=self.name,
            profile=self.settings.profile or self.app.settings.profile,
            settings=self._body.settings,
            trigger=self.trigger,
        )
        opened = run_log.open_run(tx, row)
        if opened and self.trigger.kind is TriggerKind.MANUAL:
            audit.record_action(
                tx,
                self.trigger.actor,
                subject=f"run:{self.name}",
                name="run.triggered",
                detail={"run_id": self.run_id, "reason": self.trigger.reason},
            )
        if opened and pending == 0:
            run_log.close_run(
                tx, self.run_id, RunOutcome.SKIPPED, RunCounts(), reason=NOTHING_PENDING
            )
        return opened

    def _work(self) -> None:
        """Do the work, and end it at the deadline even while handlers run."""
        clock, seconds = self.app.clock, self.profile.max_runtime_seconds
        deadline = clock.monotonic() + seconds
        if self.inline:
            self._body.work(deadline=deadline, inline=True)
            return
        with _at(clock, seconds, self._body.end):
            self._body.work(deadline=deadline, inline=False)

    def _close(self, outcome: RunOutcome) -> None:
        counts = self._body.counts
        self.app.store.write(lambda tx: run_log.close_run(tx, self.run_id, outcome, counts))

    def _report(self) -> RunReport:
        report = run_log.find_run(self.app.store, self.run_id)
        self.app.events.emit(report.event)
        return report


@contextmanager
def _at(clock: Clock, seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Call *act* once *seconds* have passed on *clock*, unless the block ended before."""
    if not clock.is_fake:
        timer = threading.Timer(seconds, act)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
        return
    due = clock.monotonic() + seconds

    def look() -> None:
        if clock.monotonic() >= due:
            act()

    hooks: list[Callable[[], None]] = clock.on_advance  # type: ignore[attr-defined]
    hooks.append(look)
    try:
        yield
    finally:
        hooks.remove(look)


def perform_run(app: Application, name: str, *, trigger: Trigger) -> RunReport:
    """Perform the run *name* in this process; a tick is performed at most once."""
    return BoundedRun(app, name, trigger=trigger).perform()


def pending_of(app: Application, name: str) -> int:
    """The number of jobs that the run *name* would find now, up to its job limit."""
    profile, run = app.settings.run_of(name), app.settings.runs[name]
    if name in app.registry.tasks:
        return TaskRun(app, "", name, run, profile).count_pending()
    return run_log.count_pending(app.store, run.queues, run.job_types, profile)


def skipped_row(app: Application, name: str, trigger: Trigger) -> dict[str, Any]:
    """The row of the run log for a run *name* without pending work."""
    profile, run = app.settings.run_of(name), app.settings.runs[name]
    settings = run_log.settings_of(run, profile)
    if name in app.registry.tasks:
        settings = TaskRun(app, "", name, run, profile).settings
    return run_log.run_row(
        run_id=app.ids.new(),
        name=name,
        profile=run.profile or app.settings.profile,
        settings=settings,
        trigger=trigger,
    )


# A call by anyone but an administrator is refused and audited, whatever the role is.
@checked(checks={"run_id": uuid, "trigger.role": anything})
@dataclass(frozen=True, slots=True)
class Runs:
    """The bounded runs of an application: list them, or start one."""

    app: Application
    # Set if the application is bound to one tenant. A run serves all tenants.
    org_id: str | None = None

    def trigger(
        self, name: str, *, actor: Actor | str, role: Role | str | None, reason: str
    ) -> RunReport:
        """Perform a run now, for recovery. Administrators only; audited with the reason."""
        actor = read_actor(actor)
        refused = self._refusal(role)
        if refused is not None:
            self._record_refusal(name, actor, refused)
            raise Forbidden(f"Run {name!r} was not started: {refused}.")
        if not reason.strip():
            raise ConfigError(
                f"Run {name!r} was not started: a reason is required; it is recorded in the audit."
            )
        trigger = Trigger(TriggerKind.MANUAL, actor, reason.strip())
        return perform_run(self.app, name, trigger=trigger)

    def _refusal(self, role: Role | str | None) -> str | None:
        if current.get() is not None:
            return "code that runs inside a job may not start runs"
        if self.org_id is not None:
            return "runs belong to no tenant, and this caller is bound to a tenant"
        if role != Role.ADMIN:
            return "only an administrator may start a run"
        return None

    def _record_refusal(self, name: str, actor: Actor, refused: str) -> None:
        job = current.get()
        detail = {
            "refused": refused,
            "org_id": self.org_id or (job.org_id if job is not None else None),
            "job_id": None if job is None else job.id,
        }
        self.app.store.write(
            lambda tx: audit.record_action(
                tx, actor, subject=f"run:{name[:100]}", name="run.refused", detail=detail
            )
        )

    def list(
        self, *, name: str | None = None, limit: int = 50, before: str = run_log.NEWEST
    ) -> Sequence[RunReport]:
        """Runs, newest first. For the next page, pass the id of the last run as *before*."""
        self._check_unbound()
        return run_log.list_runs(self.app.store, name=name, limit=limit, before=before)

    def get(self, run_id: str) -> RunReport:
        """One run. Raises RunNotFound."""
        self._check_unbound()
        return run_log.find_run(self.app.store, run_id)

    def _check_unbound(self) -> None:
        if self.org_id is not None:
            raise Forbidden(
                "Runs belong to no tenant; a caller that is bound to a tenant cannot list them."
            )
