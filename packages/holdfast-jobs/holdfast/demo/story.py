"""What happens in the demo, in order: a flood, a trickle beside it, a kill, the end, a look."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.demo.app import BAKERY, FLOOD, PLUMBING, POST, QUIET, Firm, hf
from holdfast.demo.scene import Hand, Scene
from holdfast.demo.verdict import Verdict, judge
from holdfast.demo.view import View
from holdfast.demo.waits import SQL
from holdfast.engine.enqueue import Enqueued
from holdfast.engine.lookup import SQL as JOB_SQL
from holdfast.errors import HoldfastError
from holdfast.store import Row, Store

FLOOD_JOBS = 3_000
# In waves: one write of all of them would keep everybody else from the file for that long.
WAVE_JOBS = 300
KILL_AT = 0.4
GIVE_UP_SECONDS = 60.0
LOOK_SECONDS = 0.08


class DemoFailed(HoldfastError):
    """The demo could not be completed. Read the message; run the demo again."""


class Story:
    """One showing in one folder."""

    def __init__(self, folder: Path, view: View) -> None:
        self.folder = folder
        self.view = view
        self.url = f"sqlite:///{folder}/demo.db"
        self._log = folder / "worker.log"
        self.accepted: set[str] = set()
        self.rng = random.Random(7)
        self.scene = Scene(time.monotonic())
        self.cake: Enqueued | None = None
        self.again: Enqueued | None = None
        self._seen = 0
        self._turns = itertools.cycle(QUIET)
        self._trickles = False

    def run(self) -> Verdict:
        """Play it and give back what the database says at the end."""
        before = hf.settings
        hf.settings = replace(before, db=self.url)
        try:
            with self.view.showing(self.scene), self._two_workers():
                self._wait_for_workers()
                self._flood()
                self._trickle_beside_it()
                self._kill_one()
                self._wait_for_the_end()
            return self._conclude(hf.store)
        finally:
            hf.close()
            hf.settings = before

    def _wait_for_workers(self) -> None:
        # Else what is measured would be how long a Python takes to start.
        self._say("Two worker processes start.")
        self._watch_until(lambda: self._log.read_text().count("worker.started") == 2)

    def _flood(self) -> None:
        self._say(f"{FLOOD.name} floods the queue with {FLOOD_JOBS:,} jobs.")
        for first in range(0, FLOOD_JOBS, WAVE_JOBS):
            numbers = range(first, min(first + WAVE_JOBS, FLOOD_JOBS))
            self._enqueue(FLOOD, [self._work(number + 1, 0.004, 0.01) for number in numbers])
            self._look()

    def _trickle_beside_it(self) -> None:
        self._say("Its quiet neighbours ask for one thing at a time, behind all of that.")
        self.flaky = hf.enqueue("weather.ask", {"for": "Tuesday"}, org_id=POST.org_id)
        self.buggy = hf.enqueue("tea.pour", {"cups": 4, "guests": 0}, org_id=PLUMBING.org_id)
        self.accepted |= {self.flaky.id, self.buggy.id}
        self._trickles = True
        self._watch_for(1.0)
        self._order_twice()

    def _trickle(self) -> None:
        """One job of the next quiet tenant, as long as the flood waits beside it."""
        if self._trickles and self.scene.flood.waiting:
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
            self._say("The wedding cake is ordered twice; the second order is the first job.")

    def _kill_one(self) -> None:
        victim = self.scene.workers[0]
        self._watch_until(
            lambda: self.scene.flood.done >= KILL_AT * FLOOD_JOBS and victim.held >= 3
        )
        victim.process.send_signal(signal.SIGKILL)
        victim.process.wait()
        self._look()
        victim.held_at_death = victim.held
        self._say(
            f"kill -9 {victim.process.pid}: worker {victim.name} dies"
            f" with {victim.held} jobs in its hands."
        )
        self._watch_until(lambda: victim.held == 0)
        self._say(
            "Its leases have run out. The other worker takes the jobs over; the attempt is charged."
        )

    def _wait_for_the_end(self) -> None:
        self._watch_until(lambda: self.scene.ended >= len(self.accepted))
        self._say(f"Everything has ended after {self.scene.seconds:.1f} seconds.")

    def _conclude(self, store: Store) -> Verdict:
        verdict = judge(store, self.accepted)
        if self.cake is None or self.again is None or self.again.id != self.cake.id:
            verdict = replace(verdict, problems=(*verdict.problems, "a duplicate is the original"))
        self.view.timeline("A retry, as the audit tells it", self._timeline(store, self.flaky))
        self.view.timeline("A dead letter", self._timeline(store, self.buggy))
        self.view.verdict(verdict)
        return verdict

    def _timeline(self, store: Store, job: Enqueued) -> list[Row]:
        return store.read(lambda tx: tx.many(JOB_SQL.list_events, org_id=job.org_id, job_id=job.id))

    # -- watching

    def _say(self, caption: str) -> None:
        self.scene.caption = caption
        self.view.say(self.scene)

    def _watch_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self._watch_until(lambda: time.monotonic() >= until)

    def _watch_until(self, true: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + GIVE_UP_SECONDS
        while not true():
            self._trickle()
            self._look()
            if time.monotonic() > give_up_at or all(
                hand.process.poll() is not None for hand in self.scene.workers
            ):
                raise DemoFailed(f"The demo is stuck. Its workers said last: {self._last_words}")
            time.sleep(LOOK_SECONDS)

    @property
    def _last_words(self) -> str:
        # The folder goes with the demo, so the log is of no use to anybody who comes later.
        return (self._log.read_text().splitlines() or ["nothing"])[-1]

    def _look(self) -> None:
        """Ask the database how things stand and show it."""
        states, held, news = hf.store.read(
            lambda tx: (
                tx.many(SQL.count_states),
                tx.many(SQL.count_held),
                tx.many(SQL.list_news, after=self._seen),
            )
        )
        if news:
            self._seen = news[-1]["id"]
        self.scene.update(states, held, news)
        self.view.look(self.scene)

    # -- the workers

    @contextmanager
    def _two_workers(self) -> Iterator[None]:
        # Opened first, so that the schema is there before two processes ask for it.
        _ = hf.store
        try:
            with self._log.open("ab") as log:
                for name in ("one", "two"):
                    self.scene.workers.append(Hand(name, self._start(name, log.fileno())))
            yield
        finally:
            for hand in self.scene.workers:
                if hand.process.poll() is None:
                    hand.process.terminate()
            for hand in self.scene.workers:
                try:
                    hand.process.wait(timeout=5.0)
                except subprocess.TimeoutExpired:
                    hand.process.kill()
                    hand.process.wait()

    def _start(self, name: str, log: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "holdfast", "--app", "holdfast.demo.app:hf"]
        command += ["--db", self.url, "worker", "--worker-id", name, "--concurrency", "4"]
        # The demo is the same everywhere: no setting of the person who watches reaches it.
        env = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        env["HOLDFAST_CONFIG"] = ""
        return subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env
        )
