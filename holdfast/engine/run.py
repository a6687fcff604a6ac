"""A bounded run: so many jobs, for so long, then it ends. What it leaves waits for the next one.

A run is a worker whose intake counts down. It takes jobs until it has as many as it may, until
nothing is due, or until its time is over; then it gives back what it did not reach, lets what runs
finish, and closes its row in the ledger. Its id is the worker's id of its claims, so the audit of a
run is what that actor did.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from holdfast.actor import Actor, Role
from holdfast.clock import Clock, ms
from holdfast.config import RunProfile, RunSettings, Settings
from holdfast.document import decode
from holdfast.engine import audit, ledger
from holdfast.engine.claim import Order, claim_jobs
from holdfast.engine.execute import current
from holdfast.engine.handler import Registry
from holdfast.engine.intake import FairIntake
from holdfast.engine.job import Claimed, Released
from holdfast.engine.ledger import (
    NOTHING_PENDING,
    RunCounts,
    RunOutcome,
    RunReport,
    Trigger,
    TriggerKind,
)
from holdfast.engine.settle import Settled
from holdfast.engine.worker import Worker, run_upkeep
from holdfast.errors import ConfigError, Forbidden, StoreError, UnknownQueue, WorkerCrashed
from holdfast.event import Event, Events, JobSettled, LeaseWasLost
from holdfast.ids import IdSource
from holdfast.store import Store, Tx


class Application(Protocol):
    """What a run needs of the application whose jobs it performs."""

    settings: Settings
    clock: Clock
    ids: IdSource
    registry: Registry
    events: Events

    @property
    def store(self) -> Store: ...

    @property
    def known_queues(self) -> list[str]: ...

    def worker(self, **options: Any) -> Worker: ...


@dataclass(slots=True)
class BoundedIntake:
    """Claims for one run: never more than *left* in all, and none after the deadline."""

    store: Store
    run_id: str
    queues: Sequence[str]
    job_types: Sequence[str]
    profile: RunProfile
    counts: RunCounts
    deadline: float
    is_late: bool = False
    was_asked: bool = False
    _seen: set[str] = field(default_factory=set)
    _open: set[str] = field(default_factory=set)
    _ended: int = 0
    _ran_dry: bool = False
    _fair: FairIntake | None = None
    _buried: list[Settled] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.profile.order == Order.FAIR:
            self._fair = FairIntake(
                self.store, queues=self.queues, worker_id=self.run_id, lease_ms=self._lease_ms
            )

    @property
    def _lease_ms(self) -> int:
        return ms(self.profile.claim_timeout_seconds)

    @property
    def left(self) -> int:
        return self.profile.max_jobs_per_run - self.counts.claimed

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come and nothing of ours is still under way."""
        return (self.is_late or self.left <= 0 or self._ran_dry) and not self._open

    def hear(self) -> None:
        if self._fair is not None:
            self._fair.hear()

    def take(self, wanted: int) -> list[Claimed]:
        """Claim up to *wanted* jobs, queue after queue.

        A pass that finds nothing is not repeated until one of our own jobs has ended: only that can
        make room under a cap.
        """
        self.was_asked = True
        wanted = min(wanted, self.left)
        self.is_late = self.is_late or self.store.clock.monotonic() >= self.deadline
        if self.is_late or self._ran_dry or wanted <= 0:
            return []
        ended = self._ended
        found = self._take_oldest(wanted) if self._fair is None else self._fair.take(wanted)
        self._ran_dry = not found and self._ended == ended
        self.counts.claimed += len(found)
        self._seen |= {job.id for job in found}
        self._open |= {job.id for job in found}
        self.counts.models.update(filter(None, map(_model_of, found)))
        return found

    def take_buried(self) -> list[Settled]:
        if self._fair is not None:
            return self._fair.take_buried()
        found, self._buried = self._buried, []
        return found

    def _take_oldest(self, wanted: int) -> list[Claimed]:
        found: list[Claimed] = []
        for queue in self.queues:
            try:
                found += claim_jobs(
                    self.store,
                    queue=queue,
                    worker_id=self.run_id,
                    limit=wanted - len(found),
                    lease_ms=self._lease_ms,
                    order=Order.CREATED_AT_ASC,
                    respect_not_before_at=self.profile.respect_not_before_at,
                    job_types=self.job_types,
                    without=self._seen,
                    buried=self._buried,
                )
            except StoreError:
                # What the queues before gave us is ours and must be run.
                if not found:
                    raise
                break
            if len(found) >= wanted:
                break
        return found

    def on_event(self, event: Event) -> None:
        """A subscriber: what became of our own claims."""
        match event:
            case JobSettled(about) if about.job_id in self._open and event.outcome != "advanced":
                # A stale claim is charged by whoever rescues it; this run did not do that.
                if event.error_class == WorkerCrashed.error_class:
                    return
                if event.error_class is not None:
                    self.counts.errors[event.error_class] += 1
                self._let_go(about.job_id)
            case LeaseWasLost(about):
                self._let_go(about.job_id)
            case _:
                pass

    def _let_go(self, job_id: str) -> None:
        self._open.discard(job_id)
        self._ended += 1
        self._ran_dry = False


def _model_of(job: Claimed) -> str | None:
    if job.routing_decision is None:
        return None
    decision = decode(job.routing_decision)
    if "provider" not in decision:
        return None
    return f"{decision['provider']}/{decision.get('model', '')}"


class BoundedRun:
    """One run of an application's jobs."""

    def __init__(
        self,
        app: Application,
        name: str,
        *,
        trigger: Trigger,
        concurrency: int = 10,
        async_concurrency: int = 200,
        inline: bool | None = None,
    ) -> None:
        self.app = app
        self.name = name
        self.trigger = trigger
        self.profile = app.settings.run_of(name)
        self._check()
        self.run_id = app.ids.new()
        self.was_stopped = False
        # A fake clock moves inside the handlers; then everything happens in this thread.
        self.inline = app.clock.is_fake if inline is None else inline
        self._counts = RunCounts()
        self._intake = BoundedIntake(
            app.store,
            self.run_id,
            self.settings.queues,
            self.settings.job_types,
            self.profile,
            self._counts,
            deadline=float("inf"),
        )
        self._worker = app.worker(
            registry=app.registry.with_backoff(self.profile.retry_backoff_seconds),
            settings=replace(app.settings, lease_seconds=float(self.profile.claim_timeout_seconds)),
            events=Events([self._intake.on_event, *app.events.subscribers]),
            queues=self.settings.queues,
            concurrency=concurrency,
            async_concurrency=async_concurrency,
            worker_id=self.run_id,
            drain_seconds=float(self.profile.claim_timeout_seconds),
            intake=self._intake,
        )

    def _check(self) -> None:
        """A queue or job type that nobody knows would make every run find nothing, for ever."""
        known = self.app.known_queues
        for queue in self.settings.queues:
            if queue not in known:
                raise UnknownQueue(queue, known)
        for job_type in self.settings.job_types:
            self.app.registry.get(job_type)

    @property
    def settings(self) -> RunSettings:
        return self.app.settings.runs[self.name]

    def drain(self) -> None:
        """Take nothing more, give back what has not begun, finish what has. Safe in a signal."""
        self.was_stopped = True
        self._worker.drain()

    def stop(self) -> None:
        """Do not even wait for what runs: its lease will run out. Safe in a signal."""
        self.was_stopped = True
        self._worker.stop()

    def perform(self) -> RunReport:
        """Run, and say how it went. Nothing pending is a run that is skipped, not an error."""
        app = self.app
        # Where only runs are scheduled and no worker lives, stale claims come back by this.
        run_upkeep(app.store, app.settings, app.events)
        pending = pending_of(app, self.name)
        if not app.store.write(lambda tx: self._open(tx, pending)):
            assert self.trigger.tick is not None
            return ledger.find_tick(app.store, self.name, self.trigger.tick)
        if pending == 0:
            return self._tell()
        try:
            with self._until_late():
                outcomes = self._work_inline() if self.inline else self._work()
        except BaseException:
            # Where even this cannot be written, the row stays open and is closed as lost.
            with suppress(StoreError):
                self._close(RunOutcome.FAILED, self._worker.outcomes)
                self._tell()
            raise
        self._close(self._outcome(), outcomes)
        return self._tell()

    def _open(self, tx: Tx, pending: int) -> bool:
        opened = ledger.open_run(
            tx,
            run_id=self.run_id,
            name=self.name,
            profile=self.settings.profile or self.app.settings.profile,
            settings=ledger.settings_of(self.settings, self.profile),
            trigger=self.trigger,
        )
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

    def _work(self) -> Counter[str]:
        return self._worker.run(until_idle=True).outcomes

    def _work_inline(self) -> Counter[str]:
        while not self._intake.is_over and not self.was_stopped:
            done = self._worker.run_once(limit=1)
            self._worker.outcomes.update(done.outcomes)
            if not done.claimed:
                break
        return self._worker.outcomes

    @contextmanager
    def _until_late(self) -> Iterator[None]:
        """Set the deadline, and see to it that it is heard of while handlers run."""
        clock, seconds = self.app.clock, self.profile.max_runtime_seconds
        self._intake.deadline = clock.monotonic() + seconds
        if self.inline:
            yield
            return
        with _at(clock, seconds, self._on_deadline):
            yield

    def _on_deadline(self) -> None:
        self._intake.is_late = True
        self._worker.drain(Released("max_runtime", ms(self.profile.overflow_seconds)))

    def _outcome(self) -> RunOutcome:
        # A worker whose clock is too far from the store's does not even ask.
        if self.was_stopped or self._worker.must_recycle or not self._intake.was_asked:
            return RunOutcome.STOPPED
        if self._intake.is_late:
            return RunOutcome.OUT_OF_TIME
        return RunOutcome.FULL if self._intake.left <= 0 else RunOutcome.DONE

    def _close(self, outcome: RunOutcome, outcomes: Counter[str]) -> None:
        self._counts.outcomes = outcomes
        self.app.store.write(lambda tx: ledger.close_run(tx, self.run_id, outcome, self._counts))

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
    return ledger.count_pending(app.store, run.queues, run.job_types, profile)


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
        if isinstance(actor, str):
            actor = Actor.read(actor)
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
