"""Unique while waiting or running, replaced by the latest, and debounced."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import FakeClock, Holdfast, InvalidJob, JobRequest, Transient
from holdfast.clock import SystemClock
from holdfast.config import Settings
from holdfast.engine.maintenance import tidy
from tests.story import ORG, OTHER_ORG, claim, events, look, timeline

TYPE = "search.index"


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    hf.job(TYPE)(lambda job, payload: payload)
    hf.job("search.other")(lambda job, payload: payload)
    return hf


@pytest.fixture
def live(url: str) -> Iterator[Holdfast]:
    """An application on the real clock, which a tenant's own connection has too."""
    with Holdfast(settings=Settings(db=url), clock=SystemClock()) as hf:
        hf.job(TYPE)(lambda job, payload: payload)
        hf.sync()
        yield hf


def put(hf: Holdfast, n: int = 1, *, org_id: str = ORG, **options: Any) -> Any:
    options.setdefault("unique_key", "customer:7")
    return hf.enqueue(TYPE, {"n": n}, org_id=org_id, **options)


def stored(hf: Holdfast) -> list[tuple[str, Any]]:
    rows = look(hf.store, "SELECT id, org_id, state FROM holdfast.job ORDER BY id")
    return [(row["state"], hf.get(row["id"], org_id=row["org_id"]).payload["n"]) for row in rows]


def is_clean(hf: Holdfast) -> bool:
    found = hf.operate(actor="user:ann", role="admin").verify().violated
    assert found == ()
    return True


@contextmanager
def connection_of(url: str) -> Iterator[Any]:
    """The caller's own connection. On PostgreSQL it has only the privileges of a tenant."""
    if url.startswith("sqlite"):
        connection: Any = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)
    else:
        connection = psycopg.connect(url)
        connection.execute("SELECT set_config('holdfast.org_id', %s, false)", [ORG])
        connection.execute("SET ROLE holdfast_tenant")
        connection.commit()
    try:
        yield connection
    finally:
        connection.close()


def in_threads(count: int, call: Any) -> list[Any]:
    """Run *call* with 0, 1, 2, … in threads that start together; return what they returned."""
    start, found = threading.Barrier(count), list[Any]()

    def run(number: int) -> None:
        start.wait(60)
        found.append(call(number))

    threads = [threading.Thread(target=run, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(found) == count
    return found


# -- unique


def test_a_second_enqueue_returns_the_waiting_job(work: Holdfast) -> None:
    first, again = put(work), put(work, 2)

    assert (first.created, again.created) == (True, False)
    assert (again.id, again.created_at, again.differs) == (first.id, first.created_at, False)
    assert stored(work) == [("queued", 1)]
    assert timeline(work, first) == ["job.enqueued"]


def test_the_key_is_held_while_the_job_runs_and_until_it_has_ended(work: Holdfast) -> None:
    first = put(work)
    claim(work)
    while_it_runs = put(work, 2)
    work.worker(worker_id="w2").run_once()
    assert (while_it_runs.id, while_it_runs.created) == (first.id, False)

    work.cancel(first.id, org_id=ORG)
    assert put(work, 3).created is False
    assert is_clean(work)


def test_the_key_is_free_when_the_job_has_ended_however_it_ended(work: Holdfast) -> None:
    put(work)
    work.worker().run_once()
    second = put(work, 2)
    assert second.created
    work.cancel(second.id, org_id=ORG)

    third = put(work, 3)

    assert third.created
    assert stored(work) == [("completed", 1), ("canceled", 2), ("queued", 3)]
    assert is_clean(work)


def test_a_job_that_waits_for_its_retry_holds_the_key(hf: Holdfast) -> None:
    def fail(job: Any, payload: Any) -> None:
        raise Transient("later")

    hf.job(TYPE)(fail)
    first = put(hf)
    hf.worker().run_once()

    assert put(hf, 2).id == first.id
    assert put(hf, 2, unique="queued", unique_key="customer:8").created


def test_unique_while_queued_frees_the_key_with_the_claim(work: Holdfast) -> None:
    first = put(work, unique="queued")
    assert put(work, 2, unique="queued").id == first.id
    claim(work)

    second = put(work, 2, unique="queued")

    assert second.created
    assert put(work, 3, unique="queued").id == second.id


def test_keys_belong_to_a_tenant_and_a_job_type(work: Holdfast) -> None:
    put(work)
    assert put(work, org_id=OTHER_ORG).created
    assert work.enqueue("search.other", {}, org_id=ORG, unique_key="customer:7").created
    assert put(work, unique_key="customer:8").created


def test_of_many_requests_with_one_key_the_first_is_stored(work: Holdfast) -> None:
    many = work.enqueue_many(
        TYPE,
        [JobRequest({"n": n}, ORG, unique_key=f"customer:{n % 2}") for n in range(6)]
        + [JobRequest({"n": 6}, ORG)],
    )

    assert [one.created for one in many] == [True, True, False, False, False, False, True]
    assert many[0].id == many[2].id == many[4].id
    assert stored(work) == [("queued", 0), ("queued", 1), ("queued", 6)]


def test_concurrent_enqueues_with_one_key_store_one_job(live: Holdfast) -> None:
    answers = in_threads(8, lambda n: put(live, n))

    assert [one.created for one in answers].count(True) == 1
    assert len({one.id for one in answers}) == 1
    assert look(live.store, "SELECT count(*) AS n FROM holdfast.job") == [{"n": 1}]
    assert is_clean(live)


def test_on_the_callers_connection_the_key_is_held_from_the_commit_on(
    live: Holdfast, url: str
) -> None:
    with connection_of(url) as conn:
        rolled_back = put(live, conn=conn)
        assert put(live, 2, conn=conn).id == rolled_back.id
        conn.rollback()
        assert stored(live) == []
        kept = put(live, 3, conn=conn)
        conn.commit()
        again = put(live, 4, conn=conn)
        conn.rollback()

    assert (again.id, again.created) == (kept.id, False)
    assert put(live, 5).id == kept.id
    assert stored(live) == [("queued", 3)]
    assert is_clean(live)


def test_an_enqueue_waits_for_the_open_transaction_of_another_with_the_key(
    live: Holdfast, url: str
) -> None:
    answers: list[Any] = []

    def enqueue() -> None:
        with connection_of(url) as own:
            answers.append(put(live, 2, conn=own))
            own.commit()

    with connection_of(url) as conn:
        first = put(live, 1, conn=conn)
        thread = threading.Thread(target=enqueue)
        thread.start()
        thread.join(0.3)
        assert answers == []
        conn.commit()
        thread.join(60)

    assert [(one.id, one.created) for one in answers] == [(first.id, False)]


def test_a_tenant_cannot_touch_the_keys_of_another(postgres_url: str) -> None:
    with Holdfast(settings=Settings(db=postgres_url), clock=SystemClock()) as hf:
        hf.job(TYPE)(lambda job, payload: payload)
        held = put(hf, org_id=OTHER_ORG)
        with connection_of(postgres_url) as conn:
            for statement in (
                "SELECT * FROM holdfast.lock_keys(%s::json)",
                "SELECT * FROM holdfast.write_flow(%s::json, '[]')",
            ):
                key = {"org_id": OTHER_ORG, "job_type": TYPE, "unique_key": "customer:7"}
                asked = json.dumps([{**key, "job_id": held.id, "replaces": True, "place": 0}])
                with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level"):
                    conn.execute(statement, [asked])
                conn.rollback()
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute("UPDATE holdfast.unique_key SET unique_key = 'x'")
        assert stored(hf) == [("queued", 1)]


def test_a_tenant_gives_a_key_only_to_a_job_of_its_own_transaction(postgres_url: str) -> None:
    with Holdfast(settings=Settings(db=postgres_url), clock=SystemClock()) as hf:
        hf.job(TYPE)(lambda job, payload: payload)
        waiting, other = put(hf, 1), put(hf, 2, unique_key="customer:8")
        hold = {"org_id": ORG, "job_type": TYPE, "unique_key": "customer:7", "replaces": True}
        due = {"org_id": ORG, "job_id": waiting.id, "deadline_at": "2000-01-01T00:00:00Z"}
        with connection_of(postgres_url) as conn:
            conn.execute(
                "SELECT * FROM holdfast.write_flow(%s::json, %s::json)",
                [json.dumps([{**hold, "job_id": other.id}]), json.dumps([due])],
            )
            conn.commit()

        assert stored(hf) == [("queued", 1), ("queued", 2)]
        assert look(hf.store, "SELECT count(*) AS n FROM holdfast.job_deadline") == [{"n": 0}]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"unique_key": ""}, "unique_key"),
        ({"unique_key": "x" * 201}, "unique_key"),
        ({"unique_key": None, "replace": True}, "replace"),
        ({"unique_key": None, "debounce": 5}, "debounce"),
        ({"unique": "for ever"}, "unique"),
        ({"idempotency_key": "k"}, "unique_key"),
        ({"debounce": -1}, "debounce"),
        ({"debounce": 30, "delay": 5}, "debounce"),
        ({"debounce": 30, "debounce_limit": 10}, "debounce_limit"),
        ({"debounce_limit": 10}, "debounce_limit"),
        ({"replace": "yes"}, "replace"),
    ],
)
def test_bad_options_are_refused_and_nothing_is_written(
    work: Holdfast, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidJob) as refused:
        put(work, **options)

    assert field in refused.value.fields
    assert stored(work) == []


# -- replaced by the latest


def test_the_latest_supersedes_the_waiting_job_and_keeps_its_payload(work: Holdfast) -> None:
    first, latest = put(work, 1, replace=True), put(work, 2, replace=True)

    assert latest.created
    assert stored(work) == [("canceled", 1), ("queued", 2)]
    (ended,) = [event for event in events(work, first) if event["name"] == "job.canceled"]
    assert '"superseded"' in str(ended["detail"]).replace("'", '"')
    explained = work.operate(actor="user:ann", role="admin").explain(first.id)
    assert explained.reason == "superseded"
    assert latest.id in explained.line
    work.worker().run_once()
    assert work.get(latest.id, org_id=ORG).result == {"n": 2}
    assert is_clean(work)


def test_a_claimed_job_is_not_superseded_and_the_latest_waits(work: Holdfast) -> None:
    put(work, 1, replace=True)
    claim(work)

    latest = put(work, 2, replace=True)

    assert latest.created
    assert stored(work) == [("processing", 1), ("queued", 2)]


def test_a_retried_job_is_not_superseded(hf: Holdfast) -> None:
    def fail(job: Any, payload: Any) -> None:
        raise Transient("later")

    hf.job(TYPE)(fail)
    put(hf, 1, unique="queued")
    hf.worker().run_once()

    latest = put(hf, 2, unique="queued")

    assert latest.created
    assert stored(hf) == [("queued", 1), ("queued", 2)]


def test_of_many_requests_the_last_one_is_stored(work: Holdfast) -> None:
    waiting = put(work, 0, replace=True)

    many = work.enqueue_many(
        TYPE, [JobRequest({"n": n}, ORG, unique_key="customer:7", replace=True) for n in (1, 2, 3)]
    )

    assert [one.created for one in many] == [False, False, True]
    assert stored(work) == [("canceled", 0), ("queued", 3)]
    assert waiting.id != many[2].id


def test_concurrent_replacements_leave_one_waiting_job(live: Holdfast) -> None:
    answers = in_threads(8, lambda n: put(live, n, replace=True))

    assert all(one.created for one in answers)
    rows = look(live.store, "SELECT state, count(*) AS n FROM holdfast.job GROUP BY state")
    assert {row["state"]: row["n"] for row in rows} == {"canceled": 7, "queued": 1}
    assert is_clean(live)


def test_a_claim_and_a_replacement_at_once_lose_no_job_and_run_none_twice(url: str) -> None:
    """In either order the claimed job runs, and the latest payload is kept."""
    ran: list[int] = []
    with Holdfast(settings=Settings(db=url), clock=SystemClock()) as hf:
        hf.job(TYPE)(lambda job, payload: ran.append(payload["n"]))
        put(hf, 0, replace=True)

        def act(number: int) -> Any:
            if number % 2:
                return [put(hf, 100 * number + n, replace=True) for n in range(10)]
            return [hf.worker(worker_id=f"w{number}").run_once(limit=1) for _ in range(10)]

        in_threads(4, act)
        hf.worker().run(until_idle=True)

        assert len(ran) == len(set(ran))
        rows = look(hf.store, "SELECT state, count(*) AS n FROM holdfast.job GROUP BY state")
        ended = {row["state"]: row["n"] for row in rows}
        assert set(ended) <= {"completed", "canceled"}
        assert ended["completed"] == len(ran)
        assert is_clean(hf)


def test_on_the_callers_connection_a_replacement_is_undone_by_a_rollback(
    live: Holdfast, url: str
) -> None:
    first = put(live, 1, replace=True)
    with connection_of(url) as conn:
        put(live, 2, replace=True, conn=conn)
        conn.rollback()
        assert stored(live) == [("queued", 1)]
        latest = put(live, 3, replace=True, conn=conn)
        conn.commit()

    assert stored(live) == [("canceled", 1), ("queued", 3)]
    assert latest.created
    assert timeline(live, first) == ["job.enqueued", "job.canceled"]
    assert is_clean(live)


# -- debounced


def test_each_further_enqueue_moves_the_time_and_the_last_payload_runs(
    work: Holdfast, clock: FakeClock
) -> None:
    put(work, 1, debounce=30)
    clock.advance(seconds=20)
    put(work, 2, debounce=30)
    clock.advance(seconds=20)
    assert work.worker().run_once().claimed == 0
    clock.advance(seconds=10)
    assert work.worker().run_once().claimed == 1

    assert stored(work) == [("canceled", 1), ("completed", 2)]
    assert put(work, 3, debounce="30s").created
    assert is_clean(work)


def test_a_debounced_job_waits_no_longer_than_the_limit(work: Holdfast, clock: FakeClock) -> None:
    began = clock.now()
    for n in range(9):
        last = put(work, n, debounce=30, debounce_limit=timedelta(seconds=100))
        clock.advance(seconds=10)

    job = work.get(last.id, org_id=ORG)
    assert job.record["not_before_at"] == began + timedelta(seconds=100)
    clock.advance(seconds=10)
    assert work.worker().run_once().claimed == 1
    following = put(work, 10, debounce=30, debounce_limit=100)
    assert work.get(following.id, org_id=ORG).record["not_before_at"] == clock.now() + timedelta(
        seconds=30
    )


def test_a_key_that_nothing_holds_is_pruned(work: Holdfast, clock: FakeClock) -> None:
    put(work)
    put(work, unique_key="customer:8", delay=timedelta(days=400))
    work.worker().run_once()
    clock.advance(days=200)
    tidy(work.store, work.settings, work.events)

    rows = look(work.store, "SELECT unique_key FROM holdfast.unique_key")
    assert [row["unique_key"] for row in rows] == ["customer:8"]
