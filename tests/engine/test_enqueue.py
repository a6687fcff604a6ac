"""Enqueue: a job is stored completely, once and with its audit, or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast import (
    Actor,
    ActorType,
    Context,
    FakeClock,
    Holdfast,
    InvalidJob,
    JobRequest,
    Priority,
    State,
)
from holdfast.event import Event, JobEnqueued
from tests.story import ORG, PROJECT, claim, events, look, timeline

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def declare(hf: Holdfast, name: str = "report.export", **options: Any) -> None:
    hf.job(name, **options)(lambda job, payload: None)


def count_jobs(hf: Holdfast) -> int:
    found: int = look(hf.store, "SELECT count(*) AS n FROM holdfast.job")[0]["n"]
    return found


@pytest.mark.req("J-35", "J-36", "J-37")
def test_every_field_of_the_envelope_reaches_the_worker_as_it_was_given(
    hf: Holdfast, clock: FakeClock
) -> None:
    declare(hf, category="maintenance")
    due = clock.now() + timedelta(minutes=5)
    enqueued = hf.enqueue(
        "report.export",
        {"project": 7, "deep": {"text": "Grüße 🎉", "n": 1.5}},
        org_id=ORG,
        project_id=PROJECT,
        actor=Actor(ActorType.API_KEY, "key-9"),
        request_id="req-1",
        correlation_id="corr-1",
        idempotency_key="export-7",
        scheduled_for=due,
        traceparent=TRACE,
    )

    clock.advance(minutes=5)
    (claimed,) = claim(hf, queue="q:maintenance")
    job = hf.get(enqueued.id, org_id=ORG)

    assert (claimed.id, claimed.job_type) == (enqueued.id, "report.export")
    assert (claimed.org_id, claimed.project_id) == (ORG, PROJECT)
    assert (claimed.actor_type, claimed.actor_id) == ("api_key", "key-9")
    assert (claimed.request_id, claimed.correlation_id) == ("req-1", "corr-1")
    assert claimed.idempotency_key == enqueued.idempotency_key
    assert claimed.traceparent == TRACE
    assert job.payload == {"project": 7, "deep": {"text": "Grüße 🎉", "n": 1.5}}
    assert job.record["scheduled_for"] == due
    assert job.created_at == due - timedelta(minutes=5)


@pytest.mark.req("J-35")
def test_what_a_caller_leaves_out_is_filled_in_and_never_missing(hf: Holdfast) -> None:
    declare(hf)

    enqueued = hf.enqueue("report.export", {}, org_id=ORG)
    record = hf.get(enqueued.id, org_id=ORG).record

    for name in ("id", "job_type", "org_id", "actor_type", "actor_id", "request_id",
                 "correlation_id", "idempotency_key", "created_at", "payload"):  # fmt: skip
        assert record[name] is not None
    assert record["project_id"] is None
    assert (record["actor_type"], record["attempt_count"]) == ("system", 0)


@pytest.mark.req("J-36")
@pytest.mark.parametrize("kind", ["user", "system", "api_key"])
def test_an_actor_is_a_user_the_system_or_an_api_key(hf: Holdfast, kind: str) -> None:
    declare(hf)

    enqueued = hf.enqueue("report.export", {}, org_id=ORG, actor=f"{kind}:42")

    record = hf.get(enqueued.id, org_id=ORG).record
    assert (record["actor_type"], record["actor_id"]) == (kind, "42")


@pytest.mark.req("J-02")
def test_enqueueing_runs_nothing_and_waits_for_nothing(hf: Holdfast) -> None:
    ran: list[str] = []
    hf.job("report.export")(lambda job, payload: ran.append(job.id))

    enqueued = hf.enqueue("report.export", {}, org_id=ORG)

    assert ran == []
    assert hf.get(enqueued.id, org_id=ORG).state is State.QUEUED
    assert timeline(hf, enqueued) == ["job.enqueued"]


@pytest.mark.req("E-14")
def test_a_job_exists_if_and_only_if_the_callers_own_transaction_commits(hf: Holdfast) -> None:
    declare(hf)
    connection: Any
    if hf.store.dialect.name == "sqlite":
        connection = sqlite3.connect(hf.settings.db.removeprefix("sqlite:///"))
    else:
        connection = psycopg.connect(hf.settings.db)

    given_up = hf.enqueue("report.export", {}, org_id=ORG, conn=connection)
    connection.rollback()
    kept = hf.enqueue("report.export", {}, org_id=ORG, conn=connection)
    seen_before_commit = count_jobs(hf)
    connection.commit()
    connection.close()

    assert seen_before_commit == 0
    assert count_jobs(hf) == 1
    assert hf.get(kept.id, org_id=ORG).state is State.QUEUED
    assert timeline(hf, kept) == ["job.enqueued"]
    assert timeline(hf, given_up) == []


@pytest.mark.req("E-14")
def test_of_many_jobs_all_are_written_or_none(hf: Holdfast) -> None:
    declare(hf)

    with pytest.raises(InvalidJob, match="payload"):
        hf.enqueue_many("report.export", [{"n": 1}, {"n": 2}, {"n": float("nan")}], org_id=ORG)
    nothing = count_jobs(hf)
    many = hf.enqueue_many("report.export", ({"n": n} for n in range(50)), org_id=ORG)

    assert nothing == 0
    assert [item.created for item in many] == [True] * 50
    assert [hf.get(item.id, org_id=ORG).payload["n"] for item in many[::10]] == [0, 10, 20, 30, 40]
    assert count_jobs(hf) == 50


def test_enqueueing_nothing_is_nothing(hf: Holdfast) -> None:
    declare(hf)

    assert hf.enqueue_many("report.export", [], org_id=ORG) == []


def test_many_jobs_may_each_have_a_request_of_their_own(hf: Holdfast) -> None:
    declare(hf)

    first, second = hf.enqueue_many(
        "report.export",
        [
            JobRequest({"n": 1}, ORG, priority=Priority.HIGH),
            JobRequest({"n": 2}, ORG, idempotency_key="two"),
        ],
    )

    assert hf.get(first.id, org_id=ORG).record["priority"] == Priority.HIGH
    assert hf.get(second.id, org_id=ORG).payload == {"n": 2}


def test_a_caller_on_an_event_loop_enqueues_without_blocking_it(hf: Holdfast) -> None:
    declare(hf)

    async def story() -> tuple[bool, int]:
        one = await hf.aenqueue("report.export", {"n": 1}, org_id=ORG)
        many = await hf.aenqueue_many("report.export", [{"n": 2}, {"n": 3}], org_id=ORG)
        return one.created, len(many)

    assert asyncio.run(story()) == (True, 2)
    assert count_jobs(hf) == 3


@pytest.mark.req("E-16")
def test_a_job_enqueued_by_a_job_keeps_its_tenant_project_and_correlation(hf: Holdfast) -> None:
    children: list[Any] = []

    @hf.job("parent.work")
    def parent(job: Context, payload: dict[str, Any]) -> None:
        children.append(hf.enqueue("child.work", {}))

    declare(hf, "child.work")
    hf.enqueue(
        "parent.work", {}, org_id=ORG, project_id=PROJECT, request_id="r", correlation_id="c",
        traceparent=TRACE,
    )  # fmt: skip
    hf.worker(queues=["q:default"]).run_once(limit=1)

    record = hf.get(children[0].id, org_id=ORG).record
    assert (record["org_id"], record["project_id"]) == (ORG, PROJECT)
    assert (record["request_id"], record["correlation_id"]) == ("r", "c")
    assert record["traceparent"] == TRACE


@pytest.mark.req("T-01")
@pytest.mark.parametrize("category", ["general", "planning", "export", "audit_enrichment"])
def test_only_maintenance_and_notifications_may_be_scheduled(
    hf: Holdfast, clock: FakeClock, category: str
) -> None:
    declare(hf, category=category)

    with pytest.raises(InvalidJob, match="scheduled_for: is only for maintenance"):
        hf.enqueue("report.export", {}, org_id=ORG, scheduled_for=clock.now() + timedelta(hours=1))

    assert count_jobs(hf) == 0


@pytest.mark.req("T-01", "T-02")
@pytest.mark.parametrize("category", ["maintenance", "notification"])
def test_a_scheduled_job_says_when_and_is_not_due_before(
    hf: Holdfast, clock: FakeClock, category: str
) -> None:
    declare(hf, category=category)
    due = clock.now() + timedelta(hours=1)
    enqueued = hf.enqueue("report.export", {}, org_id=ORG, scheduled_for=due)
    worker = hf.worker()

    clock.advance(minutes=59, seconds=59.999)
    early = worker.run_once().claimed
    clock.advance(milliseconds=1)
    worker.run_once()

    job = hf.get(enqueued.id, org_id=ORG)
    assert early == 0
    assert job.record["scheduled_for"] == due
    assert job.state is State.COMPLETED


@pytest.mark.req("Q-20")
def test_a_scheduled_maintenance_job_waits_on_the_maintenance_queue(
    hf: Holdfast, clock: FakeClock
) -> None:
    declare(hf, category="maintenance", queue="q:default")

    enqueued = hf.enqueue(
        "report.export", {}, org_id=ORG, scheduled_for=clock.now() + timedelta(hours=1)
    )

    assert hf.get(enqueued.id, org_id=ORG).queue == "q:maintenance"


@pytest.mark.req("T-03")
def test_a_schedule_up_to_sixty_seconds_in_the_past_is_taken_as_now_and_older_is_refused(
    hf: Holdfast, clock: FakeClock
) -> None:
    declare(hf, category="maintenance")

    drifted = hf.enqueue(
        "report.export", {}, org_id=ORG, scheduled_for=clock.now() - timedelta(seconds=60)
    )
    with pytest.raises(InvalidJob, match="more than 60 seconds in the past"):
        hf.enqueue(
            "report.export", {}, org_id=ORG, scheduled_for=clock.now() - timedelta(seconds=61)
        )
    hf.worker().run_once()

    assert hf.get(drifted.id, org_id=ORG).state is State.COMPLETED
    assert count_jobs(hf) == 1


@pytest.mark.req("I-17")
def test_scheduling_the_same_thing_twice_schedules_it_once(hf: Holdfast, clock: FakeClock) -> None:
    declare(hf, category="maintenance")
    due = clock.now() + timedelta(hours=1)

    first = hf.enqueue("report.export", {}, org_id=ORG, scheduled_for=due, idempotency_key="k")
    clock.advance(hours=2)
    hf.worker().run_once()
    again = hf.enqueue("report.export", {}, org_id=ORG, scheduled_for=clock.now(),
                       idempotency_key="k")  # fmt: skip
    ran_again = hf.worker().run_once().claimed

    assert (again.id, again.created) == (first.id, False)
    assert ran_again == 0
    assert count_jobs(hf) == 1


def test_an_instant_may_be_given_in_any_zone_and_is_kept_in_utc(hf: Holdfast) -> None:
    declare(hf)
    there = datetime.fromisoformat("2026-01-05T20:00:00+05:30")

    enqueued = hf.enqueue("report.export", {}, org_id=ORG, not_before_at=there)

    found = hf.get(enqueued.id, org_id=ORG).record["not_before_at"]
    assert found == datetime(2026, 1, 5, 14, 30, tzinfo=UTC)
    assert found.tzinfo is UTC


def test_subscribers_get_new_jobs_and_no_duplicates(hf: Holdfast) -> None:
    declare(hf)
    heard: list[Event] = []
    hf.events.subscribe(heard.append)

    first = hf.enqueue("report.export", {}, org_id=ORG, idempotency_key="k")
    hf.enqueue("report.export", {}, org_id=ORG, idempotency_key="k")

    assert [event.about.job_id for event in heard if isinstance(event, JobEnqueued)] == [first.id]


@pytest.mark.req("A-07", "A-09")
def test_the_first_audit_event_is_written_with_the_job(hf: Holdfast) -> None:
    declare(hf)

    enqueued = hf.enqueue("report.export", {}, org_id=ORG, actor="user:42", request_id="r-1")

    (event,) = events(hf, enqueued)
    assert (event["name"], event["attempt"]) == ("job.enqueued", 1)
    assert (event["actor_type"], event["actor_id"]) == ("user", "42")
    assert (event["request_id"], event["correlation_id"]) == ("r-1", "r-1")


def test_a_large_bulk_is_written_whole_or_not_at_all(hf: Holdfast) -> None:
    hf.job("report.export")(lambda job, payload: None)
    good: list[dict[str, object]] = [{"n": number} for number in range(1_200)]

    with pytest.raises(InvalidJob, match="payload"):
        hf.enqueue_many("report.export", [*good, {"n": float("nan")}], org_id=ORG)
    nothing = look(hf.store, "SELECT count(*) AS n FROM holdfast.job")[0]["n"]
    written = hf.enqueue_many("report.export", good, org_id=ORG)

    assert nothing == 0
    assert len({job.id for job in written}) == 1_200
    assert all(job.created for job in written)
    assert [job.id for job in written] == sorted(job.id for job in written)


@pytest.mark.req("I-12")
def test_a_key_that_comes_twice_in_a_large_bulk_is_one_job(hf: Holdfast) -> None:
    hf.job("report.export")(lambda job, payload: None)
    requests = [
        JobRequest({"n": number}, ORG, idempotency_key=f"k{number % 600}") for number in range(900)
    ]

    written = hf.enqueue_many("report.export", requests)

    assert sum(job.created for job in written) == 600
    assert [job.id for job in written[600:]] == [job.id for job in written[:300]]
    assert all(job.differs for job in written[600:])
