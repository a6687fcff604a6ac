"""Each tick creates exactly one job or run, with concurrent dispatchers and crashes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Actor, FakeClock, Holdfast, Settings
from holdfast.clock import read_instant
from holdfast.config import RunSettings
from holdfast.cron import Timetable
from holdfast.engine.audit import PLATFORM_ORG
from holdfast.engine.pass_counts import PassCounts
from holdfast.engine.schedule import dispatcher as dispatching
from holdfast.engine.schedule import misfire, rows
from holdfast.engine.schedule.dispatcher import Dispatcher, dispatch_once
from holdfast.engine.schedule.rows import sync_schedules
from holdfast.engine.schedule.schedule import MisfirePolicy, Schedule
from holdfast.engine.worker.worker import run_maintenance
from holdfast.errors import RuleBroken
from holdfast.event import Event, JobEnqueued, ScheduleFired, ScheduleSkipped
from holdfast.store import Row, Store, Tx
from tests.acceptance.processes import wait_until
from tests.engine.faulty import Died, FaultyStore
from tests.story import ORG, OTHER_ORG, PROJECT, by_hand, look, make_holdfast, timeline

ADA = Actor.read("user:ada")
# The fake clock begins on Monday, 5 January 2026, at 9 in the morning.
START = datetime(2026, 1, 5, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)
RUNS = {"sweep": RunSettings(queues=("q:default",), max_jobs_per_run=10)}


@pytest.fixture
def hf(url: str, clock: FakeClock) -> Iterator[Holdfast]:
    made = application(url, clock)
    yield made
    made.close()


def application(url: str, clock: FakeClock, *, knows: bool = True) -> Holdfast:
    hf = make_holdfast(url, clock, runs=RUNS if knows else {})
    if knows:
        hf.job("db.cleanup", category="maintenance")(lambda job, payload: payload)
        hf.job("mail.digest", category="notification")(lambda job, payload: payload)
    hf.job("order.ship")(lambda job, payload: payload)
    return hf


def hourly(hf: Holdfast, name: str = "hourly", **more: Any) -> None:
    options = {"every": "1h", "job_type": "db.cleanup", "org_id": ORG, **more}
    hf.schedule(name, **options)  # type: ignore[arg-type]
    sync_schedules(hf)


def ticks(store: Store, name: str = "hourly") -> list[Row]:
    return list(reversed(rows.list_ticks(store, name, limit=10_000)))


def outcomes(store: Store, name: str = "hourly") -> list[tuple[str, int]]:
    return [(row["outcome"], row["ticks"]) for row in ticks(store, name)]


def jobs(store: Store) -> list[Row]:
    return look(store, "SELECT * FROM holdfast.job ORDER BY scheduled_for, id")


def heard(hf: Holdfast) -> list[Event]:
    found: list[Event] = []
    hf.events.subscribe(found.append)
    return found


# -- the result of a tick


@pytest.mark.req("T-02", "Q-20")
def test_a_tick_becomes_one_job_with_the_ticks_own_time_on_the_maintenance_queue(
    hf: Holdfast, clock: FakeClock
) -> None:
    hourly(hf, payload={"days": 30}, project_id=PROJECT)
    assert dispatch_once(hf) == PassCounts()

    clock.advance(hours=1)
    assert dispatch_once(hf) == PassCounts.counting(enqueued=1)
    assert dispatch_once(hf) == PassCounts()

    (row,) = jobs(hf.store)
    job = hf.get(row["id"], org_id=ORG)
    assert job.record["scheduled_for"] == START + HOUR
    assert row["queue"] == "q:maintenance"
    assert job.payload == {"days": 30}
    assert row["project_id"] == PROJECT
    assert (row["actor_type"], row["actor_id"]) == ("system", "schedule:hourly")
    assert row["request_id"] == "schedule:hourly:2026-01-05T10:00:00.000Z"
    (tick,) = ticks(hf.store)
    assert (tick["outcome"], tick["job_id"]) == ("enqueued", row["id"])
    assert timeline(hf, job) == ["job.enqueued"]

    hf.worker().run_once()
    assert hf.get(row["id"], org_id=ORG).state == "completed"


@pytest.mark.req("T-01")
def test_a_scheduled_notification_waits_on_maintenance_and_is_sent_from_its_own_queue(
    hf: Holdfast, clock: FakeClock
) -> None:
    hourly(hf, job_type="mail.digest")
    clock.advance(hours=1)
    dispatch_once(hf)

    (row,) = jobs(hf.store)
    assert (row["queue"], row["origin_queue"]) == ("q:maintenance", "q:notifications")


def test_the_key_of_a_ticks_job_is_the_schedule_and_the_tick(
    hf: Holdfast, clock: FakeClock
) -> None:
    hourly(hf)
    clock.advance(hours=1)
    dispatch_once(hf)
    (row,) = jobs(hf.store)

    tick = "schedule:hourly:2026-01-05T10:00:00.000Z"
    again = hf.enqueue("db.cleanup", {}, org_id=ORG, idempotency_key=tick)

    assert (again.id, again.created) == (row["id"], False)


def test_subscribers_get_the_tick_and_its_job(hf: Holdfast, clock: FakeClock) -> None:
    hourly(hf)
    told = heard(hf)
    clock.advance(hours=1)
    dispatch_once(hf)

    fired, enqueued = told
    assert isinstance(fired, ScheduleFired)
    assert (fired.schedule, fired.fire_at, fired.target) == (
        "hourly",
        START + HOUR,
        "job db.cleanup",
    )
    assert isinstance(enqueued, JobEnqueued)
    assert enqueued.about.job_id == fired.job_id
    assert enqueued.queue == "q:maintenance"


# -- catching up


@pytest.mark.parametrize(
    ("policy", "late", "fired", "missed"),
    [
        ("skip", timedelta(seconds=30), 1, 3),
        ("skip", timedelta(seconds=60), 1, 3),
        ("skip", timedelta(seconds=61), 0, 4),
        ("one", timedelta(minutes=59), 1, 3),
        ("all", timedelta(minutes=59), 4, 0),
    ],
)
def test_the_policy_decides_about_what_was_missed(
    hf: Holdfast, clock: FakeClock, policy: str, late: timedelta, fired: int, missed: int
) -> None:
    hourly(hf, catch_up=policy)
    clock.advance(4 * HOUR + late)

    assert dispatch_once(hf) == PassCounts.counting(enqueued=fired, missed=missed)
    assert dispatch_once(hf) == PassCounts()

    found = outcomes(hf.store)
    expected = [("missed", missed)] if missed else []
    assert found == expected + [("enqueued", 1)] * fired
    whens = [hf.get(row["id"], org_id=ORG).record["scheduled_for"] for row in jobs(hf.store)]
    assert whens == [START + n * HOUR for n in range(1, 5)][missed:]
    if missed:
        row = ticks(hf.store)[0]
        until = START + missed * HOUR
        assert row["detail"] == f"not fired up to {until:%Y-%m-%dT%H:%M:%S}.000Z"


def test_missed_ticks_are_one_event_with_their_number(hf: Holdfast, clock: FakeClock) -> None:
    hourly(hf, catch_up="skip")
    told = heard(hf)
    clock.advance(3 * HOUR + timedelta(minutes=5))
    dispatch_once(hf)

    (event,) = told
    assert isinstance(event, ScheduleSkipped)
    assert (event.outcome, event.ticks, event.fire_at) == ("missed", 3, START + HOUR)


# With skip, the two that are not older than a minute are on time.
@pytest.mark.parametrize(("policy", "fired"), [("skip", 2), ("one", 1), ("all", 2_500)])
def test_a_long_absence_is_caught_up_in_bounded_passes(
    hf: Holdfast, clock: FakeClock, policy: str, fired: int
) -> None:
    hourly(hf, every="1m", catch_up=policy)
    clock.advance(minutes=2_500)

    passes = []
    while not passes or passes[-1].more:
        passes.append(dispatch_once(hf))

    total = sum(passes, PassCounts())
    assert len(passes) == 3
    assert max(done["enqueued"] for done in passes) <= 1_000
    assert (total["enqueued"], total["missed"]) == (fired, 2_500 - fired)
    assert len(jobs(hf.store)) == fired
    assert sum(row["ticks"] for row in ticks(hf.store)) == 2_500


def test_a_schedule_with_a_long_backlog_does_not_keep_the_others_waiting(
    hf: Holdfast, clock: FakeClock
) -> None:
    hourly(hf, "busy", every="10s", catch_up="all")
    clock.advance(hours=5)
    hourly(hf, "calm", every="1h", catch_up="all")
    clock.advance(hours=1)

    done = dispatch_once(hf)

    assert done.more
    assert [row["outcome"] for row in ticks(hf.store, "calm")] == ["enqueued"]
    assert len(ticks(hf.store, "busy")) == 500


@pytest.mark.req("T-03")
def test_the_stores_clock_decides_and_nothing_fires_early(hf: Holdfast, clock: FakeClock) -> None:
    hourly(hf)
    clock.advance(HOUR - timedelta(milliseconds=1))
    assert dispatch_once(hf) == PassCounts()
    clock.advance(milliseconds=1)
    assert dispatch_once(hf) == PassCounts.counting(enqueued=1)


def plan(policy: MisfirePolicy, **more: Any) -> misfire.Due:
    schedule = Schedule("x", Timetable(None, 3_600_000), policy, ORG, None, "db.cleanup")
    given = {"ticked_to": START, "now": START + 5 * HOUR, **more}
    return misfire.decide(schedule, **given)


@pytest.mark.parametrize("policy", MisfirePolicy)
def test_of_ticks_that_follow_closely_only_those_that_are_due_fire(policy: MisfirePolicy) -> None:
    """A clock difference is tolerated for late ticks, never for early ones."""
    seconds = timedelta(seconds=20)
    schedule = Schedule("x", Timetable(None, 20_000), policy, ORG, None, "db.cleanup")

    due = misfire.decide(schedule, ticked_to=START, now=START + seconds)

    assert (due.fires, due.next_fire_at) == ((START + seconds,), START + 2 * seconds)


def test_a_tick_that_was_held_fires_even_under_skip() -> None:
    due = plan(
        MisfirePolicy.SKIP, held_at=START + HOUR, now=START + 5 * HOUR + timedelta(minutes=2)
    )

    assert due.fires == (START + HOUR,)
    assert due.missed == tuple(START + n * HOUR for n in range(2, 6))


def test_a_cut_leaves_the_rest_due() -> None:
    due = plan(MisfirePolicy.ALL, limit=2)

    assert due.fires == (START + HOUR, START + 2 * HOUR)
    assert (due.ticked_to, due.next_fire_at) == (START + 2 * HOUR, START + 3 * HOUR)


def test_a_zone_whose_rules_changed_fires_nothing_that_is_no_tick_any_more(
    hf: Holdfast, clock: FakeClock
) -> None:
    hourly(hf, "nightly", every=None, cron="0 3 * * *", zone="Europe/Berlin")
    # As if the tick had been computed with rules that are an hour off.
    by_hand(hf.store, "UPDATE holdfast.schedule SET next_fire_at = '2026-01-06T01:00:00.000Z'")

    clock.advance(hours=16)
    assert dispatch_once(hf) == PassCounts()
    assert rows.find_schedule(hf.store, "nightly").next_fire_at == datetime(
        2026, 1, 6, 2, tzinfo=UTC
    )
    clock.advance(hours=1)
    assert dispatch_once(hf)["enqueued"] == 1

    # And an hour off in the other direction: late, but not lost.
    by_hand(hf.store, "UPDATE holdfast.schedule SET next_fire_at = '2026-01-07T03:00:00.000Z'")
    clock.advance(hours=25)
    assert dispatch_once(hf)["enqueued"] == 1
    fired = [row["fire_at"] for row in ticks(hf.store, "nightly")]
    assert len(fired) == 2
    assert str(fired[1])[:13].replace("T", " ") == "2026-01-07 02"


# -- once, with several dispatchers


@pytest.mark.both_databases
def test_two_who_look_at_the_same_instant_fire_once(url: str, clock: FakeClock) -> None:
    """Both have found the schedule due before either writes."""
    ready = threading.Barrier(2)
    first, second = application(url, clock), application(url, clock)
    hourly(first)
    clock.advance(hours=1)
    done: list[PassCounts] = []

    def look_and_go(hf: Holdfast) -> None:
        ready.wait()
        done.append(dispatch_once(hf))

    threads = [threading.Thread(target=look_and_go, args=(hf,)) for hf in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(found["enqueued"] for found in done) == [0, 1]
    assert len(jobs(first.store)) == 1
    first.close()
    second.close()


@pytest.mark.both_databases
def test_a_dispatcher_that_freezes_in_the_middle_holds_up_only_what_it_has_taken(
    postgres_url: str, clock: FakeClock
) -> None:
    frozen, other = application(postgres_url, clock), application(postgres_url, clock)
    hourly(frozen, "taken")
    hourly(frozen, "free")
    clock.advance(hours=1)
    inside, go_on = threading.Event(), threading.Event()

    def freeze(tx: Tx) -> None:
        Dispatcher(frozen)._write_jobs(tx, name="taken")
        inside.set()
        go_on.wait(30)

    found: list[PassCounts] = []
    freezing = threading.Thread(target=lambda: frozen.store.write(freeze))
    looking = threading.Thread(target=lambda: found.append(dispatch_once(other)))
    freezing.start()
    assert inside.wait(10)
    looking.start()
    looking.join(10)
    in_time = list(found)
    go_on.set()
    freezing.join()
    looking.join()

    assert in_time == [PassCounts.counting(enqueued=1)]
    assert outcomes(other.store, "free") == [("enqueued", 1)]
    assert outcomes(other.store, "taken") == [("enqueued", 1)]
    frozen.close()
    other.close()


@pytest.mark.both_databases
def test_the_key_decides_even_if_a_schedule_is_found_due_again(
    hf: Holdfast, clock: FakeClock
) -> None:
    hourly(hf, catch_up="all")
    clock.advance(hours=1)
    dispatch_once(hf)
    # A careless restore of one table: the schedule has its position of an hour ago.
    by_hand(hf.store, "DELETE FROM holdfast.schedule")
    rows.add_schedule(hf, hf.schedules.by_name["hourly"], actor=ADA)
    by_hand(hf.store, "DROP TRIGGER " + trigger_of(hf.store, "schedule_never_ticks_back"))
    by_hand(
        hf.store,
        "UPDATE holdfast.schedule SET ticked_to = '2026-01-05T09:00:00.000Z',"
        " next_fire_at = '2026-01-05T10:00:00.000Z'",
    )

    assert dispatch_once(hf) == PassCounts()
    assert outcomes(hf.store) == [("enqueued", 1)]
    assert len(jobs(hf.store)) == 1
    assert rows.find_schedule(hf.store, "hourly").next_fire_at == START + 2 * HOUR


def trigger_of(store: Store, name: str) -> str:
    return name if store.dialect.name == "sqlite" else f"{name} ON holdfast.schedule"


@pytest.mark.both_databases
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_dispatcher_that_dies_leaves_the_tick_with_its_job_or_neither(
    hf: Holdfast, clock: FakeClock, when: str
) -> None:
    hourly(hf)
    clock.advance(hours=1)
    inner = hf.store
    faulty = FaultyStore(inner)
    hf.use_store(faulty.die_before_commit() if when == "before" else faulty.die_after_commit())
    with pytest.raises(Died):
        dispatch_once(hf)
    hf.use_store(inner)

    there = int(when == "after")
    assert len(ticks(inner)) == len(jobs(inner)) == there
    assert dispatch_once(hf)["enqueued"] == 1 - there
    assert outcomes(inner) == [("enqueued", 1)]
    assert len(jobs(inner)) == 1


def test_any_number_of_schedules_takes_the_same_number_of_statements(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    ready = Tx._ready

    def counted(self: Tx, statement: Any, params: Any) -> Any:
        ran.append(statement.name)
        return ready(self, statement, params)

    counts = []
    for many in (1, 60):
        for number in range(many):
            options = {"job_type": ("db.cleanup", "mail.digest")[number % 2]}
            hf.schedule(f"s{many}-{number}", every="1h", org_id=ORG, **options)  # type: ignore[arg-type]
        sync_schedules(hf)
        clock.advance(hours=1)
        with monkeypatch.context() as patch:
            patch.setattr(Tx, "_ready", counted)
            ran.clear()
            dispatch_once(hf)
        counts.append(list(ran))

    assert len(jobs(hf.store)) == 1 + 61
    assert counts[0] == counts[1]


# -- schedules that cannot fire


def test_a_job_type_that_is_not_known_here_is_held_reported_and_fired_by_who_knows_it(
    hf: Holdfast, url: str, clock: FakeClock
) -> None:
    hourly(hf, catch_up="skip")
    stranger = application(url, clock, knows=False)
    told = heard(stranger)
    clock.advance(hours=1, seconds=59)

    # A process that declares the schedule may start soon.
    assert dispatch_once(stranger) == PassCounts()
    clock.advance(seconds=1)
    assert dispatch_once(stranger) == PassCounts.counting(held=1)
    assert dispatch_once(stranger) == PassCounts()
    (event,) = told
    assert isinstance(event, ScheduleSkipped)
    assert event.line == (
        "hourly held: job type db.cleanup is not known to the dispatcher that found it due"
    )
    entry = rows.find_schedule(hf.store, "hourly")
    assert entry.last_outcome == "held"
    assert jobs(hf.store) == []

    # Ten minutes later it is no longer on time, but it was not abandoned either.
    clock.advance(minutes=10)
    assert dispatch_once(hf) == PassCounts.counting(enqueued=1)
    assert outcomes(hf.store) == [("enqueued", 1)]
    stranger.close()


def test_a_tick_that_waits_goes_with_the_rhythm_it_is_of(
    hf: Holdfast, url: str, clock: FakeClock
) -> None:
    hourly(hf)
    stranger = application(url, clock, knows=False)
    clock.advance(hours=1, minutes=1)
    dispatch_once(stranger)

    rows.set_schedule(hf, "hourly", {"catch_up": "all"}, actor=ADA)
    assert outcomes(hf.store) == [("held", 1)]
    rows.set_schedule(hf, "hourly", {"every": "2h"}, actor=ADA)
    assert outcomes(hf.store) == [("missed", 1)]
    stranger.close()


def test_a_job_that_can_no_longer_be_enqueued_is_held_and_blocks_no_other(
    hf: Holdfast, clock: FakeClock
) -> None:
    hourly(hf, "bad", payload={"text": "x" * 2_000})
    hourly(hf, "good")
    hourly(hf, "lost", every=None, cron="0 * * * *", zone="Europe/Berlin")
    small = application(hf.settings.db, clock)
    object.__setattr__(small.settings, "payload_limit_bytes", 1_024)
    by_hand(hf.store, "UPDATE holdfast.schedule SET zone = 'Mars/Olympus' WHERE name = 'lost'")
    clock.advance(hours=1)

    assert dispatch_once(small) == PassCounts.counting(enqueued=1, held=2)
    (bad,) = ticks(hf.store, "bad")
    assert bad["outcome"] == "held"
    assert "the limit is 1024" in bad["detail"]
    (lost,) = ticks(hf.store, "lost")
    assert "Mars/Olympus" in lost["detail"]

    assert dispatch_once(hf) == PassCounts.counting(enqueued=1)
    assert outcomes(hf.store, "bad") == [("enqueued", 1)]
    small.close()


def test_however_many_cannot_be_fired_here_they_do_not_hide_those_that_can(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatching, "SCHEDULE_LIMIT", 2)
    for name in ("a", "b", "c"):
        hourly(hf, name, every=None, cron="1 * * * *", zone="Europe/Berlin")
    hourly(hf, "good")
    by_hand(hf.store, "UPDATE holdfast.schedule SET zone = 'Mars/Olympus' WHERE name <> 'good'")
    clock.advance(hours=1)

    total = sum((dispatch_once(hf) for _ in range(3)), PassCounts())

    assert (total["enqueued"], total["held"]) == (1, 3)
    assert not dispatch_once(hf).more


def test_however_many_of_one_tenant_have_no_room_the_others_fire(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatching, "SCHEDULE_LIMIT", 2)
    for name in ("a", "b", "c"):
        hourly(hf, name)
    hourly(hf, "roomy", org_id=OTHER_ORG)
    by_hand(
        hf.store, "UPDATE holdfast.queue SET max_depth_per_tenant = 1 WHERE name = 'q:maintenance'"
    )
    hf.enqueue("db.cleanup", {}, org_id=ORG)
    clock.advance(hours=1)

    total = sum((dispatch_once(hf) for _ in range(3)), PassCounts())

    assert (total["enqueued"], total["held"]) == (1, 3)
    assert outcomes(hf.store, "roomy") == [("enqueued", 1)]


def test_a_tenant_at_its_limit_waits_and_blocks_no_other(hf: Holdfast, clock: FakeClock) -> None:
    hourly(hf, "crowded", org_id=ORG)
    hourly(hf, "roomy", org_id=OTHER_ORG)
    by_hand(
        hf.store, "UPDATE holdfast.queue SET max_depth_per_tenant = 1 WHERE name = 'q:maintenance'"
    )
    blocker = hf.enqueue("db.cleanup", {}, org_id=ORG)
    clock.advance(hours=1)

    assert dispatch_once(hf) == PassCounts.counting(enqueued=1, held=1)
    assert outcomes(hf.store, "roomy") == [("enqueued", 1)]
    assert outcomes(hf.store, "crowded") == [("held", 1)]

    hf.cancel(blocker.id, org_id=ORG)
    assert dispatch_once(hf) == PassCounts.counting(enqueued=1)
    assert outcomes(hf.store, "crowded") == [("enqueued", 1)]


# -- runs


def every_15_minutes(hf: Holdfast, **more: Any) -> None:
    hf.schedule("sweeping", every="15m", run="sweep", **more)
    sync_schedules(hf)


def ledger(store: Store) -> list[Row]:
    return look(store, "SELECT * FROM holdfast.worker_run ORDER BY started_at, tick")


@pytest.mark.req("B-15", "B-16", "B-17")
def test_a_run_without_pending_work_is_skipped_and_leaves_the_same_line_every_time(
    hf: Holdfast, clock: FakeClock
) -> None:
    every_15_minutes(hf)
    told = heard(hf)

    for _ in range(2):
        clock.advance(minutes=15)
        assert dispatch_once(hf) == PassCounts.counting(skipped=1)

    lines = [event.line for event in told if isinstance(event, ScheduleSkipped)]
    assert lines == ["sweep skipped: no pending items"] * 2
    assert outcomes(hf.store, "sweeping") == [("skipped", 1)] * 2
    runs = ledger(hf.store)
    assert [row["outcome"] for row in runs] == ["skipped"] * 2
    assert [row["run_id"] for row in ticks(hf.store, "sweeping")] == [row["run_id"] for row in runs]


@pytest.mark.req("B-11", "B-15")
def test_a_run_with_pending_work_is_performed_at_its_tick(hf: Holdfast, clock: FakeClock) -> None:
    every_15_minutes(hf)
    job = hf.enqueue("order.ship", {}, org_id=ORG)
    told = heard(hf)
    clock.advance(minutes=15)

    assert dispatch_once(hf) == PassCounts.counting(ran=1)
    assert dispatch_once(hf) == PassCounts()

    assert hf.get(job.id, org_id=ORG).state == "completed"
    (run,) = ledger(hf.store)
    (tick,) = ticks(hf.store, "sweeping")
    assert (run["outcome"], run["trigger_kind"], run["actor_id"]) == (
        "done",
        "schedule",
        "schedule:sweeping",
    )
    assert (tick["outcome"], tick["run_id"], tick["org_id"]) == ("ran", run["run_id"], PLATFORM_ORG)
    (fired,) = (event for event in told if isinstance(event, ScheduleFired))
    assert (fired.target, fired.run_id) == ("run sweep", run["run_id"])


def test_missed_runs_are_caught_up_one_after_the_other(hf: Holdfast, clock: FakeClock) -> None:
    every_15_minutes(hf, catch_up="all")
    hf.enqueue("order.ship", {}, org_id=ORG)
    clock.advance(minutes=46)

    assert dispatch_once(hf) == PassCounts.counting(ran=1, skipped=2)
    assert outcomes(hf.store, "sweeping") == [("ran", 1), ("skipped", 1), ("skipped", 1)]


def test_the_newest_of_missed_runs_is_enough_by_default(hf: Holdfast, clock: FakeClock) -> None:
    every_15_minutes(hf)
    hf.enqueue("order.ship", {}, org_id=ORG)
    clock.advance(minutes=46)

    assert dispatch_once(hf) == PassCounts.counting(ran=1, missed=2)
    assert outcomes(hf.store, "sweeping") == [("missed", 2), ("ran", 1)]


def test_a_run_that_dies_is_not_repeated_and_stays_visible_as_unfinished(
    hf: Holdfast, clock: FakeClock
) -> None:
    every_15_minutes(hf)
    job = hf.enqueue("order.ship", {}, org_id=ORG)

    @hf.job("order.break")
    def die(job: object, payload: object) -> None:
        raise Died

    hf.enqueue("order.break", {}, org_id=ORG)
    clock.advance(minutes=15)
    inner = hf.store
    with pytest.raises(Died):
        dispatch_once(hf)
    hf.use_store(inner)

    assert outcomes(inner, "sweeping") == [("taken", 1)]
    assert dispatch_once(hf) == PassCounts()
    assert len(ledger(inner)) == 1
    # A rescue releases its jobs, and the next tick finds them.
    assert hf.get(job.id, org_id=ORG).state == "completed"
    # Its tick is closed by the run in the run log.
    clock.advance(hours=1)
    run_maintenance(inner, hf.settings, hf.events)
    ended = look(inner, "SELECT outcome, detail, run_id FROM holdfast.schedule_tick")
    assert ended == [{"outcome": "ran", "detail": "failed", "run_id": ledger(inner)[0]["run_id"]}]


@pytest.mark.both_databases
def test_a_dispatcher_that_dies_before_the_run_begins_leaves_a_tick_that_says_so(
    hf: Holdfast, clock: FakeClock
) -> None:
    told: list[Event] = []
    hf.events.subscribe(told.append)
    every_15_minutes(hf)
    hf.enqueue("order.ship", {}, org_id=ORG)
    clock.advance(minutes=15)
    inner = hf.store
    # The first write finds no job to enqueue, the second one takes the tick of the run.
    hf.use_store(FaultyStore(inner).die_after_commit(after_writes=1))
    with pytest.raises(Died):
        dispatch_once(hf)
    hf.use_store(inner)

    assert outcomes(inner, "sweeping") == [("taken", 1)]
    assert ledger(inner) == []
    assert dispatch_once(hf) == PassCounts()
    # The process that took it may be about to begin.
    clock.advance(minutes=9)
    run_maintenance(inner, hf.settings, hf.events)
    assert outcomes(inner, "sweeping") == [("taken", 1)]
    clock.advance(minutes=6)
    assert dispatch_once(hf) == PassCounts.counting(ran=1)
    assert outcomes(inner, "sweeping") == [("missed", 1), ("ran", 1)]
    (skipped,) = [event for event in told if isinstance(event, ScheduleSkipped)]
    assert "before the run started" in skipped.reason


def test_a_run_that_is_not_known_here_is_held_for_who_knows_it(
    hf: Holdfast, url: str, clock: FakeClock
) -> None:
    every_15_minutes(hf)
    hf.enqueue("order.ship", {}, org_id=ORG)
    stranger = application(url, clock, knows=False)
    clock.advance(minutes=16)

    assert dispatch_once(stranger) == PassCounts.counting(held=1)
    assert dispatch_once(hf) == PassCounts.counting(ran=1)
    assert outcomes(hf.store, "sweeping") == [("ran", 1)]
    stranger.close()


def test_a_run_that_cannot_be_performed_here_is_held_with_the_reason(
    hf: Holdfast, url: str, clock: FakeClock
) -> None:
    wider = RunSettings(queues=("q:default", "q:reports"), max_jobs_per_run=10)
    poor = make_holdfast(url, clock, runs={"sweep": wider})
    told = heard(poor)
    every_15_minutes(hf)
    hf.enqueue("order.ship", {}, org_id=ORG)
    clock.advance(minutes=16)

    assert dispatch_once(poor) == PassCounts.counting(held=1)
    (event,) = told
    assert isinstance(event, ScheduleSkipped)
    assert "run sweep cannot be performed here" in event.line
    assert "q:reports" in event.line
    assert ledger(hf.store) == []

    # It waits for a process that has the job type, or until the queue is declared.
    assert dispatch_once(hf) == PassCounts.counting(ran=1)
    poor.close()


def test_a_schedule_of_runs_alone_is_pruned_as_well(hf: Holdfast, clock: FakeClock) -> None:
    every_15_minutes(hf)
    for _ in range(3):
        clock.advance(days=40)
        dispatch_once(hf)
        run_maintenance(hf.store, hf.settings, hf.events)

    assert {row["outcome"] for row in ticks(hf.store, "sweeping")} == {"missed", "skipped"}
    oldest = min(row["recorded_at"] for row in ticks(hf.store, "sweeping"))
    assert read_instant(oldest) >= clock.now() - timedelta(days=90)


def test_a_run_in_a_zone_that_is_not_known_here_does_not_hide_the_others(
    hf: Holdfast, clock: FakeClock
) -> None:
    hf.schedule("first", cron="1 * * * *", zone="Europe/Berlin", run="sweep")
    hf.schedule("second", cron="2 * * * *", run="sweep")
    sync_schedules(hf)
    by_hand(hf.store, "UPDATE holdfast.schedule SET zone = 'Mars/Olympus' WHERE name = 'first'")
    clock.advance(minutes=5)

    assert dispatch_once(hf) == PassCounts.counting(skipped=1, held=1)
    assert outcomes(hf.store, "first") == [("held", 1)]
    assert outcomes(hf.store, "second") == [("skipped", 1)]


# -- the loop


def test_the_loop_dispatches_until_it_is_stopped(hf: Holdfast, clock: FakeClock) -> None:
    hourly(hf, every="10s", catch_up="all")
    dispatcher = Dispatcher(hf)

    def stop_in_time() -> None:
        if clock.now() >= START + timedelta(minutes=2):
            dispatcher.stop()

    clock.on_advance.append(stop_in_time)
    dispatcher.run()

    assert len(jobs(hf.store)) in (11, 12)


def test_the_loop_waits_out_a_database_that_is_away(hf: Holdfast, clock: FakeClock) -> None:
    hourly(hf, every="10s", catch_up="all")
    told = heard(hf)
    inner = hf.store
    hf.use_store(FaultyStore(inner).be_away(times=2))
    dispatcher = Dispatcher(hf)
    clock.on_advance.append(
        lambda: dispatcher.stop() if clock.now() >= START + timedelta(minutes=2) else None
    )
    dispatcher.run()
    hf.use_store(inner)

    assert [getattr(event, "change", "") for event in told].count("dispatch_failed") == 2
    assert len(jobs(inner)) in (11, 12)


def test_a_run_under_way_keeps_no_other_schedule_waiting(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatching, "EVERY_SECONDS", 0.1)
    began, may_end = threading.Event(), threading.Event()
    hf = Holdfast(settings=Settings(db=url, runs=RUNS))
    hf.job("db.cleanup", category="maintenance")(lambda job, payload: payload)

    @hf.job("order.ship")
    def ship(job: object, payload: object) -> None:
        began.set()
        assert may_end.wait(60)

    begin = datetime.now(UTC) + timedelta(seconds=0.5)
    hf.schedule("sweeping", every="1h", run="sweep", starts_at=begin)
    sync_schedules(hf)
    hf.enqueue("order.ship", {}, org_id=ORG)
    dispatcher = Dispatcher(hf)
    thread = threading.Thread(target=dispatcher.run)
    thread.start()
    try:
        assert began.wait(60)
        hourly(hf, starts_at=datetime.now(UTC) + timedelta(seconds=0.5))
        wait_until(lambda: outcomes(hf.store) == [("enqueued", 1)])
        assert outcomes(hf.store, "sweeping") == [("taken", 1)]
    finally:
        may_end.set()
        dispatcher.drain()
        thread.join(60)

    assert outcomes(hf.store, "sweeping") == [("ran", 1)]
    hf.close()


def test_a_defect_in_a_run_ends_the_loop_with_its_exception(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatching, "EVERY_SECONDS", 0.1)
    hf = Holdfast(settings=Settings(db=url, runs=RUNS))
    begin = datetime.now(UTC) + timedelta(seconds=0.3)
    hf.schedule("sweeping", every="1h", run="sweep", starts_at=begin)
    sync_schedules(hf)
    hf.job("order.ship")(lambda job, payload: payload)
    hf.enqueue("order.ship", {}, org_id=ORG)

    def stumble(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(dispatching, "BoundedRun", stumble)
    with pytest.raises(ZeroDivisionError):
        Dispatcher(hf).run()
    hf.close()


# -- database constraints


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("outcome = 'held', job_id = NULL", "schedule_tick_ended"),
        ("recorded_at = recorded_at", "schedule_tick_ended"),
    ],
)
def test_the_database_records_once_what_became_of_a_tick(
    hf: Holdfast, clock: FakeClock, change: str, rule: str
) -> None:
    hourly(hf)
    clock.advance(hours=1)
    dispatch_once(hf)

    with pytest.raises(RuleBroken) as caught:
        by_hand(hf.store, f"UPDATE holdfast.schedule_tick SET {change}")
    assert caught.value.rule == rule


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ("'x', 'nothing', 1, NULL, NULL", "schedule_tick_outcome_known"),
        ("'x', 'enqueued', 1, NULL, NULL", "schedule_tick_enqueued_iff_job"),
        (f"'x', 'missed', 1, '{ORG}', NULL", "schedule_tick_enqueued_iff_job"),
        ("'x', 'missed', 0, NULL, NULL", "schedule_tick_counted"),
        ("'x', 'held', 2, NULL, NULL", "schedule_tick_counted"),
        (f"'x', 'missed', 1, NULL, '{ORG}'", "schedule_tick_run_names_it"),
    ],
)
def test_the_database_refuses_a_tick_that_cannot_be(hf: Holdfast, values: str, rule: str) -> None:
    with pytest.raises(RuleBroken) as caught:
        by_hand(
            hf.store,
            "INSERT INTO holdfast.schedule_tick"
            " (schedule, outcome, ticks, job_id, run_id, org_id, fire_at, recorded_at)"
            f" VALUES ({values}, '{ORG}', '2026-01-05T09:00:00.000Z', '2026-01-05T09:00:00.000Z')",
        )
    assert caught.value.rule == rule


def test_old_ticks_are_pruned_and_those_that_wait_are_not(
    hf: Holdfast, url: str, clock: FakeClock
) -> None:
    hourly(hf, "daily", every="1d")
    hourly(hf, "waiting", every="1h")
    stranger = application(url, clock, knows=False)
    clock.advance(hours=16)
    dispatch_once(stranger)
    dispatched = look(hf.store, "SELECT count(*) AS held FROM holdfast.schedule_tick")
    assert dispatched[0]["held"] == 2
    rows.pause_schedule(hf.store, "waiting", actor=ADA, reason="so that it stays held")
    for _ in range(120):
        dispatch_once(hf)
        clock.advance(days=1)
    dispatch_once(hf)
    run_maintenance(hf.store, hf.settings, hf.events)

    assert 88 <= len(ticks(hf.store, "daily")) <= 92
    assert outcomes(hf.store, "waiting") == [("held", 1)]
    stranger.close()
