"""Depth limits: a full queue refuses jobs with an error, and nothing is half-written."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import FakeClock, Holdfast, JobRequest, QueueFull
from holdfast.config import QueueSettings
from holdfast.engine.job import SYSTEM, Completed
from holdfast.engine.settle import settle
from holdfast.errors import Conflict
from holdfast.event import NotificationDropped
from tests.engine.flood import NOISY, OPERATOR, QUEUE, QUIET, declare, fetcher, fill
from tests.story import ORG, look, make_holdfast


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    return declare(hf)


def limit(hf: Holdfast, queue: str = QUEUE, **limits: Any) -> None:
    hf.queues.set(queue, QueueSettings(**limits), actor=OPERATOR)


def count(hf: Holdfast, org_id: str | None = None) -> int:
    rows = look(
        hf.store,
        "SELECT count(*) AS n FROM holdfast.job"
        " WHERE CAST(:org_id AS {uuid}) IS NULL OR org_id = CAST(:org_id AS {uuid})",
        org_id=org_id,
    )
    found: int = rows[0]["n"]
    return found


@pytest.mark.req("B-05")
def test_a_full_queue_refuses_with_its_limit_and_takes_again_when_it_has_drained(
    work: Holdfast,
) -> None:
    limit(work, max_depth=3)
    fill(work, ORG, 3)

    with pytest.raises(QueueFull) as caught:
        work.enqueue("work", {}, org_id=ORG)
    claimed = fetcher(work).take(1)

    assert (caught.value.queue, caught.value.limit, caught.value.per_tenant) == (QUEUE, 3, None)
    assert isinstance(caught.value, Conflict)
    assert "q:default is full" in str(caught.value)
    # A running job does not count as waiting.
    assert work.enqueue("work", {}, org_id=ORG).created
    settle(work.store, [(job, Completed()) for job in claimed], actor=SYSTEM)


def test_deferred_jobs_count_too(work: Holdfast, clock: FakeClock) -> None:
    limit(work, max_depth=2)
    fill(work, ORG, 1)
    fill(work, ORG, 1, not_before_at=clock.now() + timedelta(days=1))

    with pytest.raises(QueueFull):
        work.enqueue("work", {}, org_id=ORG)


@pytest.mark.req("B-05")
@pytest.mark.parametrize("size", [4, 499, 501, 1_300])
def test_a_group_that_does_not_fit_leaves_nothing_behind(work: Holdfast, size: int) -> None:
    limit(work, max_depth=size)
    fill(work, ORG, 1)

    with pytest.raises(QueueFull):
        fill(work, ORG, size)
    assert count(work) == 1

    fill(work, ORG, size - 1)
    assert count(work) == size


@pytest.mark.req("B-05")
@pytest.mark.parametrize("key", ["", "key-"])
def test_jobs_that_share_no_columns_are_counted_together(work: Holdfast, key: str) -> None:
    limit(work, max_depth=60)
    requests = [
        JobRequest({}, ORG, correlation_id=f"c{n}", idempotency_key=f"{key}{n}" if key else None)
        for n in range(61)
    ]

    with pytest.raises(QueueFull):
        work.enqueue_many("work", requests)
    assert count(work) == 0

    work.enqueue_many("work", requests[:60])
    found = look(work.store, "SELECT DISTINCT correlation_id FROM holdfast.job")
    assert {row["correlation_id"] for row in found} == {f"c{n}" for n in range(60)}


@pytest.mark.parametrize("full", [QUEUE, "q:exports"])
def test_of_several_queues_in_one_call_one_that_is_full_refuses_all_and_is_named(
    work: Holdfast, full: str
) -> None:
    limit(work, QUEUE, max_depth=50)
    limit(work, "q:exports", max_depth=50)
    fill(work, ORG, 49, queue=full)
    requests = [
        JobRequest({}, ORG, queue=queue) for queue in (QUEUE, "q:exports", QUEUE, "q:exports")
    ]

    with pytest.raises(QueueFull) as caught:
        work.enqueue_many("work", requests)

    assert caught.value.queue == full
    assert count(work) == 49


def test_frames_of_one_call_count_together(work: Holdfast) -> None:
    # Different projects have separate inserts; the queue is one.
    limit(work, max_depth=5)
    requests = [JobRequest({}, ORG, project_id=org_id) for org_id in (NOISY, QUIET, ORG)] * 2

    with pytest.raises(QueueFull):
        work.enqueue_many("work", requests)

    assert count(work) == 0
    assert len(work.enqueue_many("work", requests[:5])) == 5


def test_a_known_key_is_answered_also_when_the_queue_is_full(work: Holdfast) -> None:
    limit(work, max_depth=2)
    first = work.enqueue("work", {}, org_id=ORG, idempotency_key="one")
    fill(work, ORG, 1)

    again = work.enqueue("work", {}, org_id=ORG, idempotency_key="one")
    with pytest.raises(QueueFull):
        work.enqueue_many(
            "work", [JobRequest({}, ORG, idempotency_key=key) for key in ("one", "two")]
        )

    assert (again.id, again.created) == (first.id, False)
    assert count(work) == 2


@pytest.mark.req("B-05")
@pytest.mark.parametrize("keys", [[None], [None, "a", "b"]])
def test_a_limit_for_each_tenant_hits_only_the_one_that_reached_it(
    work: Holdfast, clock: FakeClock, keys: list[str | None]
) -> None:
    limit(work, max_depth_per_tenant=6)
    later = clock.now() + timedelta(hours=1)
    for key in keys:
        # All jobs, with any limit key and any due time.
        fill(work, NOISY, 3 // len(keys), limit_key=key)
        fill(work, NOISY, 3 // len(keys), limit_key=key, not_before_at=later)

    with pytest.raises(QueueFull) as caught:
        work.enqueue("work", {}, org_id=NOISY)
    fill(work, QUIET, 6)

    assert (caught.value.limit, caught.value.per_tenant) == (None, 6)
    assert (count(work, NOISY), count(work, QUIET)) == (6, 6)


def test_of_two_tenants_in_one_call_one_that_is_full_refuses_both(work: Holdfast) -> None:
    limit(work, max_depth_per_tenant=2)
    fill(work, NOISY, 2)

    with pytest.raises(QueueFull):
        work.enqueue_many("work", [JobRequest({}, NOISY), JobRequest({}, QUIET)])

    assert count(work, QUIET) == 0


def test_another_queue_is_not_concerned(work: Holdfast) -> None:
    limit(work, max_depth=1)
    fill(work, ORG, 1)

    assert work.enqueue("work", {}, org_id=ORG, queue="q:exports").created


@pytest.mark.req("Q-02")
def test_a_notification_for_a_full_queue_is_dropped_and_reported_and_the_write_succeeds(
    work: Holdfast,
) -> None:
    seen: list[Any] = []
    work.events.subscribe(seen.append)
    limit(work, "q:notifications", max_depth=1)

    answers = [work.notify("tell", {}, org_id=ORG) for _ in range(2)]

    assert [answer is not None for answer in answers] == [True, False]
    assert NotificationDropped("tell", ORG, "QueueFull") in seen


# -- the caller's own connection


@pytest.mark.parametrize("requests", [1, 2], ids=["one_queue", "two_queues"])
def test_on_a_borrowed_connection_nothing_is_written_and_the_callers_own_work_stays(
    url: str, clock: FakeClock, requests: int
) -> None:
    with make_holdfast(url, clock) as hf:
        declare(hf)
        limit(hf, max_depth=1)
        fill(hf, ORG, 1)
        queues = ["q:exports", QUEUE][-requests:]
        jobs = [JobRequest({}, ORG, queue=queue) for queue in queues]
        conn: Any = (
            sqlite3.connect(url.removeprefix("sqlite:///"))
            if url.startswith("sqlite")
            else psycopg.connect(url)
        )
        conn.execute("CREATE TABLE mine (n integer)")
        conn.execute("INSERT INTO mine VALUES (7)")

        with pytest.raises(QueueFull):
            hf.enqueue_many("work", jobs, conn=conn)
        conn.commit()

        kept = conn.execute("SELECT n FROM mine").fetchall()
        conn.close()
        assert kept == [(7,)]
        assert count(hf) == 1


def test_a_tenants_own_connection_counts_what_it_cannot_see(
    postgres_url: str, clock: FakeClock
) -> None:
    with make_holdfast(postgres_url, clock) as hf:
        declare(hf)
        limit(hf, max_depth=10)
        fill(hf, NOISY, 9)
        raised: list[str] = []

        @hf.job("spawn", queue="q:exports")
        def spawn(job: Any, payload: Any) -> None:
            with job.transaction() as conn:
                hf.enqueue("work", {}, conn=conn)
            try:
                with job.transaction() as conn:
                    hf.enqueue("work", {}, conn=conn)
            except QueueFull as exc:
                raised.append(exc.queue)

        hf.enqueue("spawn", {}, org_id=QUIET)
        hf.worker(queues=["q:exports"]).run_once()

        assert raised == [QUEUE]
        (found,) = look(hf.store, "SELECT count(*) AS n FROM holdfast.job_ready")
        assert found["n"] == 10


# -- the function for other languages


def call(url: str, org_id: str, **given: Any) -> tuple[str, bool]:
    named = "".join(f", {name} => %({name})s" for name in given)
    text = f"SELECT job_id::text, created FROM holdfast.enqueue('work', '{{}}', %(org)s{named})"
    with psycopg.connect(url) as conn:
        found: Any = conn.execute(text.encode(), {"org": org_id, **given}).fetchone()
    return str(found[0]), bool(found[1])


def test_the_sql_function_keeps_the_same_limits(postgres_url: str, clock: FakeClock) -> None:
    with make_holdfast(postgres_url, clock) as hf:
        declare(hf)
        limit(hf, max_depth=4, max_depth_per_tenant=2)
        first = call(postgres_url, NOISY, idempotency_key="one")
        call(postgres_url, NOISY, limit_key="k")

        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="q:default is full"):
            call(postgres_url, NOISY)
        again = call(postgres_url, NOISY, idempotency_key="one")
        fill(hf, ORG, 2)
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
            call(postgres_url, QUIET)
        with pytest.raises(QueueFull):
            hf.enqueue("work", {}, org_id=QUIET)

        assert again == (first[0], False)
        assert count(hf) == 4
