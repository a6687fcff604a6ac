"""A bounded run: so many jobs, for so long, then it ends. What it leaves waits for the next one.

A run takes jobs until it has as many as it may, until nothing is due, or until its time is over;
then it gives back what it did not reach, lets what runs finish, and closes its row in the ledger.
What it does with them is its labour (labour.py). Its id is the worker's id of its claims, so the
audit of a run is what that actor did.
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
from holdfast.engine import audit, ledger
from holdfast.engine.job import current
from holdfast.engine.labour import Application, ErrandLabour, check_run, labour_of
from holdfast.engine.ledger import (
    NOTHING_PENDING,
    RunCounts,
    RunOutcome,
    RunReport,
    Trigger,
    TriggerKind,
)
from holdfast.engine.upkeep import maintain
from holdfast.errors import ConfigError, Forbidden, StoreError
from holdfast.store import Tx


class BoundedRun:
    """One run of an application's jobs.

    *max_jobs* takes the place of ``max_jobs_per_run`` of its profile.
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
        self.was_stopped = False
        # A fake clock moves inside the handlers; then everything happens in this thread.
        self.inline = app.clock.is_fake if inline is None else inline
        self._labour = labour_of(
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
        """Take nothing more, give back what has not begun, finish what has. Safe in a signal."""
        self.was_stopped = True
        self._labour.drain()

    def stop(self) -> None:
        """Do not even wait for what runs: its lease will run out. Safe in a signal."""
        self.was_stopped = True
        self._labour.stop()

    def perform(self, *, is_maintained: bool = False) -> RunReport:
        """Run, and say how it went. Nothing pending is a run that is skipped, not an error.

        *is_maintained* says that the caller has done the maintenance that comes before a run.
        """
        app = self.app
        if not is_maintained:
            maintain(
                app.store,
                app.settings,
                app.events,
                self.settings.queues,
                goes_on=lambda: not self.was_stopped,
                others=[chore.work for chore in app.registry.chores if chore.is_before_runs],
            )
        pending = self._labour.count_pending()
        if not app.store.write(lambda tx: self._open(tx, pending)):
            assert self.trigger.tick is not None
            return ledger.find_tick(app.store, self.name, self.trigger.tick)
        if pending == 0:
            return self._tell()
        try:
            self._work()
        except BaseException:
            # Where even this cannot be written, the row stays open and is closed as lost.
            with suppress(StoreError):
                self._close(RunOutcome.FAILED)
                self._tell()
            raise
        self._close(RunOutcome.STOPPED if self.was_stopped else self._labour.outcome)
        return self._tell()

    def _open(self, tx: Tx, pending: int) -> bool:
        row = ledger.run_row(
            run_id=self.run_id,
            name=self.name,
            profile=self.settings.profile or self.app.settings.profile,
            settings=self._labour.settings,
            trigger=self.trigger,
        )
        opened = ledger.open_run(tx, row)
        if opened and self.trigger.kind is TriggerKind.MANUAL:
            audit.record_action(
                tx,
                self.trigger.actor,
                subject=f"run:{self.name}",
                name="run.triggered",
                detail={"run_id": self.run_id, "reason": self.trigger.reason},
            )
        if opened and pending == 0:
            ledger.close_run(
                tx, self.run_id, RunOutcome.SKIPPED, RunCounts(), reason=NOTHING_PENDING
            )
        return opened

    def _work(self) -> None:
        """Work, and see to it that the deadline is heard of while handlers run."""
        clock, seconds = self.app.clock, self.profile.max_runtime_seconds
        deadline = clock.monotonic() + seconds
        if self.inline:
            self._labour.work(deadline=deadline, inline=True)
            return
        with _at(clock, seconds, self._labour.end):
            self._labour.work(deadline=deadline, inline=False)

    def _close(self, outcome: RunOutcome) -> None:
        counts = self._labour.counts
        self.app.store.write(lambda tx: ledger.close_run(tx, self.run_id, outcome, counts))

    def _tell(self) -> RunReport:
        report = ledger.find_run(self.app.store, self.run_id)
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
    """Perform the run *name* here and now; the same tick is performed once."""
    return BoundedRun(app, name, trigger=trigger).perform()


def pending_of(app: Application, name: str) -> int:
    """How many jobs the run *name* would find now, counted no further than it may take."""
    profile, run = app.settings.run_of(name), app.settings.runs[name]
    if name in app.registry.errands:
        return ErrandLabour(app, "", name, run, profile).count_pending()
    return ledger.count_pending(app.store, run.queues, run.job_types, profile)


def skipped_row(app: Application, name: str, trigger: Trigger) -> dict[str, Any]:
    """The run *name* as the ledger keeps it where it had nothing to do."""
    profile, run = app.settings.run_of(name), app.settings.runs[name]
    settings = ledger.settings_of(run, profile)
    if name in app.registry.errands:
        settings = ErrandLabour(app, "", name, run, profile).settings
    return ledger.run_row(
        run_id=app.ids.new(),
        name=name,
        profile=run.profile or app.settings.profile,
        settings=settings,
        trigger=trigger,
    )


# Whoever is no admin is refused on record, whatever the role is called.
@checked(checks={"run_id": uuid, "trigger.role": anything})
@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of an application, for those who may look at them or set one off."""

    app: Application
    # Set where the application is bound to one tenant: a run serves all of them.
    org_id: str | None = None

    def trigger(
        self, name: str, *, actor: Actor | str, role: Role | str | None, reason: str
    ) -> RunReport:
        """Perform a run now, for recovery. For administrators only; audited with the reason."""
        actor = read_actor(actor)
        refused = self._refusal(role)
        if refused is not None:
            self._record_refusal(name, actor, refused)
            raise Forbidden(f"Run {name!r} was not started: {refused}.")
        if not reason.strip():
            raise ConfigError(f"Run {name!r} was not started: say why, the audit keeps it.")
        trigger = Trigger(TriggerKind.MANUAL, actor, reason.strip())
        return perform_run(self.app, name, trigger=trigger)

    def _refusal(self, role: Role | str | None) -> str | None:
        if current.get() is not None:
            return "code that runs inside a job may not start runs"
        if self.org_id is not None:
            return "a run serves every tenant, and this caller is bound to one"
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
        self, *, name: str | None = None, limit: int = 50, before: str = ledger.NEWEST
    ) -> Sequence[RunReport]:
        """Runs, newest first; *before* a run's id is the next page."""
        self._check_unbound()
        return ledger.list_runs(self.app.store, name=name, limit=limit, before=before)

    def get(self, run_id: str) -> RunReport:
        """One run. Raises RunNotFound."""
        self._check_unbound()
        return ledger.find_run(self.app.store, run_id)

    def _check_unbound(self) -> None:
        if self.org_id is not None:
            raise Forbidden("Runs serve every tenant; a caller that is bound to one sees none.")
