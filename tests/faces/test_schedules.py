"""holdfast schedules: the commands of operators, and their exit codes."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast import Holdfast, Settings
from holdfast.engine.schedule import rows
from holdfast.engine.schedule.dispatcher import Dispatcher
from tests.faces.conftest import Run
from tests.story import ORG, by_hand, look

APP = "clockwork:hf"
SOURCE = f"""
from holdfast import Holdfast
from holdfast.config import RunSettings

hf = Holdfast()

@hf.job("db.cleanup", category="maintenance")
def cleanup(job, payload):
    return {{}}

@hf.job("plan.make", category="planning")
def plan(job, payload): ...


@hf.job("order.ship")
def ship(job, payload):
    return {{}}

hf.schedule("nightly", cron="0 3 * * *", zone="Europe/Berlin", job_type="db.cleanup",
            org_id="{ORG}", payload={{"note": "private"}})
"""
LISTED = {
    "name", "target", "org_id", "project_id", "cron", "every", "zone", "starts_at", "catch_up",
    "next_fire_at", "last_fire_at", "last_outcome", "last_detail", "set_by", "paused_at",
    "paused_by", "pause_reason",
}  # fmt: skip
COUNTED = {"enqueued", "ran", "skipped", "missed", "held"}


@pytest.fixture
def app(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "clockwork.py").write_text(SOURCE)
    monkeypatch.delitem(sys.modules, "clockwork", raising=False)
    return APP


def rewind(url: str, name: str, **ago: float) -> None:
    """Move the schedules back, as if no dispatcher had run for a while."""
    with Holdfast(settings=Settings(db=url)) as hf:
        trigger = "schedule_never_ticks_back"
        if hf.store.dialect.name == "postgres":
            trigger += " ON holdfast.schedule"
        by_hand(hf.store, f"DROP TRIGGER {trigger}")
        then = datetime.now(UTC) - timedelta(**ago)
        entry = rows.find_schedule(hf.store, name)
        by_hand(
            hf.store,
            "UPDATE holdfast.schedule SET ticked_to = :then, next_fire_at = :due"
            " WHERE name = :name",
            then=then.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            due=entry.schedule.timetable.next(then)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            name=name,
        )


def test_a_pass_writes_what_is_declared_and_fires_what_is_due(run: Run, url: str, app: str) -> None:
    first = run("schedules", "dispatch", "--json", db=url, app=app)
    assert first.code == 0, first.err
    assert first.json == dict.fromkeys(COUNTED, 0)

    rewind(url, "nightly", days=2)
    second = run("schedules", "dispatch", "--log-level", "info", db=url, app=app)
    assert second.code == 0
    assert "enqueued 1  ran 0  skipped 0  missed 1  held 0" in second.out
    assert '"event": "schedule.fired"' in second.err
    assert '"event": "schedule.missed"' in second.err

    shown = run("schedules", "show", "nightly", "--json", db=url)
    assert set(shown.json) == LISTED | {"ticks"}
    assert [tick["outcome"] for tick in shown.json["ticks"]] == ["enqueued", "missed"]
    assert "private" not in shown.out
    with Holdfast(settings=Settings(db=url)) as hf:
        (job,) = look(hf.store, "SELECT id FROM holdfast.job")
    assert shown.json["ticks"][0]["job_id"] == job["id"]
    table = run("schedules", "show", "nightly", db=url)
    assert "nightly" in table.out
    assert "enqueued" in table.out
    assert "private" not in table.out


@pytest.mark.req("B-16", "B-17")
def test_a_run_with_nothing_pending_leaves_one_calm_line_in_the_log(
    run: Run, url: str, app: str, tmp_path: Path
) -> None:
    (tmp_path / "holdfast.toml").write_text('[runs.batch_submitter]\nqueues = ["q:default"]\n')
    name = "batch_submitter"
    assert run("schedules", "dispatch", db=url, app=app).code == 0
    rewind(url, name, minutes=15)
    # As in a separate process: a second subscriber would report everything twice.
    del sys.modules["clockwork"]

    ran = run("schedules", "dispatch", "--json", db=url, app=app)

    assert ran.code == 0
    assert ran.json == {**dict.fromkeys(COUNTED, 0), "skipped": 1}
    lines = [json.loads(line) for line in ran.err.splitlines()]
    (line,) = (line for line in lines if line["event"] == "schedule.skipped")
    assert line["detail"] == "batch_submitter skipped: no pending items"
    assert line["level"] == "info"
    assert {line["level"] for line in lines} == {"info"}
    (tick,) = run("schedules", "show", name, "--json", db=url).json["ticks"]
    (recorded,) = run("runs", "list", "--json", db=url).json
    assert tick["run_id"] == recorded["run_id"]
    assert (tick["outcome"], recorded["outcome"]) == ("skipped", "skipped")


STOPPED = """
import os, signal, threading
from holdfast import Holdfast

hf = Holdfast()
drained = threading.Event()

@hf.events.subscribe
def listen(event):
    if getattr(event, "change", "") == "draining":
        drained.set()

@hf.job("order.ship")
def ship(job, payload):
    os.kill(os.getpid(), signal.SIGTERM)
    assert drained.wait(60)

hf.schedule("shipping", every="1h", run="ship")
"""


def test_a_stopped_dispatcher_finishes_the_jobs_of_its_run_and_releases_the_rest(
    run: Run, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "holdfast.toml").write_text('[runs.ship]\nqueues = ["q:default"]\n')
    (tmp_path / "stopped.py").write_text(STOPPED)
    monkeypatch.delitem(sys.modules, "stopped", raising=False)
    assert run("schedules", "dispatch", db=url, app="stopped:hf").code == 0
    rewind(url, "shipping", hours=1)
    for _ in range(3):
        run("enqueue", "order.ship", "{}", "--org", ORG, db=url, app="stopped:hf")
    del sys.modules["stopped"]

    done = run("schedules", "dispatch", "--concurrency", "1", "--json", db=url, app="stopped:hf")

    assert (done.code, done.json["ran"]) == (0, 1)
    (ran,) = run("runs", "list", "--json", db=url).json
    assert (ran["outcome"], ran["succeeded_count"]) == ("stopped", 1)
    with Holdfast(settings=Settings(db=url)) as hf:
        rows = look(hf.store, "SELECT state, attempt_count FROM holdfast.job ORDER BY state")
    assert [(row["state"], row["attempt_count"]) for row in rows] == [
        ("completed", 0), ("queued", 0), ("queued", 0),
    ]  # fmt: skip


def test_the_list_shows_every_schedule_with_its_rhythm_and_newest_tick(
    run: Run, url: str, app: str
) -> None:
    run("schedules", "dispatch", db=url, app=app)
    listed = run("schedules", "list", "--json", db=url)

    (row,) = listed.json
    assert set(row) == LISTED
    assert (row["name"], row["target"], row["cron"], row["zone"], row["set_by"]) == (
        "nightly",
        "job db.cleanup",
        "0 3 * * *",
        "Europe/Berlin",
        "code",
    )
    table = run("schedules", "list", db=url)
    assert table.out.splitlines()[0].split() == [
        "name", "target", "rhythm", "zone", "catch_up", "next_fire_at", "last_outcome", "set_by",
        "paused",
    ]  # fmt: skip


def test_a_schedule_is_added_changed_reset_and_removed(run: Run, url: str, app: str) -> None:
    run("schedules", "dispatch", db=url, app=app)
    job = ("--job-type", "db.cleanup", "--org", ORG)

    added = run("schedules", "add", "often", "--every", "15m", *job, db=url, app=app)
    assert added.code == 0, added.err
    assert "often  added; next at " in added.out
    twice = run("schedules", "add", "often", "--every", "15m", *job, db=url, app=app)
    assert twice.code == 1
    assert "already exists" in twice.err

    changed = run("schedules", "set", "nightly", "--cron", "30 4 * * *", db=url)
    assert changed.code == 0, changed.err
    rows = {row["name"]: row for row in run("schedules", "list", "--json", db=url).json}
    assert rows["nightly"]["cron"] == "30 4 * * *"
    assert rows["nightly"]["zone"] == "Europe/Berlin"
    assert rows["nightly"]["set_by"] == "operator"
    assert run("schedules", "reset", "nightly", db=url, app=app).code == 0
    assert run("schedules", "reset", "nightly", db=url).code == 1

    refused = run("schedules", "remove", "nightly", db=url, app=app)
    assert refused.code == 1
    assert "or pause the schedule" in refused.err
    warned = run("schedules", "remove", "nightly", db=url)
    assert warned.code == 0
    assert "recreates it" in warned.err
    gone = run("schedules", "remove", "often", db=url)
    assert (gone.code, gone.err) == (0, "")
    assert run("schedules", "list", "--json", db=url).json == []


def test_a_pause_needs_a_reason_and_is_shown_with_it(run: Run, url: str, app: str) -> None:
    run("schedules", "dispatch", db=url, app=app)

    assert run("schedules", "pause", "nightly", db=url).code == 2
    assert run("schedules", "pause", "nightly", "--reason", " ", db=url).code == 1
    paused = run(
        "schedules", "pause", "nightly", "--reason", "disk full", "--actor", "user:ada", db=url
    )
    again = run("schedules", "pause", "nightly", "--reason", "disk full", db=url)
    assert (paused.out, again.out) == ("nightly  paused\n", "nightly  was paused already\n")
    assert "disk full" in run("schedules", "list", db=url).out
    (row,) = run("schedules", "list", "--json", db=url).json
    assert (row["paused_by"], row["pause_reason"]) == ("user:ada", "disk full")

    resumed = run("schedules", "resume", "nightly", db=url)
    again = run("schedules", "resume", "nightly", db=url)
    assert (resumed.out, again.out) == ("nightly  resumed\n", "nightly  was not paused\n")


def test_the_next_ticks_are_printed_in_utc_and_in_the_zone(run: Run, url: str, app: str) -> None:
    run("schedules", "dispatch", db=url, app=app)

    found = run("schedules", "next", "nightly", "--count", "400", "--json", db=url).json

    assert len(found) == 400
    hours = {(row["local"][11:16], row["local"][-6:], row["fire_at"][11:16]) for row in found}
    assert hours == {("03:00", "+01:00", "02:00"), ("03:00", "+02:00", "01:00")}
    assert "+0" in run("schedules", "next", "nightly", db=url).out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["show", "nobody"], 3, "Schedule 'nobody' not found"),
        (["next", "nobody"], 3, "not found"),
        (["set", "nobody", "--every", "1h"], 3, "not found"),
        (["pause", "nobody", "--reason", "x"], 3, "not found"),
        (["set", "nobody"], 2, "Nothing to change"),
        (["add", "x", "--every", "1h"], 1, "needs one of job_type and run"),
        (["add", "x", "--every", "1s", "--run", "y"], 1, "from 10 seconds to 366 days"),
        (["add", "x", "--cron", "0 0 1--100000000 * *", "--run", "y"], 1, "day of the month"),
        (["add", "x", "--cron", "@daily", "--zone", "Mars", "--run", "y"], 1, "time zone database"),
        (["add", "x", "--cron", "@daily", "--run", "y"], 1, "'y' is not declared"),
        (["add", "x", "--cron", "@daily", "--run", "y", "--starts-at", "soon"], 1, "starts_at"),
        (["add", "x", "--cron", "@daily", "--job-type", "a", "--org", ORG, "--payload", "{"], 1,
         "payload: is not JSON"),
        (["add", "x", "--cron", "@daily", "--job-type", "db.cleanup", "--org", "m e"], 1, "UUID"),
        (["add", "x", "--cron", "@daily", "--job-type", "plan.make", "--org", ORG], 1,
         "neither maintenance nor a notification"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_a_sentence(
    run: Run, migrated_sqlite_url: str, app: str, arguments: list[str], code: int, says: str
) -> None:
    ran = run("schedules", *arguments, db=migrated_sqlite_url, app=app)

    assert ran.code == code, ran.err
    assert says in ran.err
    assert "Traceback" not in ran.err


def test_a_worker_dispatches_beside_its_jobs_with_the_option(run: Run, url: str, app: str) -> None:
    run("schedules", "dispatch", db=url, app=app)
    rewind(url, "nightly", days=1)

    plain = run("worker", "--until-idle", db=url, app=app)
    assert plain.code == 0
    assert run("schedules", "show", "nightly", "--json", db=url).json["ticks"] == []

    deadline = datetime.now(UTC) + timedelta(seconds=30)
    while datetime.now(UTC) < deadline:
        both = run("worker", "--dispatch", "--until-idle", db=url, app=app)
        assert both.code == 0
        (row,) = run("schedules", "list", "--json", db=url).json
        if row["last_outcome"] == "enqueued":
            break
    assert row["last_outcome"] == "enqueued"


def test_a_worker_whose_dispatcher_fails_exits_with_75(
    run: Run, sqlite_url: str, app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(self: Dispatcher) -> None:
        raise KeyError("private")

    monkeypatch.setattr(Dispatcher, "run", die)

    ran = run("worker", "--dispatch", db=sqlite_url, app=app)

    assert ran.code == 75
    assert '"event": "worker.dispatcher_died"' in ran.err
    assert "KeyError" in ran.err
    assert "private" not in ran.err


def test_a_worker_that_cannot_dispatch_what_is_declared_does_not_start(
    run: Run, sqlite_url: str, tmp_path: Path, app: str
) -> None:
    broken = SOURCE + f'hf.schedule("bad", every="1h", job_type="not.there", org_id="{ORG}")\n'
    (tmp_path / "clockwork.py").write_text(broken)

    ran = run("worker", "--dispatch", "--until-idle", db=sqlite_url, app=app)

    assert ran.code == 1
    assert (
        "'not.there' is not registered here; for a command, name the application by --app"
        in ran.err
    )
