"""Schedules as rows: declarations are checked, follow the code, and yield to operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Actor, FakeClock, Holdfast, InvalidSchedule
from holdfast.config import RunSettings, ScheduleSettings
from holdfast.cron import Timetable
from holdfast.engine.audit import PLATFORM_ORG
from holdfast.engine.schedule import rows
from holdfast.engine.schedule.dispatcher import dispatch_once
from holdfast.engine.schedule.rows import sync_schedules
from holdfast.engine.schedule.schedule import (
    MisfirePolicy,
    Schedule,
    ScheduleOptions,
    make_schedule,
)
from holdfast.errors import ConfigError, Conflict, RuleBroken, ScheduleNotFound
from holdfast.store import Row, Store
from tests.story import ORG, OTHER_ORG, PROJECT, by_hand, look, make_holdfast

ADA = Actor.read("user:ada")
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


@pytest.fixture
def hf(url: str, clock: FakeClock) -> Any:
    made = with_jobs(make_holdfast(url, clock))
    yield made
    made.close()


def with_jobs(hf: Holdfast) -> Holdfast:
    hf.job("db.cleanup", category="maintenance")(lambda job, payload: payload)
    hf.job("mail.digest", category="notification")(lambda job, payload: payload)
    hf.job("order.ship")(lambda job, payload: payload)
    return hf


def again(hf: Holdfast) -> Holdfast:
    """The same application in another process, with nothing declared yet."""
    other = with_jobs(make_holdfast(hf.settings.db, hf.clock))  # type: ignore[arg-type]
    other.use_store(hf.store)
    return other


def nightly(**more: Any) -> ScheduleOptions:
    options: ScheduleOptions = {"cron": "0 3 * * *", "job_type": "db.cleanup", "org_id": ORG}
    return {**options, **more}  # type: ignore[typeddict-item]


def row_of(store: Store, name: str = "nightly") -> Row:
    (row,) = look(store, "SELECT * FROM holdfast.schedule WHERE name = :name", name=name)
    return row


def told(store: Store) -> list[str]:
    """The names of the audit events of schedules, in order."""
    rows = look(
        store,
        "SELECT name FROM holdfast.job_event WHERE org_id = :org AND name LIKE 'schedule.%'"
        " ORDER BY id",
        org=PLATFORM_ORG,
    )
    return [row["name"] for row in rows]


# -- declaring


@pytest.mark.parametrize(
    ("options", "bad"),
    [
        ({"cron": "0 3 * * *"}, "job_type"),
        (nightly(run="nightly_run"), "job_type"),
        (nightly(cron=None), "cron"),
        (nightly(every="1h"), "cron"),
        (nightly(cron="61 * * * *"), "cron"),
        (nightly(cron=7), "cron"),
        (nightly(cron=None, every="5s"), "every"),
        (nightly(cron=None, every=3600), "every"),
        (nightly(cron=None, every="1h", zone="Europe/Berlin"), "zone"),
        (nightly(zone="Mars/Olympus"), "zone"),
        (nightly(starts_at=datetime(2026, 1, 1)), "starts_at"),  # noqa: DTZ001
        (nightly(starts_at=datetime(2126, 1, 1, tzinfo=UTC)), "starts_at"),
        (nightly(catch_up="sometimes"), "catch_up"),
        (nightly(org_id=None), "org_id"),
        (nightly(org_id="everybody"), "org_id"),
        (nightly(project_id="x"), "project_id"),
        (nightly(payload=[1]), "payload"),
        (nightly(payload={"at": NOON}), "payload"),
        (nightly(job_type="Db Cleanup"), "job_type"),
        (nightly(queue="q:critical"), "queue"),
        ({"every": "1h", "run": "Nightly Run"}, "run"),
        ({"every": "1h", "run": "nightly_run", "org_id": ORG}, "org_id"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused_with_the_name_of_the_field(
    options: Mapping[str, Any], bad: str
) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        make_schedule("nightly", options, now=NOON)  # type: ignore[arg-type]

    assert set(caught.value.fields) == {bad}
    assert f"'nightly' not accepted. {bad}: " in str(caught.value)


@pytest.mark.parametrize("name", ["", "Nightly", "a" * 64, "n i", "9", "n\n", "q:x"])
def test_a_schedule_has_a_plain_name(name: str) -> None:
    with pytest.raises(InvalidSchedule, match="name: "):
        make_schedule(name, nightly(), now=NOON)


@pytest.mark.req("T-01")
@pytest.mark.parametrize("category", ["planning", "export", "audit_enrichment"])
def test_of_the_categories_only_maintenance_and_notifications_may_be_scheduled(
    hf: Holdfast, category: str
) -> None:
    hf.job("plan.make", category=category)(lambda job, payload: payload)
    with pytest.raises(InvalidSchedule, match="neither maintenance nor a notification"):
        hf.schedule("planning", cron="0 3 * * *", job_type="plan.make", org_id=ORG)

    hf.schedule("cleaning", cron="0 3 * * *", job_type="db.cleanup", org_id=ORG)
    hf.schedule("mailing", cron="0 8 * * MON", job_type="mail.digest", org_id=ORG)
    assert sync_schedules(hf) == ["cleaning", "mailing"]


@pytest.mark.req("T-01")
def test_a_schedule_that_comes_before_its_handler_is_checked_when_the_dispatcher_starts(
    url: str, clock: FakeClock
) -> None:
    with make_holdfast(url, clock) as hf:
        hf.schedule("planning", cron="0 3 * * *", job_type="plan.make", org_id=ORG)
        with pytest.raises(InvalidSchedule, match="is not registered here"):
            sync_schedules(hf)
        hf.job("plan.make", category="planning")(lambda job, payload: payload)
        with pytest.raises(InvalidSchedule, match="neither maintenance nor a notification"):
            sync_schedules(hf)

        assert look(hf.store, "SELECT * FROM holdfast.schedule") == []


def test_a_payload_that_could_not_be_enqueued_is_refused_before_anything_is_written(
    hf: Holdfast,
) -> None:
    hf.schedule("nightly", **nightly(payload={"password": "AKIAIOSFODNN7EXAMPLE"}))
    with pytest.raises(
        InvalidSchedule, match="payload: contains something that looks like a secret"
    ):
        sync_schedules(hf)

    assert look(hf.store, "SELECT * FROM holdfast.schedule") == []


def test_a_name_is_declared_once(hf: Holdfast) -> None:
    hf.schedule("nightly", **nightly())
    with pytest.raises(ConfigError, match="declared twice"):
        hf.schedule("nightly", **nightly(cron="0 4 * * *"))


def test_an_undeclared_run_is_refused(hf: Holdfast) -> None:
    hf.schedule("running", every="15m", run="nightly_run")
    with pytest.raises(InvalidSchedule, match="run: 'nightly_run' is not declared; declared: none"):
        sync_schedules(hf)


# -- updates from the code


def test_what_is_declared_becomes_a_row_and_the_second_start_changes_nothing(
    hf: Holdfast, clock: FakeClock
) -> None:
    hf.schedule(
        "nightly",
        **nightly(zone="Europe/Berlin", payload={"days": 30}, project_id=PROJECT, catch_up="all"),
    )

    assert sync_schedules(hf) == ["nightly"]
    first = row_of(hf.store)
    clock.advance(hours=1)
    assert sync_schedules(hf) == []

    assert row_of(hf.store) == first
    entry = rows.find_schedule(hf.store, "nightly")
    assert entry.schedule == Schedule(
        "nightly",
        Timetable("0 3 * * *", None, "Europe/Berlin"),
        MisfirePolicy.ALL,
        ORG,
        PROJECT,
        "db.cleanup",
        {"days": 30},
    )
    assert entry.next_fire_at == datetime(2026, 1, 6, 2, tzinfo=UTC)
    assert entry.set_by == "code"
    assert told(hf.store) == ["schedule.declared"]


def test_a_change_of_the_code_is_followed_and_another_rhythm_counts_from_then_on(
    hf: Holdfast, clock: FakeClock
) -> None:
    hf.schedule("nightly", **nightly())
    sync_schedules(hf)
    clock.advance(days=3)

    later = again(hf)
    later.schedule("nightly", **nightly(payload={"days": 7}))
    assert sync_schedules(later) == ["nightly"]
    # Only the payload changed: the missed ticks are still due.
    assert rows.find_schedule(hf.store, "nightly").next_fire_at < clock.now()

    later = again(hf)
    later.schedule("nightly", **nightly(cron="0 4 * * *"))
    assert sync_schedules(later) == ["nightly"]
    assert rows.find_schedule(hf.store, "nightly").next_fire_at == datetime(
        2026, 1, 9, 4, tzinfo=UTC
    )


def test_settings_declare_schedules_and_win_over_the_code(url: str, clock: FakeClock) -> None:
    schedules = {
        "nightly": ScheduleSettings(
            every=timedelta(hours=2), job_type="db.cleanup", org_id=OTHER_ORG
        )
    }
    with with_jobs(make_holdfast(url, clock, schedules=schedules)) as hf:
        hf.schedule("nightly", **nightly())
        sync_schedules(hf)

        found = rows.find_schedule(hf.store, "nightly").schedule
        assert found.timetable == Timetable(None, 7_200_000)
        assert found.org_id == OTHER_ORG


def test_a_run_with_a_cadence_is_scheduled_under_its_own_name(url: str, clock: FakeClock) -> None:
    runs = {
        "batch_submitter": RunSettings(queues=("q:default",)),
        "batch_collector": RunSettings(queues=("q:default",)),
        "hand_made": RunSettings(queues=("q:default",), profile="prod"),
        "never": RunSettings(queues=("q:default",)),
    }
    with make_holdfast(url, clock, runs=runs) as hf:
        hf.schedule("by-hand", cron="5 * * * *", run="hand_made")
        sync_schedules(hf)

        found = {entry.schedule.name: entry.schedule for entry in rows.list_schedules(hf.store)}
        assert {name: (plan.run_name, plan.timetable.every_ms) for name, plan in found.items()} == {
            "batch_submitter": ("batch_submitter", 15 * 60_000),
            "batch_collector": ("batch_collector", 30 * 60_000),
            "by-hand": ("hand_made", None),
        }
        assert {plan.org_id for plan in found.values()} == {PLATFORM_ORG}


# -- changes by an operator


def test_what_an_operator_changed_stays_until_it_is_reset(hf: Holdfast, clock: FakeClock) -> None:
    hf.schedule("nightly", **nightly(zone="Europe/Berlin"))
    sync_schedules(hf)

    rows.set_schedule(hf, "nightly", {"every": "6h", "catch_up": "skip"}, actor=ADA)
    assert sync_schedules(hf) == []
    changed = rows.find_schedule(hf.store, "nightly")
    assert changed.schedule.timetable == Timetable(None, 6 * 3_600_000)
    assert changed.schedule.catch_up == "skip"
    assert changed.set_by == "operator"
    assert changed.next_fire_at == datetime(2026, 1, 5, 12, tzinfo=UTC)

    rows.reset_schedule(hf, "nightly", actor=ADA)
    back = rows.find_schedule(hf.store, "nightly")
    assert back.schedule.timetable == Timetable("0 3 * * *", None, "Europe/Berlin")
    assert back.set_by == "code"
    assert told(hf.store) == ["schedule.declared", "schedule.changed", "schedule.reset"]


def test_a_change_is_checked_as_a_whole_and_nothing_is_half_changed(hf: Holdfast) -> None:
    hf.job("plan.make", category="planning")(lambda job, payload: payload)
    hf.schedule("nightly", **nightly())
    sync_schedules(hf)
    before = row_of(hf.store)

    for changes, bad in [
        ({"cron": "0 0 31 2 *"}, "cron"),
        ({"zone": "Mars/Olympus", "catch_up": "all"}, "zone"),
        ({"job_type": "plan.make"}, "job_type"),
        ({"payload": {"token": "ghp_" + "a" * 36}}, "payload"),
        ({"run": "nightly_run"}, "job_type"),
    ]:
        with pytest.raises(InvalidSchedule) as caught:
            rows.set_schedule(hf, "nightly", changes, actor=ADA)  # type: ignore[arg-type]
        assert set(caught.value.fields) == {bad}

    assert row_of(hf.store) == before


def test_an_operator_needs_no_application_to_change_only_the_rhythm(
    hf: Holdfast, url: str, clock: FakeClock
) -> None:
    hf.schedule("nightly", **nightly())
    sync_schedules(hf)

    with make_holdfast(url, clock) as bare:
        rows.set_schedule(bare, "nightly", {"cron": "0 4 * * *"}, actor=ADA)
        with pytest.raises(InvalidSchedule, match="is not registered here"):
            rows.set_schedule(bare, "nightly", {"payload": {}}, actor=ADA)


def test_a_schedule_of_an_operators_own_is_added_once_and_removed(hf: Holdfast) -> None:
    made = make_schedule("weekly", nightly(cron="0 3 * * SUN"), now=NOON)

    rows.add_schedule(hf, made, actor=ADA)
    with pytest.raises(Conflict, match="already exists"):
        rows.add_schedule(hf, made, actor=ADA)
    assert sync_schedules(hf) == []
    assert [entry.schedule.name for entry in rows.list_schedules(hf.store)] == ["weekly"]
    rows.remove_schedule(hf, "weekly", actor=ADA)

    assert rows.list_schedules(hf.store) == []
    assert told(hf.store) == ["schedule.added", "schedule.removed"]


def test_a_declared_schedule_is_not_removed_because_it_would_be_recreated(hf: Holdfast) -> None:
    hf.schedule("nightly", **nightly())
    sync_schedules(hf)
    with pytest.raises(Conflict, match="or pause the schedule"):
        rows.remove_schedule(hf, "nightly", actor=ADA)

    rows.remove_schedule(again(hf), "nightly", actor=ADA)
    with pytest.raises(ScheduleNotFound):
        rows.find_schedule(hf.store, "nightly")


def test_only_what_is_declared_can_be_reset(hf: Holdfast) -> None:
    rows.add_schedule(hf, make_schedule("weekly", nightly(), now=NOON), actor=ADA)
    with pytest.raises(InvalidSchedule, match="is not declared"):
        rows.reset_schedule(hf, "weekly", actor=ADA)


@pytest.mark.parametrize("act", ["set", "pause", "resume", "remove"])
def test_a_schedule_that_is_not_there_is_not_found(hf: Holdfast, act: str) -> None:
    acts: dict[str, Callable[[], object]] = {
        "set": lambda: rows.set_schedule(hf, "nobody", {"catch_up": "all"}, actor=ADA),
        "pause": lambda: rows.pause_schedule(hf.store, "nobody", actor=ADA, reason="why not"),
        "resume": lambda: rows.resume_schedule(hf.store, "nobody", actor=ADA),
        "remove": lambda: rows.remove_schedule(hf, "nobody", actor=ADA),
    }

    with pytest.raises(ScheduleNotFound, match="'nobody' not found"):
        acts[act]()


def test_a_paused_schedule_fires_nothing_says_why_and_catches_up_when_resumed(
    hf: Holdfast, clock: FakeClock
) -> None:
    hf.schedule("nightly", **nightly(catch_up="one"))
    sync_schedules(hf)
    with pytest.raises(InvalidSchedule, match="reason"):
        rows.pause_schedule(hf.store, "nightly", actor=ADA, reason="  ")
    assert rows.pause_schedule(hf.store, "nightly", actor=ADA, reason="the disk is full")
    assert not rows.pause_schedule(hf.store, "nightly", actor=ADA, reason="again")

    clock.advance(days=3)
    sync_schedules(hf)
    assert dispatch_once(hf)["enqueued"] == 0
    paused = rows.find_schedule(hf.store, "nightly")
    assert (paused.paused_by, paused.pause_reason) == ("user:ada", "the disk is full")

    assert rows.resume_schedule(hf.store, "nightly", actor=ADA)
    assert not rows.resume_schedule(hf.store, "nightly", actor=ADA)
    done = dispatch_once(hf)
    assert (done["enqueued"], done["missed"]) == (1, 2)
    assert told(hf.store)[1:] == ["schedule.paused", "schedule.resumed"]


def test_a_paused_schedule_fires_nothing_while_another_one_is_due(
    hf: Holdfast, clock: FakeClock
) -> None:
    hf.schedule("nightly", **nightly())
    hf.schedule("other", **nightly())
    sync_schedules(hf)
    rows.pause_schedule(hf.store, "nightly", actor=ADA, reason="the disk is full")

    clock.advance(days=1)

    assert dispatch_once(hf)["enqueued"] == 1
    assert rows.list_ticks(hf.store, "nightly", limit=10) == []


def test_the_audit_of_a_schedule_names_the_actor_and_holds_no_payload(hf: Holdfast) -> None:
    made = make_schedule("weekly", nightly(payload={"note": "private"}), now=NOON)
    rows.add_schedule(hf, made, actor=ADA)

    (event,) = look(hf.store, "SELECT * FROM holdfast.job_event WHERE name = 'schedule.added'")
    assert (event["actor_type"], event["actor_id"]) == ("user", "ada")
    assert "private" not in event["detail"]
    assert '"cron"' in event["detail"]


# -- database constraints


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("cron = NULL", "schedule_has_one_rhythm"),
        ("every_ms = 60000", "schedule_has_one_rhythm"),
        ("cron = NULL, every_ms = 9999", "schedule_interval_in_range"),
        ("run_name = 'x'", "schedule_has_one_target"),
        ("payload = NULL", "schedule_has_one_target"),
        ("catch_up = 'never'", "schedule_catch_up_known"),
        ("set_by = 'nobody'", "schedule_set_by_known"),
        ("paused_at = updated_at", "schedule_paused_says_why"),
        ("next_fire_at = ticked_to", "schedule_fires_forward"),
        ("ticked_to = '2020-01-01T00:00:00.000Z'", "schedule_never_ticks_back"),
    ],
)
def test_the_database_refuses_a_schedule_that_cannot_be(
    hf: Holdfast, change: str, rule: str
) -> None:
    hf.schedule("nightly", **nightly())
    sync_schedules(hf)

    with pytest.raises(RuleBroken) as caught:
        by_hand(hf.store, f"UPDATE holdfast.schedule SET {change}")
    assert caught.value.rule == rule
