"""Declarations apply before the first worker starts, in every call that enqueues."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import FakeClock, Holdfast, QueueFull, QueueSettings
from holdfast.engine.declared import sync_declared
from holdfast.engine.schedule.dispatcher import dispatch_once
from holdfast.engine.schedule.rows import sync_schedules
from holdfast_rewrite import Rewrites
from tests.apps.household import Heard, furnish, rewriting, submission
from tests.engine.flood import OPERATOR
from tests.faces.conftest import APP, Run
from tests.faces.conftest import run as run
from tests.operate.sound import assert_sound
from tests.outbox.scripted import letter, outbox_with
from tests.story import ORG, OTHER_ORG, look, make_holdfast

LIMITED = {"q:default": QueueSettings(max_depth=2, max_depth_per_tenant=1)}


@pytest.fixture
def web(url: str, clock: FakeClock) -> Iterator[Holdfast]:
    """A process that only enqueues; no worker was ever started on its database."""
    with make_holdfast(url, clock, queues=LIMITED) as hf:
        hf.job("work")(lambda job, payload: None)
        hf.job("tell", category="notification", queue="q:default")(lambda job, payload: None)
        yield hf


def count(hf: Holdfast) -> int:
    (row,) = look(hf.store, "SELECT count(*) AS n FROM holdfast.job")
    return int(row["n"])


def connect(url: str) -> Any:
    if url.startswith("postgres"):
        return psycopg.connect(url)
    return sqlite3.connect(url.removeprefix("sqlite:///"))


def on_own_connection(hf: Holdfast, org_id: str) -> Any:
    """The caller has already written, so on SQLite no other connection can write."""
    conn = connect(hf.settings.db)
    try:
        conn.execute("CREATE TABLE IF NOT EXISTS mine (n integer)")
        conn.execute("INSERT INTO mine VALUES (1)")
        made = hf.enqueue("work", {}, org_id=org_id, conn=conn)
        conn.commit()
        return made
    finally:
        conn.close()


Way = Callable[[Holdfast, str], Any]
WAYS: dict[str, Way] = {
    "enqueue": lambda hf, org: hf.enqueue("work", {}, org_id=org),
    "enqueue_many": lambda hf, org: hf.enqueue_many("work", [{}], org_id=org),
    "aenqueue": lambda hf, org: asyncio.run(hf.aenqueue("work", {}, org_id=org)),
    "for_org": lambda hf, org: hf.for_org(org).enqueue("work", {}),
    "the caller's connection": on_own_connection,
}


@pytest.mark.req("B-05")
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_a_depth_limit_holds_before_there_is_a_worker(web: Holdfast, way: Way) -> None:
    orgs = [ORG, OTHER_ORG]
    for org in orgs:
        way(web, org)

    for org in [*orgs, "0198c0de-0000-7000-8000-00000000000c"]:
        with pytest.raises(QueueFull):
            way(web, org)

    assert count(web) == 2
    assert_sound(web)


def test_a_bulk_beyond_the_limit_is_refused_whole(web: Holdfast) -> None:
    with pytest.raises(QueueFull):
        web.enqueue_many("work", [{} for _ in range(600)], org_id=ORG)

    assert count(web) == 0


def test_a_limit_that_is_declared_after_the_first_enqueue_holds_from_then_on(
    hf: Holdfast,
) -> None:
    hf.job("work")(lambda job, payload: None)
    hf.enqueue("work", {}, org_id=ORG)
    hf.queue("q:late", max_depth=1)
    hf.enqueue("work", {}, org_id=ORG, queue="q:late")

    with pytest.raises(QueueFull):
        hf.enqueue("work", {}, org_id=ORG, queue="q:late")


def test_a_process_that_declares_nothing_changes_nothing(web: Holdfast, clock: FakeClock) -> None:
    web.enqueue("work", {}, org_id=ORG)

    with make_holdfast(web.settings.db, clock) as other:
        other.job("work")(lambda job, payload: None)
        other.queue("q:other", max_depth=5)
        other.enqueue("work", {}, org_id=OTHER_ORG)
        with pytest.raises(QueueFull):
            other.enqueue("work", {}, org_id=ORG)
        rules = other.queues.rules().queues

    assert rules["q:default"].settings.max_depth == 2
    assert rules["q:other"].settings.max_depth == 5


def test_what_an_operator_set_stays(web: Holdfast) -> None:
    web.queues.set("q:default", QueueSettings(max_depth=1), actor=OPERATOR)

    web.enqueue("work", {}, org_id=ORG)

    with pytest.raises(QueueFull):
        web.enqueue("work", {}, org_id=OTHER_ORG)


def test_a_caller_that_rolls_back_takes_the_declaration_along_and_the_next_writes_it(
    web: Holdfast,
) -> None:
    conn = connect(web.settings.db)
    conn.execute("CREATE TABLE mine (n integer)")
    web.enqueue("work", {}, org_id=ORG, conn=conn)
    conn.rollback()
    conn.close()

    for org in (ORG, OTHER_ORG):
        web.enqueue("work", {}, org_id=org)
    with pytest.raises(QueueFull):
        web.enqueue("work", {}, org_id=ORG)


def test_it_is_written_once_and_then_costs_nothing(
    web: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.enqueue("work", {}, org_id=ORG)
    reads: list[int] = []
    kind = type(web.store)
    plain = kind.read
    monkeypatch.setattr(kind, "read", lambda self, work: (reads.append(1), plain(self, work))[1])

    web.enqueue("work", {}, org_id=OTHER_ORG)

    assert reads == []
    monkeypatch.undo()
    (told,) = look(
        web.store, "SELECT count(*) AS n FROM holdfast.job_event WHERE name = 'rules.declared'"
    )
    assert told["n"] == 1


@pytest.mark.both_databases
def test_two_processes_that_start_at_once_write_it_once(web: Holdfast, clock: FakeClock) -> None:
    barrier = threading.Barrier(2)
    faults: list[BaseException] = []

    def start() -> None:
        try:
            with make_holdfast(web.settings.db, clock, queues=LIMITED) as other:
                _ = other.store
                barrier.wait(timeout=60)
                sync_declared(other.store, other.settings, other.registry)
        except BaseException as exc:
            faults.append(exc)

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert faults == []
    assert web.queues.rules().queues["q:default"].settings.max_depth == 2
    assert_sound(web)


# -- other ways to enqueue


def test_a_schedule_meets_the_limit_of_a_queue_that_no_worker_declared(
    url: str, clock: FakeClock
) -> None:
    limits = {"q:maintenance": QueueSettings(max_depth=1)}
    with make_holdfast(url, clock, queues=limits) as hf:
        hf.job("sweep", category="maintenance")(lambda job, payload: None)
        for name in ("one", "two"):
            hf.schedule(name, every="1m", job_type="sweep", org_id=ORG)
        sync_schedules(hf)
        clock.advance(minutes=1)

        dispatch_once(hf)

        assert count(hf) == 1


@pytest.mark.parametrize("borrowed", [False, True], ids=["own", "borrowed"])
def test_a_posted_message_meets_it_too(url: str, clock: FakeClock, borrowed: bool) -> None:
    with make_holdfast(url, clock, queues={"q:notifications": QueueSettings(max_depth=1)}) as hf:
        outbox_with(hf)

        def post(number: int) -> None:
            conn = connect(url) if borrowed else None
            if conn is not None:
                conn.execute("CREATE TABLE IF NOT EXISTS mine (n integer)")
                conn.execute("INSERT INTO mine VALUES (1)")
            try:
                hf.outbox.post([letter(recipient=f"r{number}")], org_id=ORG, conn=conn)
                if conn is not None:
                    conn.commit()
            finally:
                if conn is not None:
                    conn.close()

        post(1)
        with pytest.raises(QueueFull):
            post(2)

        assert count(hf) == 1


def test_a_submitted_message_meets_it_too(url: str, clock: FakeClock) -> None:
    with rewriting(
        url, clock, settings={"queues": {"q:default": QueueSettings(max_depth=1)}}
    ) as hf:
        rewrites = Rewrites(hf, classifier=Heard())
        furnish(rewrites)

        answers = [rewrites.submit(submission(f"Please, number {n}")) for n in range(2)]

        assert [str(answer.status) for answer in answers] == ["queued", "failed"]
        assert count(hf) == 1


FILE = '[queues."q:default"]\nmax_depth = 1\n'


def test_the_command_meets_a_limit_of_the_settings_file(run: Run, url: str, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(FILE)

    done = [run("enqueue", "greet", "{}", "--org", ORG, db=url, app=APP) for _ in range(2)]

    assert [one.code for one in done] == [0, 1]
    assert "q:default is full" in done[1].err


def test_migrate_writes_the_limits_so_that_the_sql_function_keeps_them(
    run: Run, postgres_url: str, tmp_path: Path
) -> None:
    (tmp_path / "holdfast.toml").write_text(FILE)
    assert run("migrate", db=postgres_url).code == 0
    call = f"SELECT holdfast.enqueue('greet', '{{}}', '{ORG}')"

    with psycopg.connect(postgres_url) as conn:
        conn.execute(call.encode())
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
            conn.execute(call.encode())
