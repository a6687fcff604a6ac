"""What happens in the demo, in order: enqueue, work, kill, wait, look."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from holdfast.demo.app import BAKERY, FIRMS, PLUMBING, POST, hf
from holdfast.demo.scene import Bar, Hand, Scene
from holdfast.demo.verdict import SQL, Verdict, judge
from holdfast.demo.view import View
from holdfast.engine.enqueue import Enqueued
from holdfast.engine.job import State
from holdfast.errors import HoldfastError
from holdfast.holdfast import SQL as JOB_SQL
from holdfast.store import Row, Store

JOBS_A_FIRM = 48
WAVES = 8
WAVE_SECONDS = 0.3
KILL_AT = 0.42
GIVE_UP_SECONDS = 60.0
LOOK_SECONDS = 0.08


class DemoFailed(HoldfastError):
    """The demo could not be shown to its end."""


class Story:
    """One showing in one folder."""

    def __init__(self, folder: Path, view: View) -> None:
        self.folder = folder
        self.view = view
        self.url = f"sqlite:///{folder}/demo.db"
        self.accepted: set[str] = set()
        self.rng = random.Random(7)
        self._seen = 0
        bars = {firm.org_id: Bar(firm.name, JOBS_A_FIRM) for firm in FIRMS}
        for extra in (BAKERY, PLUMBING, POST):
            # The cake that is ordered twice, the tea and the weather.
            bars[extra.org_id].planned += 1
        self.scene = Scene(time.monotonic(), bars)
        self.cake: Enqueued | None = None
        self.again: Enqueued | None = None

    def tell(self) -> Verdict:
        """Play it and give back what the database says at the end."""
        before = hf.settings
        hf.settings = replace(before, db=self.url)
        try:
            with self.view.showing(self.scene), self._two_workers():
                self._enqueue_and_work()
                self._kill_one()
                self._wait_for_the_end()
            return self._conclude(hf.store)
        finally:
            hf.close()
            hf.settings = before

    def _enqueue_and_work(self) -> None:
        self._say(f"Three tenants enqueue {JOBS_A_FIRM} jobs each. Two workers share them.")
        weather = hf.enqueue("weather.ask", {"for": "Tuesday"}, org_id=POST.org_id, priority="high")
        tea = hf.enqueue(
            "tea.pour", {"cups": 4, "guests": 0}, org_id=PLUMBING.org_id, priority="high"
        )
        self.accepted |= {weather.id, tea.id}
        self.flaky, self.buggy = weather, tea
        for wave in range(WAVES):
            for firm in FIRMS:
                share = range(wave, JOBS_A_FIRM, WAVES)
                payloads = [
                    {"number": number + 1, "seconds": round(self.rng.uniform(0.25, 0.45), 3)}
                    for number in share
                ]
                jobs = hf.enqueue_many(firm.job_type, payloads, org_id=firm.org_id)
                self.accepted |= {job.id for job in jobs}
            if wave == 1:
                self._order_twice()
            self._watch_for(WAVE_SECONDS)

    def _order_twice(self) -> None:
        order = {"number": 0, "seconds": 0.3}
        for_org = hf.for_org(BAKERY.org_id)
        self.cake = for_org.enqueue("bread.bake", order, idempotency_key="wedding-cake")
        self.again = for_org.enqueue("bread.bake", order, idempotency_key="wedding-cake")
        self.accepted |= {self.cake.id, self.again.id}
        if self.again.id == self.cake.id and not self.again.created:
            self._say("The wedding cake is ordered twice; the second order is the first job.")

    def _kill_one(self) -> None:
        victim = self.scene.hands[0]
        self._watch_until(
            lambda: self.scene.ended >= KILL_AT * self.scene.planned and victim.held >= 3
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
        self._watch_until(lambda: self.scene.ended >= self.scene.planned)
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
        while time.monotonic() < until:
            self._look()
            time.sleep(LOOK_SECONDS)

    def _watch_until(self, true: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + GIVE_UP_SECONDS
        while not true():
            self._look()
            if time.monotonic() > give_up_at or all(
                hand.process.poll() is not None for hand in self.scene.hands
            ):
                raise DemoFailed(f"The demo is stuck. Its log is in {self.folder}/worker.log.")
            time.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        """Ask the database how things stand and show it."""
        states, held, news = hf.store.read(
            lambda tx: (
                tx.many(SQL.count_states),
                tx.many(SQL.count_held),
                tx.many(SQL.list_news, after=self._seen),
            )
        )
        for org_id, bar in self.scene.bars.items():
            own = Counter({row["state"]: row["jobs"] for row in states if row["org_id"] == org_id})
            bar.done, bar.dead = own[State.COMPLETED], own[State.FAILED]
            bar.running = own[State.PROCESSING]
        in_hand = {row["claimed_by"]: row["jobs"] for row in held}
        for hand in self.scene.hands:
            hand.held = in_hand.get(hand.name, 0)
        if news:
            self._seen = news[-1]["id"]
            self.scene.news.extend(news)
        self.view.look(self.scene)

    # -- the workers

    @contextmanager
    def _two_workers(self) -> Iterator[None]:
        # Opened first, so that the schema is there before two processes ask for it.
        _ = hf.store
        try:
            with (self.folder / "worker.log").open("ab") as log:
                for name in ("one", "two"):
                    self.scene.hands.append(Hand(name, self._start(name, log.fileno())))
            yield
        finally:
            for hand in self.scene.hands:
                if hand.process.poll() is None:
                    hand.process.terminate()
            for hand in self.scene.hands:
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
        env["HOLDFAST_CONFIG"] = str(self.folder / "none.toml")
        return subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env
        )
