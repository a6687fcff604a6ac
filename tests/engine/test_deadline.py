"""A job that has not started by its deadline is canceled instead of started."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast, InvalidJob, Snooze, State, Transient
from holdfast.engine.claim import Order, claim_jobs
from holdfast.engine.deadline import expire_jobs
from holdfast.engine.job import SYSTEM, Completed, Released
from holdfast.engine.maintenance import tidy
from holdfast.engine.settle import settle
from holdfast.event import JobSettled
from tests.engine.test_unique import connection_of, is_clean
from tests.story import ORG, claim, events, look, timeline

TYPE = "price.quote"


@pytest.fixture
def ran(hf: Holdfast) -> list[int]:
    found: list[int] = []
    hf.job(TYPE)(lambda job, payload: found.append(payload["n"]))
    return found


def put(hf: Holdfast, n: int = 1, **options: Any) -> Any:
    options.setdefault("expires_in", 60)
    return hf.enqueue(TYPE, {"n": n}, org_id=ORG, **options)


def state(hf: Holdfast, job: Any) -> State:
    return hf.get(job.id, org_id=ORG).state


def explain(hf: Holdfast, job: Any) -> Any:
    return hf.operate(actor="user:ann", role="admin").explain(job.id)


def test_a_job_that_starts_in_time_runs(hf: Holdfast, ran: list[int], clock: FakeClock) -> None:
    job = put(hf)
    clock.advance(seconds=59)
    hf.worker().run_once()
    clock.advance(seconds=60)
    hf.worker().run_once()

    assert ran == [1]
    assert state(hf, job) is State.COMPLETED
    assert is_clean(hf)


def test_a_late_job_is_canceled_and_never_runs(
    hf: Holdfast, ran: list[int], clock: FakeClock
) -> None:
    settled: list[JobSettled] = []
    hf.events.subscribe(lambda event: settled.append(event) if isinstance(event, JobSettled) else 0)
    late, other = put(hf, 1), put(hf, 2, expires_in=None)
    clock.advance(seconds=60)
    hf.worker().run_once()

    assert ran == [2]
    assert state(hf, late) is State.CANCELED
    assert timeline(hf, late) == ["job.enqueued", "job.canceled"]
    assert [one.outcome for one in settled if one.about.job_id == late.id] == ["canceled"]
    explained = explain(hf, late)
    assert explained.reason == "deadline_passed"
    assert "had not started by its deadline" in explained.line
    assert hf.get(late.id, org_id=ORG).record["deadline_at"] == clock.now()
    assert state(hf, other) is State.COMPLETED
    assert is_clean(hf)


@pytest.mark.parametrize("order", list(Order))
def test_a_claim_passes_over_a_late_job_that_no_pass_has_canceled_yet(
    hf: Holdfast, ran: list[int], clock: FakeClock, monkeypatch: pytest.MonkeyPatch, order: Order
) -> None:
    put(hf, 1)
    put(hf, 2, expires_in=None)
    clock.advance(seconds=61)
    monkeypatch.setattr("holdfast.engine.promote.expire_jobs", lambda store, events: 0)

    wanted: dict[str, Any] = {"queue": "q:default", "worker_id": "w", "lease_ms": 60_000}
    claimed = claim_jobs(hf.store, limit=5, order=order, **wanted)

    assert [json.loads(job.payload) for job in claimed] == [{"n": 2}]


def test_waiting_names_the_deadline(hf: Holdfast, ran: list[int], clock: FakeClock) -> None:
    job = put(hf, deadline=clock.now() + timedelta(hours=1), expires_in=None)

    explained = explain(hf, job)

    assert "Its deadline is" in explained.line
    assert explained.until == clock.now() + timedelta(hours=1)


@pytest.mark.parametrize("ends", [Transient("again"), Snooze(timedelta(seconds=90))])
def test_a_retry_or_a_snooze_after_the_deadline_is_not_started(
    hf: Holdfast, clock: FakeClock, ends: BaseException
) -> None:
    calls: list[int] = []

    def fail(job: Any, payload: Any) -> None:
        calls.append(job.attempt)
        raise ends

    hf.job(TYPE)(fail)
    job = put(hf)
    hf.worker().run_once()
    clock.advance(minutes=30)
    hf.worker().run_once()

    assert calls == [1]
    assert state(hf, job) is State.CANCELED
    assert explain(hf, job).reason == "deadline_passed"
    assert is_clean(hf)


def test_a_job_that_runs_at_its_deadline_may_finish(
    hf: Holdfast, ran: list[int], clock: FakeClock
) -> None:
    job = put(hf)
    (claimed,) = claim(hf, lease_ms=600_000)
    clock.advance(seconds=61)
    assert expire_jobs(hf.store) == 0

    assert settle(hf.store, [(claimed, Completed())], actor=SYSTEM)[0].lease_held
    assert state(hf, job) is State.COMPLETED


def test_a_job_that_runs_at_its_deadline_is_canceled_when_it_waits_again(
    hf: Holdfast, ran: list[int], clock: FakeClock
) -> None:
    job = put(hf)
    (claimed,) = claim(hf, lease_ms=600_000)
    clock.advance(seconds=61)
    expire_jobs(hf.store)
    settle(hf.store, [(claimed, Released("drain"))], actor=SYSTEM)
    hf.worker().run_once()

    assert state(hf, job) is State.CANCELED
    assert ran == []


def test_a_late_job_on_a_paused_queue_is_canceled_by_maintenance(
    hf: Holdfast, ran: list[int], clock: FakeClock
) -> None:
    job = put(hf)
    clock.advance(seconds=61)
    tidy(hf.store, hf.settings, hf.events)

    assert state(hf, job) is State.CANCELED
    clock.advance(days=400)
    tidy(hf.store, hf.settings, hf.events)
    assert look(hf.store, "SELECT count(*) AS n FROM holdfast.job_deadline") == [{"n": 0}]


def test_on_the_callers_connection_the_deadline_is_committed_with_the_job(
    hf: Holdfast, url: str, ran: list[int], clock: FakeClock
) -> None:
    deadline = clock.now() + timedelta(hours=1)
    with connection_of(url) as conn:
        job = put(hf, conn=conn, expires_in=None, deadline=deadline)
        conn.rollback()
        assert look(hf.store, "SELECT count(*) AS n FROM holdfast.job_deadline") == [{"n": 0}]
        job = put(hf, conn=conn, expires_in=None, deadline=deadline)
        conn.commit()
    assert hf.get(job.id, org_id=ORG).record["deadline_at"] == deadline
    clock.advance(hours=2)
    hf.worker().run_once()
    assert state(hf, job) is State.CANCELED
    assert [event["name"] for event in events(hf, job)] == ["job.enqueued", "job.canceled"]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"expires_in": "soon"}, "expires_in"),
        ({"expires_in": 0}, "deadline"),
        ({"expires_in": 60, "delay": 90}, "deadline"),
    ],
)
def test_a_deadline_that_cannot_be_met_is_refused(
    hf: Holdfast, ran: list[int], options: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidJob) as refused:
        put(hf, **options)

    assert field in refused.value.fields
    assert look(hf.store, "SELECT count(*) AS n FROM holdfast.job") == [{"n": 0}]
