"""A pytest plugin for applications that use Holdfast. Installed with the package.

    def test_a_welcome_is_sent_once(holdfast_app):
        holdfast_app.manual()
        sign_up("ada")
        holdfast_app.assert_enqueued("mail.welcome", payload={"user": "ada"})
        holdfast_app.drain()
        assert outbox == ["ada"]

Override the ``holdfast_target`` fixture to return your Holdfast. Each test gets a fresh in-memory
database and a clock that moves only when the test advances it. To test on the application's own
test database, override ``holdfast_database`` or call ``holdfast_app.use(…)`` with its session,
connection, engine or URL.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.clock import FakeClock, read_instant
from holdfast.declared_job import DeclaredJob
from holdfast.engine.bounded_run import perform_run
from holdfast.engine.enqueue import Enqueued
from holdfast.engine.job import Job, State
from holdfast.engine.pass_counts import PassCounts
from holdfast.engine.run_log import RunReport, Trigger, TriggerKind
from holdfast.engine.schedule.dispatcher import dispatch_once
from holdfast.engine.schedule.rows import sync_schedules
from holdfast.engine.worker import fetcher, settle_buffer
from holdfast.engine.worker import worker as working
from holdfast.engine.worker.worker import Worker, run_maintenance
from holdfast.ids import IdSource
from holdfast.store import Statements, open_store
from holdfast.testing_channels import ChannelConformance as ChannelConformance
from holdfast.testing_channels import Fault as Fault
from holdfast.testing_faults import OUTBOX_POINTS, inject, kits_of
from holdfast.testing_store import open_for_tests

SQL = Statements("holdfast.engine", "testing.sql")

ORG = "0198c0de-0000-7000-8000-00000000000a"
"""A tenant id for tests in which the tenant does not matter."""


class Crash(BaseException):
    """Simulates a crash of the process at a chosen point."""


class HoldfastApp:
    """An application under test, with an in-memory store and a clock that the test controls."""

    def __init__(self, hf: Holdfast) -> None:
        self.hf = hf
        self.clock = FakeClock()
        self._before = (hf.settings, hf.clock, hf.rng, hf.ids, hf.events, hf._store, hf._inline)
        # Files of a test go to a temporary folder, whatever the settings say.
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-test-")
        hf.settings = replace(hf.settings, db="sqlite:")
        for extension in hf.extensions.available():
            hf.settings = extension.test_settings(hf.settings, Path(self._folder.name))
        hf.clock = self.clock
        hf.rng = random.Random(7)
        hf.ids = IdSource(self.clock, hf.rng)
        hf.use_store(open_store("sqlite:", clock=self.clock))
        self._hint = hf.callers.hint
        hf.callers.hint = _HINT

    def close(self) -> None:
        self.hf.close()
        hf = self.hf
        hf.callers.hint = self._hint
        hf.settings, hf.clock, hf.rng, hf.ids, hf.events, hf._store, hf._inline = self._before
        self._folder.cleanup()

    def use(self, database: Any) -> None:
        """Use a test database of the application in place of the one in memory.

        *database* is a SQLAlchemy session or connection, the connection of Django, sqlite3 or
        psycopg, an engine, or a URL. On a session or connection everything happens in its open
        transaction: jobs that it enqueued with ``conn=`` are seen, and its rollback removes them.
        An engine or URL is for tests that commit. Missing tables are created. Raises ConfigError
        unless the name says that it is for tests, or if a worker uses it.
        """
        store = open_for_tests(database, self.clock)
        self.hf.close()
        self.hf.settings = replace(self.hf.settings, db=store.url)
        self.hf.use_store(store)

    def manual(self) -> None:
        """Jobs wait until :meth:`drain` or :meth:`run`. This is the default."""
        self.hf._inline = None

    def inline(self) -> None:
        """Jobs run at once, inside the call that enqueues them."""
        self.hf._inline = self.drain

    def drain(
        self, *, queues: Sequence[str] | None = None, with_delays: bool = False
    ) -> PassCounts:
        """Run all due jobs of every queue; *with_delays* also moves past retries and snoozes."""
        total = PassCounts()
        while True:
            done = self.run(queues=queues)
            total += done
            if done.claimed:
                continue
            if not with_delays or not self._move_to_next():
                return total

    def run(self, limit: int = 100, *, queues: Sequence[str] | None = None) -> PassCounts:
        """Run one worker pass: claim up to *limit* due jobs, execute and settle them."""
        return self._worker(queues).run_once(limit)

    def _worker(self, queues: Sequence[str] | None) -> Worker:
        return self.hf.worker(queues=self.hf.known_queues if queues is None else queues)

    def _move_to_next(self) -> bool:
        row = self.hf.store.read(lambda tx: tx.one(SQL.next_due))
        if row["ms"] is None:
            return False
        self.clock.advance(timedelta(milliseconds=max(1, math.ceil(row["ms"]))))
        return True

    def advance(self, delta: timedelta | None = None, /, **lengths: float) -> PassCounts:
        """Move the clock and fire every schedule on the way, as in ``advance(hours=2)``.

        The jobs of schedules wait until they are drained, or run at once after :meth:`inline`.
        """
        until = self.clock.now() + (timedelta(**lengths) if delta is None else delta)
        sync_schedules(self.hf)
        total = PassCounts()
        for _ in range(_MOST_TICKS):
            at = self.hf.store.one(SQL.next_tick)["at"]
            tick = None if at is None else read_instant(at)
            if tick is None or tick > until:
                break
            if tick > self.clock.now():
                self.clock.advance(tick - self.clock.now())
            total += dispatch_once(self.hf)
            if self.hf._inline is not None:
                self.hf._inline()
        else:
            pytest.fail(f"More than {_MOST_TICKS} ticks of schedules; advance in smaller steps.")
        self.clock.advance(max(timedelta(0), until - self.clock.now()))
        return total

    def run_maintenance(self) -> PassCounts:
        """Run one pass of rescue, pruning and the maintenance of extensions, such as sealing."""
        self.hf.extensions.enable_defaults()
        counts = run_maintenance(self.hf.store, self.hf.settings, self.hf.events)
        for chore in self.hf.registry.chores:
            (chore.before_runs or chore.work)()
        return counts

    def all_enqueued(
        self,
        job_type: str | DeclaredJob[..., ..., Any, Any] | None = None,
        *,
        payload: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> list[Job]:
        """Waiting jobs of this type whose payload contains *payload* and whose fields are equal.

        *job_type* is the name of the type, or what ``@hf.job`` returned.
        """
        job_type = _type_of(job_type)
        rows = self.hf.store.read(lambda tx: tx.many(SQL.list_jobs, state=State.QUEUED))
        jobs = [Job.from_row(row) for row in rows]
        return [job for job in jobs if _matches(job, job_type, payload, fields)]

    def assert_enqueued(
        self,
        job_type: str | DeclaredJob[..., ..., Any, Any],
        *,
        payload: Mapping[str, Any] | None = None,
        times: int | None = None,
        **fields: Any,
    ) -> list[Job]:
        """Assert that a matching job is waiting; with *times*, exactly that many."""
        found = self.all_enqueued(job_type, payload=payload, **fields)
        if not found or (times is not None and len(found) != times):
            waiting = "\n".join(f"  {job.job_type} {job.payload}" for job in self.all_enqueued())
            name = _type_of(job_type)
            wanted = f"{times or 'a'} waiting {name} with {dict(payload or {})} {fields or ''}"
            pytest.fail(
                f"Expected {wanted}; found {len(found)}. Waiting:\n{waiting or '  nothing'}"
            )
        return found

    def refute_enqueued(
        self,
        job_type: str | DeclaredJob[..., ..., Any, Any],
        *,
        payload: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        """Assert that no matching job is waiting."""
        found = self.all_enqueued(job_type, payload=payload, **fields)
        if found:
            name = _type_of(job_type)
            pytest.fail(f"Expected no waiting {name}; found {[job.payload for job in found]}.")

    assert_not_enqueued = refute_enqueued

    def process_job(
        self,
        job_type: str | DeclaredJob[..., ..., Any, Any],
        payload: Mapping[str, Any],
        **options: Any,
    ) -> Job:
        """Enqueue one job with its payload as JSON, execute it, and return its final state."""
        name = _type_of(job_type)
        assert name is not None
        enqueued: Enqueued = self.hf.enqueue(name, payload, **{"org_id": ORG, **options})
        self.drain()
        return self.hf.get(enqueued.id, org_id=enqueued.org_id)

    def __getattr__(self, name: str) -> Any:
        """Return a helper of an extension, such as ``submit`` of batch processing."""
        for kit in () if name.startswith("_") else kits_of(self.hf):
            if hasattr(kit, name):
                return getattr(kit, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def perform(self, run: str) -> RunReport:
        """Perform one bounded run, as a timer does."""
        return perform_run(self.hf, run, trigger=_BY_TIMER)

    @contextmanager
    def crash_after(self, point: str) -> Iterator[None]:
        """Crash the process right after *point*: ``claim``, ``execute``, ``settle`` or ``send``.

        ``send`` is the send of a channel. Extensions may add points: batch processing has
        ``created`` and others, see docs/guides/testing.md. The block ends normally. Once the lease
        of the crashed worker has expired (``clock.advance(seconds=61)``), :meth:`run_maintenance`
        rescues its jobs, and the next run rescues its batches.
        """
        if point not in _POINTS:
            with self._crash_at(point):
                yield
            return
        module, name = _POINTS[point]
        original = getattr(module, name)

        def dying(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if result or point != "claim":
                raise Crash(point)
            return result

        setattr(module, name, dying)
        try:
            yield
        except Crash:
            pass
        else:
            pytest.fail(f"Nothing reached {point!r}, so nothing crashed after it.")
        finally:
            setattr(module, name, original)

    @contextmanager
    def _crash_at(self, point: str) -> Iterator[None]:
        def crash(reached: str) -> None:
            raise Crash(reached)

        known = dict(OUTBOX_POINTS)
        for kit in kits_of(self.hf):
            known |= kit.points
        try:
            with inject(self.hf, {point: known[point]}, crash):
                yield
        except Crash:
            pass
        else:
            pytest.fail(f"Nothing reached {point!r}, so nothing crashed after it.")


_MOST_TICKS = 10_000
_HINT = (
    " This is a test: let Holdfast use the test's database with holdfast_app.use(connection), or"
    " with the fixture holdfast_database."
)
_BY_TIMER = Trigger(TriggerKind.CRON)
_POINTS: dict[str, tuple[Any, str]] = {
    "claim": (fetcher.FairFetcher, "take"),
    "execute": (working, "execute"),
    "settle": (settle_buffer, "settle_bisecting"),
}


def _type_of(given: str | DeclaredJob[..., ..., Any, Any] | None) -> str | None:
    """The name of a job type that is given by its name or as declared."""
    return given.job_type if isinstance(given, DeclaredJob) else given


def _matches(
    job: Job, job_type: str | None, payload: Mapping[str, Any] | None, fields: Mapping[str, Any]
) -> bool:
    if job_type is not None and job.job_type != job_type:
        return False
    if payload is not None and any(job.payload.get(k, _MISSING) != v for k, v in payload.items()):
        return False
    return all(job.record.get(name) == value for name, value in fields.items())


_MISSING = object()


@pytest.fixture
def holdfast_target() -> Holdfast:
    """The application under test: override this fixture to return your Holdfast."""
    return Holdfast("sqlite:")


@pytest.fixture
def holdfast_database() -> Any:
    """The test database: override this fixture to return your session, connection, engine or URL.

    The default, None, is a new database in memory.
    """
    return None


@pytest.fixture
def holdfast_app(holdfast_target: Holdfast, holdfast_database: Any) -> Iterator[HoldfastApp]:
    """Your application on its test database, with a clock that the test advances."""
    app = HoldfastApp(holdfast_target)
    try:
        if holdfast_database is not None:
            app.use(holdfast_database)
        yield app
    finally:
        app.close()
