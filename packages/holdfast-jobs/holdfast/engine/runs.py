"""The body of a bounded run: a worker with a job limit, or a periodic task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from holdfast.clock import Clock, ms
from holdfast.config import RunProfile, RunSettings, Settings
from holdfast.config.extensions import built_in_run
from holdfast.document import decode
from holdfast.engine import run_log
from holdfast.engine.claim import Order, claim_jobs
from holdfast.engine.handler import Registry
from holdfast.engine.job import Claimed, Released
from holdfast.engine.periodic_task import PeriodicTask, RunBudget
from holdfast.engine.run_log import RunCounts, RunOutcome
from holdfast.engine.settle import Settled
from holdfast.engine.worker.fetcher import FairFetcher
from holdfast.engine.worker.worker import Worker
from holdfast.errors import UnknownQueue, WorkerCrashed
from holdfast.event import Event, Events, JobSettled, LeaseWasLost
from holdfast.ids import IdSource
from holdfast.store import Store


class DefaultExtensions(Protocol):
    """The extensions of an application."""

    def enable_defaults(self) -> None:
        """Enable the extensions that workers enable automatically."""


class Application(Protocol):
    """The parts of the application that a run uses."""

    settings: Settings
    clock: Clock
    ids: IdSource
    registry: Registry
    events: Events

    @property
    def store(self) -> Store: ...

    @property
    def extensions(self) -> DefaultExtensions: ...

    @property
    def known_queues(self) -> list[str]: ...

    def worker(self, **options: Any) -> Worker: ...


class RunBody(Protocol):
    """The work of a bounded run."""

    @property
    def counts(self) -> RunCounts:
        """Counts of claimed and settled jobs so far."""

    @property
    def outcome(self) -> RunOutcome:
        """The outcome of a run that was neither stopped nor failed."""

    @property
    def settings(self) -> dict[str, Any]:
        """The effective settings, as the run log stores them."""

    def count_pending(self) -> int:
        """The number of pending jobs, counted up to the run's job limit."""

    def work(self, *, deadline: float, inline: bool) -> None:
        """Process pending work until *deadline*; with *inline*, in this thread only."""

    def end(self) -> None:
        """End the run at its deadline: claim nothing more, release jobs that have not started."""

    def drain(self) -> None:
        """End the run on request. Safe in a signal handler."""

    def stop(self) -> None:
        """Do not wait for running jobs. Safe in a signal handler."""


@dataclass(slots=True)
class BoundedFetcher:
    """Claims jobs for one run: at most *left* in total, and none after the deadline."""

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
    _fair: FairFetcher | None = None
    _dead_lettered: list[Settled] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.profile.order == Order.FAIR:
            self._fair = FairFetcher(
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
        """Whether no more jobs will be claimed and none of this run is still running."""
        return (self.is_late or self.left <= 0 or self._ran_dry) and not self._open

    def hear(self) -> None:
        if self._fair is not None:
            self._fair.hear()

    def take(self, wanted: int) -> list[Claimed]:
        """Claim up to *wanted* jobs, queue after queue.

        A pass that finds nothing is repeated only after a job of this run has ended, because only
        that can free capacity under a limit.
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

    def is_limited(self, queue: str) -> bool:
        """False: a run wakes no other worker."""
        return False

    def take_dead_lettered(self) -> list[Settled]:
        if self._fair is not None:
            return self._fair.take_dead_lettered()
        found, self._dead_lettered = self._dead_lettered, []
        return found

    def close(self) -> None:
        if self._fair is not None:
            self._fair.close()

    def _take_oldest(self, wanted: int) -> list[Claimed]:
        return claim_jobs(
            self.store,
            queues=self.queues,
            worker_id=self.run_id,
            limit=wanted,
            lease_ms=self._lease_ms,
            order=Order.CREATED_AT_ASC,
            respect_not_before_at=self.profile.respect_not_before_at,
            job_types=self.job_types,
            without=self._seen,
            dead_lettered=self._dead_lettered,
        )

    def on_event(self, event: Event) -> None:
        """Event subscriber: count the outcomes of this run's claims."""
        match event:
            case JobSettled(about) if about.job_id in self._open and event.outcome != "advanced":
                # The rescue of a stale claim counts the attempt, not this run.
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


class JobRun:
    """A run that executes jobs with a worker."""

    def __init__(
        self,
        app: Application,
        run_id: str,
        run: RunSettings,
        profile: RunProfile,
        *,
        concurrency: int,
        async_concurrency: int,
    ) -> None:
        self.app = app
        self.run = run
        self.profile = profile
        self._stopped = False
        self._counts = RunCounts()
        self._fetcher = BoundedFetcher(
            app.store,
            run_id,
            run.queues,
            run.job_types,
            profile,
            self._counts,
            deadline=float("inf"),
        )
        self._worker = app.worker(
            registry=app.registry.with_backoff(profile.retry_backoff_seconds),
            settings=replace(app.settings, lease_seconds=float(profile.claim_timeout_seconds)),
            events=Events([self._fetcher.on_event, *app.events.subscribers]),
            queues=run.queues,
            concurrency=concurrency,
            async_concurrency=async_concurrency,
            worker_id=run_id,
            drain_seconds=float(profile.claim_timeout_seconds),
            fetcher=self._fetcher,
        )

    @property
    def counts(self) -> RunCounts:
        self._counts.outcomes = self._worker.outcomes
        return self._counts

    @property
    def outcome(self) -> RunOutcome:
        # A worker whose clock is too far from the store's claims nothing.
        if self._worker.must_recycle or not self._fetcher.was_asked:
            return RunOutcome.STOPPED
        if self._fetcher.is_late:
            return RunOutcome.OUT_OF_TIME
        return RunOutcome.FULL if self._fetcher.left <= 0 else RunOutcome.DONE

    @property
    def settings(self) -> dict[str, Any]:
        return run_log.settings_of(self.run, self.profile)

    def count_pending(self) -> int:
        run = self.run
        return run_log.count_pending(self.app.store, run.queues, run.job_types, self.profile)

    def work(self, *, deadline: float, inline: bool) -> None:
        self._fetcher.deadline = deadline
        if not inline:
            self._worker.run(until_idle=True)
            return
        while not self._fetcher.is_over and not self._stopped:
            done = self._worker.run_once(limit=1)
            self._worker.outcomes.update(done.outcomes)
            if not done.claimed:
                break
        self._fetcher.close()

    def end(self) -> None:
        self._fetcher.is_late = True
        self._worker.drain(Released("max_runtime", ms(self.profile.overflow_seconds)))

    def drain(self) -> None:
        self._stopped = True
        self._worker.drain()

    def stop(self) -> None:
        self._stopped = True
        self._worker.stop()


class TaskRun:
    """A run that executes a periodic task in this thread."""

    def __init__(
        self, app: Application, run_id: str, name: str, run: RunSettings, profile: RunProfile
    ) -> None:
        self.task: PeriodicTask = app.registry.tasks[name]
        # By default a task serves every queue, including queues that were declared later.
        built_in = built_in_run(name)
        chosen = built_in is None or run.queues != built_in.queues
        self.run = run if chosen else replace(run, queues=tuple(app.known_queues))
        self.budget = RunBudget(run_id, self.run.queues, run.job_types, profile, app.clock)

    @property
    def counts(self) -> RunCounts:
        return self.budget.counts

    @property
    def outcome(self) -> RunOutcome:
        if self.budget.is_late:
            return RunOutcome.OUT_OF_TIME
        return RunOutcome.FULL if self.budget.left <= 0 else RunOutcome.DONE

    @property
    def settings(self) -> dict[str, Any]:
        settings = run_log.settings_of(self.run, self.budget.profile)
        return {**settings, "eligible_statuses": list(self.task.eligible_statuses)}

    def count_pending(self) -> int:
        return self.task.count_pending(self.budget)

    def work(self, *, deadline: float, inline: bool) -> None:
        self.budget.deadline = deadline
        self.task.perform(self.budget)

    def end(self) -> None:
        """Nothing to do: the budget reads the clock."""

    def drain(self) -> None:
        self.budget.stop_requested = True

    def stop(self) -> None:
        self.budget.stop_requested = True


def check_run(app: Application, run: RunSettings) -> None:
    """Raise unless *app* can perform *run*.

    With an unknown queue or job type, every run would find no jobs.
    """
    known = app.known_queues
    for queue in run.queues:
        if queue not in known:
            raise UnknownQueue(queue, known)
    for job_type in run.job_types:
        app.registry.get(job_type)


def run_body(
    app: Application,
    name: str,
    run_id: str,
    profile: RunProfile,
    *,
    concurrency: int = 10,
    async_concurrency: int = 200,
) -> RunBody:
    """The body of the run *name*: its periodic task if one is registered, otherwise jobs."""
    # Their maintenance also runs before bounded runs.
    app.extensions.enable_defaults()
    run = app.settings.runs[name]
    if name in app.registry.tasks:
        return TaskRun(app, run_id, name, run, profile)
    options = {"concurrency": concurrency, "async_concurrency": async_concurrency}
    return JobRun(app, run_id, run, profile, **options)
