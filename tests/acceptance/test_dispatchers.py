"""Ten dispatchers, one database, a month in which five zones change their clocks.

From 7 March to 7 April 2026 New York and Berlin go forward; Sydney, Santiago and Lord Howe go back,
the last one by half an hour, Santiago at midnight.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.clock import read_instant
from holdfast.config import RunSettings
from holdfast.engine.pass_counts import PassCounts
from holdfast.engine.schedule.dispatcher import Dispatcher
from holdfast.engine.schedule.rows import sync_schedules
from holdfast.store import Row, Store, open_store
from tests.engine.faulty import Died, FaultyStore
from tests.pure import test_cron
from tests.pure.test_cron import by_looking, every_minute
from tests.story import ORG, OTHER_ORG, look, make_holdfast

BEGIN = datetime(2026, 3, 7, tzinfo=UTC)
DAYS = 31
ZONES = (
    "America/New_York",
    "Europe/Berlin",
    "Australia/Sydney",
    "America/Santiago",
    "Australia/Lord_Howe",
)
# Local times that are skipped or repeated in some zone, by wall clock and by elapsed time.
CRONS = ("30 2 * * *", "45 1 * * *", "30 23 * * *", "*/20 2 * * *", "15 */3 * * *")
# The expressions that fire often are used in two zones: one goes forward, one goes back by half
# an hour.
OFTEN = CRONS[3:]
SCHEDULES = [
    (zone, number, cron)
    for zone in ZONES
    for number, cron in enumerate(CRONS)
    if cron not in OFTEN or zone in ("Europe/Berlin", "Australia/Lord_Howe")
]
RUNS = {"sweep": RunSettings(queues=("q:default",))}
DISPATCHERS = 10


def application(url: str, clock: FakeClock) -> Holdfast:
    hf = make_holdfast(url, clock, runs=RUNS)
    hf.job("db.cleanup", category="maintenance")(lambda job, payload: payload)
    hf.job("order.ship")(lambda job, payload: payload)
    for zone, number, cron in SCHEDULES:
        hf.schedule(
            name_of(zone, number),
            cron=cron,
            zone=zone,
            job_type="db.cleanup",
            org_id=(ORG, OTHER_ORG)[number % 2],
            catch_up="all",
        )
    hf.schedule("often-one", every="20m", job_type="db.cleanup", org_id=ORG, catch_up="one")
    hf.schedule("often-skip", every="20m", job_type="db.cleanup", org_id=ORG, catch_up="skip")
    hf.schedule("sweeping", every="4h", run="sweep", catch_up="all")
    return hf


def name_of(zone: str, number: int) -> str:
    return f"{zone.lower().replace('/', '-')}-{number}"


def ticks(store: Store) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in look(store, "SELECT * FROM holdfast.schedule_tick ORDER BY schedule, fire_at"):
        found.setdefault(row["schedule"], []).append(row)
    return found


def local(rows: list[Row], zone: str, day: str) -> list[str]:
    """When the ticks of a local date fired, in local time."""
    whens = [read_instant(row["fire_at"]).astimezone(ZoneInfo(zone)) for row in rows]
    return [f"{when:%H:%M %z}" for when in whens if f"{when:%m-%d}" == day]


class World:
    """Dispatchers that run in a random order with a fixed seed, on a fake clock."""

    def __init__(self, url: str, seed: int) -> None:
        self.url = url
        self.rng = random.Random(seed)
        self.clock = FakeClock(BEGIN)
        self.apps = [self._start() for _ in range(DISPATCHERS)]
        self.deaths = 0

    def _start(self) -> Holdfast:
        hf = application(self.url, self.clock)
        sync_schedules(hf)
        return hf

    def live(self) -> None:
        """A month in steps of up to eight hours; at each step some of the ten run a pass."""
        end = BEGIN + timedelta(days=DAYS)
        while self.clock.now() < end:
            step = timedelta(minutes=self.rng.randint(1, 480), seconds=self.rng.choice([0, 0, 17]))
            self.clock.advance(min(step, end - self.clock.now()))
            if self.rng.random() < 0.2:
                self.apps[0].enqueue("order.ship", {}, org_id=ORG)
            for number in self.rng.sample(range(DISPATCHERS), self.rng.randint(1, 3)):
                self.look(number)
        for number in range(DISPATCHERS):
            self.look(number, mortal=False)

    def look(self, number: int, *, mortal: bool = True) -> None:
        """One pass of one dispatcher, which may be killed at any of its writes and start again."""
        hf = self.apps[number]
        inner = hf.store
        if mortal and self.rng.random() < 0.12:
            faulty = FaultyStore(inner)
            # A pass that fires something writes once or twice.
            writes = self.rng.randint(0, 1)
            if self.rng.random() < 0.5:
                faulty.die_before_commit(after_writes=writes)
            else:
                faulty.die_after_commit(after_writes=writes)
            hf.use_store(faulty)
        try:
            dispatcher = Dispatcher(hf)
            while dispatcher.run_once().more:
                pass
        except Died:
            self.deaths += 1
            inner.close()
            self.apps[number] = self._start()
        else:
            hf.use_store(inner)

    def close(self) -> None:
        for hf in self.apps:
            hf.close()


@pytest.fixture(autouse=True)
def minutes_are_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The minutes of a zone are the same for all its expressions."""
    listed = lru_cache(maxsize=1)(lambda *given: list(every_minute(*given)))
    monkeypatch.setattr(test_cron, "every_minute", listed)


@pytest.fixture
def world(url: str) -> Iterator[World]:
    made = World(url, seed=7)
    yield made
    made.close()


@pytest.mark.timeout(300)
@pytest.mark.req("B-11", "B-16", "Q-20")
def test_ten_dispatchers_fire_each_tick_of_a_month_once_although_some_of_them_die(
    world: World,
) -> None:
    world.live()
    store = world.apps[0].store
    found = ticks(store)
    end = BEGIN + timedelta(days=DAYS)

    # Each tick of each zone, and no other: compared with every minute of the month.
    assert world.deaths >= 10
    for zone, number, cron in SCHEDULES:
        rows = found[name_of(zone, number)]
        fired = [read_instant(row["fire_at"]) for row in rows]
        assert fired == by_looking(cron, zone, BEGIN, DAYS), (zone, cron)
        assert {row["outcome"] for row in rows} == {"enqueued"}

    # The clock changes themselves.
    assert local(found[name_of("America/New_York", 0)], "America/New_York", "03-08") == [
        "03:00 -0400"
    ]
    assert local(found[name_of("Europe/Berlin", 3)], "Europe/Berlin", "03-29") == ["03:00 +0200"]
    assert local(found[name_of("Australia/Sydney", 0)], "Australia/Sydney", "04-05") == [
        "02:30 +1100"
    ]
    assert local(found[name_of("America/Santiago", 2)], "America/Santiago", "04-04") == [
        "23:30 -0300"
    ]
    assert local(found[name_of("Australia/Lord_Howe", 1)], "Australia/Lord_Howe", "04-05") == [
        "01:45 +1100"
    ]

    # One job per tick, with the time of the tick, and no other job.
    jobs = look(
        store, "SELECT id, scheduled_for, queue FROM holdfast.job WHERE job_type = 'db.cleanup'"
    )
    enqueued = [row for rows in found.values() for row in rows if row["outcome"] == "enqueued"]
    assert {row["job_id"] for row in enqueued} == {job["id"] for job in jobs}
    assert len(enqueued) == len(jobs)
    whens = {job["id"]: job["scheduled_for"] for job in jobs}
    assert all(whens[row["job_id"]] == row["fire_at"] for row in enqueued)
    assert {job["queue"] for job in jobs} == {"q:maintenance"}

    # The ticks that the other policies left out are counted.
    for name in ("often-one", "often-skip"):
        assert sum(row["ticks"] for row in found[name]) == DAYS * 72
        assert {row["outcome"] for row in found[name]} == {"enqueued", "missed"}

    check_runs(world, found["sweeping"], end)


def check_runs(world: World, rows: list[Row], end: datetime) -> None:
    """The tick table and the log of runs agree."""
    store = world.apps[0].store
    fired = [read_instant(row["fire_at"]) for row in rows]
    assert fired == [BEGIN + n * timedelta(hours=4) for n in range(1, DAYS * 6 + 1)]
    assert fired[-1] == end

    outcomes = Counter(row["outcome"] for row in rows)
    assert set(outcomes) <= {"ran", "skipped", "missed", "taken"}
    assert outcomes["ran"] > 20
    assert outcomes["skipped"] > 20
    # A tick whose dispatcher was killed after taking the tick and before its run is not repeated.
    # Maintenance marks it as missed; only the newest may still be open.
    assert outcomes["missed"] <= world.deaths
    assert outcomes["taken"] <= 1
    assert all(
        "before the run started" in row["detail"] for row in rows if row["outcome"] == "missed"
    )

    ledger = {row["run_id"]: row for row in look(store, "SELECT * FROM holdfast.worker_run")}
    by_tick = Counter(row["tick"] for row in ledger.values())
    assert set(by_tick.values()) == {1}
    for row in rows:
        if row["outcome"] in ("missed", "taken"):
            assert row["fire_at"] not in by_tick or row["outcome"] == "taken"
            continue
        run = ledger[row["run_id"]]
        assert run["tick"] == row["fire_at"]
        assert (run["outcome"] == "skipped") == (row["outcome"] == "skipped")
    assert set(by_tick) <= {row["fire_at"] for row in rows}


class Together(Dispatcher):
    """A dispatcher that finds a due schedule and then waits for all the other dispatchers."""

    def __init__(self, app: Any, ready: threading.Barrier) -> None:
        super().__init__(app)
        self.ready = ready

    def _enqueue_due(self, targets: Any) -> PassCounts:
        self.ready.wait()
        return super()._enqueue_due(targets)


@pytest.mark.timeout(180)
def test_ten_threads_that_find_the_same_ticks_due_at_the_same_instant_fire_each_once(
    postgres_url: str,
) -> None:
    clock = FakeClock(BEGIN)
    instants = 6
    ready = threading.Barrier(DISPATCHERS)
    synced, begin, done = (threading.Barrier(DISPATCHERS + 1) for _ in range(3))
    apps = []
    for _ in range(DISPATCHERS):
        hf = make_holdfast(postgres_url, clock, runs=RUNS)
        hf.use_store(open_store(postgres_url, clock=clock))
        hf.job("db.cleanup", category="maintenance")(lambda job, payload: payload)
        hf.job("order.ship")(lambda job, payload: payload)
        for number in range(7):
            hf.schedule(f"hourly-{number}", every="1h", job_type="db.cleanup", org_id=ORG)
        hf.schedule("sweeping", every="1h", run="sweep")
        apps.append(hf)
    problems: list[BaseException] = []
    fired: Counter[int] = Counter()

    def live(number: int) -> None:
        try:
            sync_schedules(apps[number])
            synced.wait()
            for _ in range(instants):
                begin.wait()
                dispatcher = Together(apps[number], ready)
                fired[number] += dispatcher.run_once()["enqueued"]
                done.wait()
        except BaseException as exc:
            problems.append(exc)
            for barrier in (ready, synced, begin, done):
                barrier.abort()

    threads = [threading.Thread(target=live, args=(number,)) for number in range(DISPATCHERS)]
    for thread in threads:
        thread.start()
    try:
        # A schedule that is declared later has missed an instant.
        synced.wait(60)
        for _ in range(instants):
            clock.advance(hours=1)
            begin.wait(60)
            done.wait(60)
    except threading.BrokenBarrierError as exc:
        # A broken barrier fails in every thread that waits for it: the first problem is the cause.
        problems.append(exc)
    finally:
        for thread in threads:
            thread.join(60)
        for hf in apps[1:]:
            hf.close()
    if problems:
        raise problems[0]

    found = ticks(apps[0].store)
    expected = [BEGIN + n * timedelta(hours=1) for n in range(1, instants + 1)]
    for name, rows in found.items():
        assert [read_instant(row["fire_at"]) for row in rows] == expected, name
    assert {row["outcome"] for row in found.pop("sweeping")} == {"skipped"}
    jobs = look(apps[0].store, "SELECT id FROM holdfast.job")
    assert len(found) == 7
    assert len(jobs) == 7 * instants
    assert {row["job_id"] for rows in found.values() for row in rows} == {job["id"] for job in jobs}
    assert sum(fired.values()) == len(jobs)
    apps[0].close()
