"""The order of events: a flood, a trickle beside it, a kill, the end, the counts."""

from __future__ import annotations

import itertools
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.demo.acts import ActsProcess, clean_environment, find_acts
from holdfast.demo.app import BAKERY, FLOOD, PLUMBING, POST, QUIET, Firm, hf
from holdfast.demo.state import DemoState, WorkerProcess
from holdfast.demo.summary import Summary, summarize
from holdfast.demo.view import View
from holdfast.demo.waits import SQL
from holdfast.engine.audit import JOB_SQL
from holdfast.engine.enqueue import Enqueued
from holdfast.errors import HoldfastError
from holdfast.operate.short_ids import short_ids
from holdfast.store import Row, Store

APP = "holdfast.demo.app:hf"
FLOOD_JOBS = 3_000
# Written in parts: one transaction with all of them would block the workers for too long.
WAVE_JOBS = 300
KILL_AT = 0.4
GIVE_UP_SECONDS = 60.0
LOOK_SECONDS = 0.08


class DemoFailed(HoldfastError):
    """The demo could not be completed. Read the message; run the demo again."""


class Story:
    """One run of the demo. Its databases and logs stay in *folder*."""

    def __init__(self, folder: Path, view: View) -> None:
        self.folder = folder
        self.view = view
        self.url = f"sqlite:///{folder}/demo.db"
        self._log = folder / "worker.log"
        self.accepted: set[str] = set()
        self.rng = random.Random(7)
        self.state = DemoState(time.monotonic())
        self.acts: ActsProcess | None = None
        self.cake: Enqueued | None = None
        self.again: Enqueued | None = None
        self._seen = 0
        self._turns = itertools.cycle(QUIET)
        self._trickles = False

    def run(self) -> Summary:
        """Run the demo and return the counts at the end."""
        before = hf.settings
        hf.settings = replace(before, db=self.url)
        try:
            with self.view.showing(self.state), self._two_workers(), self._acts_beside():
                self._start_acts()
                self._wait_for_workers()
                self._flood()
                self._trickle_beside_it()
                self._kill_one()
                self._wait_for_the_end()
            return self._summarize(hf.store)
        finally:
            hf.close()
            hf.settings = before

    def _wait_for_workers(self) -> None:
        # Otherwise the waits would include the start of a Python process.
        self._say("Two worker processes start.")
        self._watch_until(lambda: self._log.read_text().count("worker.started") == 2)

    def _flood(self) -> None:
        self._say(f"{FLOOD.name} floods the queue with {FLOOD_JOBS:,} jobs.")
        for first in range(0, FLOOD_JOBS, WAVE_JOBS):
            numbers = range(first, min(first + WAVE_JOBS, FLOOD_JOBS))
            self._enqueue(FLOOD, [self._work(number + 1, 0.004, 0.01) for number in numbers])
            self._look()

    def _trickle_beside_it(self) -> None:
        self._say("Four quiet tenants enqueue one job at a time behind the flood.")
        self.flaky = hf.enqueue("weather.ask", {"for": "Tuesday"}, org_id=POST.org_id)
        self.buggy = hf.enqueue("tea.pour", {"cups": 4, "guests": 0}, org_id=PLUMBING.org_id)
        self.accepted |= {self.flaky.id, self.buggy.id}
        self._trickles = True
        self._watch_for(1.0)
        self._order_twice()

    def _trickle(self) -> None:
        """Enqueue one job of the next quiet tenant while jobs of the flood wait."""
        if self._trickles and self.state.flood.waiting:
            self._enqueue(next(self._turns), [self._work(len(self.accepted), 0.03, 0.06)])

    def _work(self, number: int, least: float, most: float) -> dict[str, Any]:
        return {"number": number, "seconds": round(self.rng.uniform(least, most), 3)}

    def _enqueue(self, firm: Firm, payloads: list[dict[str, Any]]) -> None:
        jobs = hf.enqueue_many(firm.job_type, payloads, org_id=firm.org_id)
        self.accepted |= {job.id for job in jobs}

    def _order_twice(self) -> None:
        order = self._work(0, 0.2, 0.3)
        for_org = hf.for_org(BAKERY.org_id)
        self.cake = for_org.enqueue("bread.bake", order, idempotency_key="wedding-cake")
        self.again = for_org.enqueue("bread.bake", order, idempotency_key="wedding-cake")
        self.accepted |= {self.cake.id, self.again.id}
        if self.again.id == self.cake.id and not self.again.created:
            self._say("The wedding cake is ordered twice with one idempotency key: one job.")

    def _kill_one(self) -> None:
        victim = self.state.workers[0]
        self._watch_until(
            lambda: self.state.flood.done >= KILL_AT * FLOOD_JOBS and victim.held >= 3
        )
        victim.process.send_signal(signal.SIGKILL)
        victim.process.wait()
        self._look()
        victim.held_at_death = victim.held
        self._say(
            f"kill -9 {victim.process.pid}: worker {victim.name} is killed"
            f" with {victim.held} jobs in flight."
        )
        self._watch_until(lambda: victim.held == 0)
        self._say(
            "The leases expired. The other worker runs the jobs; the kill counted as an attempt."
        )

    def _wait_for_the_end(self) -> None:
        self._watch_until(lambda: self.state.ended >= len(self.accepted))
        self._say(f"All jobs have ended after {self.state.seconds:.1f} seconds.")
        acts = self.acts
        if acts is not None:
            self._watch_until(lambda: acts.has_ended)
            self._read_acts()

    def _summarize(self, store: Store) -> Summary:
        summary = summarize(store, self.accepted)
        if self.cake is None or self.again is None or self.again.id != self.cake.id:
            problem = "the second enqueue with an idempotency key returns the first job"
            summary = replace(summary, problems=(*summary.problems, problem))
        if self.acts is not None:
            summary = summary.with_acts(self.acts.complete())
        self.view.timeline("Audit events of a retried job", self._timeline(store, self.flaky))
        self.view.timeline("Audit events of a dead letter", self._timeline(store, self.buggy))
        self.view.summary(summary)
        *commands, console = self._commands()
        self.view.commands(str(self.folder), commands, console)
        return summary

    def _commands(self) -> list[str]:
        """Three commands that show the jobs of the demo, and the one that serves the console."""
        # An application that the shell or holdfast.toml names would be imported otherwise.
        holdfast = f"{_command()} --app {APP} --db {shlex.quote(self.url)}"
        return [
            f"{holdfast} jobs list --state failed",
            f"{holdfast} explain {self._short_id(self.buggy)}",
            f"{holdfast} verify",
            f"{holdfast} serve --dev",
        ]

    def _short_id(self, job: Enqueued) -> str:
        operator = hf.operate(actor="user:demo", role="admin")
        return short_ids(operator.context, operator.jobs.id_space, [job.id])[job.id]

    def _timeline(self, store: Store, job: Enqueued) -> list[Row]:
        return store.read(lambda tx: tx.many(JOB_SQL.list_events, org_id=job.org_id, job_id=job.id))

    # -- watching

    def _say(self, caption: str) -> None:
        self.state.caption = caption
        self.view.say(self.state)

    def _watch_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self._watch_until(lambda: time.monotonic() >= until)

    def _watch_until(self, true: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + GIVE_UP_SECONDS
        while not true():
            self._trickle()
            self._look()
            if time.monotonic() > give_up_at or all(
                worker.process.poll() is not None for worker in self.state.workers
            ):
                raise DemoFailed(
                    f"The demo made no progress. Last line of {self._log}: {self._last_line}"
                )
            time.sleep(LOOK_SECONDS)

    @property
    def _last_line(self) -> str:
        return (self._log.read_text().splitlines() or ["nothing"])[-1]

    def _look(self) -> None:
        """Read the counts from the database and show them."""
        states, held, news = hf.store.read(
            lambda tx: (
                tx.many(SQL.count_states),
                tx.many(SQL.count_held),
                tx.many(SQL.list_news, after=self._seen),
            )
        )
        if news:
            self._seen = news[-1]["id"]
        self.state.update(states, held, news)
        self._read_acts()
        self.view.look(self.state)

    # -- the acts

    @contextmanager
    def _acts_beside(self) -> Iterator[None]:
        try:
            yield
        finally:
            if self.acts is not None:
                self.acts.stop()

    def _start_acts(self) -> None:
        """Start the acts of the installed extensions, if there are any."""
        if found := find_acts():
            self.acts = ActsProcess(found, self.folder)
            self.state.acts = self.acts.acts

    def _read_acts(self) -> None:
        if self.acts is not None:
            for title, caption in self.acts.read_captions():
                self.view.say_act(self.state, title, caption)

    # -- the workers

    @contextmanager
    def _two_workers(self) -> Iterator[None]:
        # Opening the store creates the tables before two processes need them.
        _ = hf.store
        try:
            with self._log.open("ab") as log:
                for name in ("one", "two"):
                    process = self._start(name, log.fileno())
                    self.state.workers.append(WorkerProcess(name, process))
            yield
        finally:
            for worker in self.state.workers:
                if worker.process.poll() is None:
                    worker.process.terminate()
            for worker in self.state.workers:
                try:
                    worker.process.wait(timeout=5.0)
                except subprocess.TimeoutExpired:
                    worker.process.kill()
                    worker.process.wait()

    def _start(self, name: str, log: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "holdfast", "--app", APP]
        command += ["--db", self.url, "worker", "--worker-id", name, "--concurrency", "4"]
        return subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean_environment()
        )


def _command() -> str:
    """How to run this installation's CLI in the current directory."""
    script = Path(sys.executable).parent / "holdfast"
    if not script.exists():
        return f"{shlex.quote(sys.executable)} -m holdfast"
    if (found := shutil.which("holdfast")) is not None and Path(found) == script:
        return "holdfast"
    here = Path.cwd()
    return shlex.quote(str(script.relative_to(here) if here in script.parents else script))
