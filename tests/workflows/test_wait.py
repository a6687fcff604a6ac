"""Jobs that wait for an event or a time hold no worker, and lose no event."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    Context,
    FakeClock,
    Holdfast,
    InvalidJob,
    JobNotFound,
    RuleViolated,
    WaitTimedOut,
    chain,
)
from holdfast.workflows import wait
from tests.story import ORG, OTHER_ORG, timeline
from tests.workflows.flow import drain, verify_clean


def declare(hf: Holdfast, calls: list[str]) -> Any:
    @hf.job("flow.approve")
    async def approve(job: Context, order: int) -> Any:
        calls.append("before")
        given = await job.wait_for("approved", timeout=timedelta(days=1))
        calls.append("after")
        return {"order": order, "by": given}

    return approve


def test_a_job_waits_for_an_event_and_returns_its_payload(hf: Holdfast) -> None:
    calls: list[str] = []
    handle = declare(hf, calls).configure(org_id=ORG).enqueue(order=7)
    drain(hf)
    assert hf.get(handle.id, org_id=ORG).state == "queued"

    assert hf.send_event("approved", "ada", job_id=handle.id, org_id=ORG)
    drain(hf)

    assert hf.get(handle.id, org_id=ORG).result == {"order": 7, "by": "ada"}
    # The handler starts again; the call that has its answer returns at once.
    assert calls == ["before", "before", "after"]
    assert timeline(hf, handle).count("job.woken") == 1
    verify_clean(hf)


def test_an_event_that_arrives_before_the_wait_is_not_lost(hf: Holdfast) -> None:
    handle = declare(hf, []).configure(org_id=ORG).enqueue(order=7)

    assert not hf.send_event("approved", "ada", job_id=handle.id, org_id=ORG)
    drain(hf)

    assert hf.get(handle.id, org_id=ORG).result == {"order": 7, "by": "ada"}
    verify_clean(hf)


def test_an_event_that_arrives_while_the_job_is_snoozed_wakes_it(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler has read the events, and the snooze is not written yet."""
    handle = declare(hf, []).configure(org_id=ORG).enqueue(order=7)
    snooze, sent = wait._snooze, []

    def send_first(row: Any) -> None:
        if not sent:
            sent.append(hf.send_event("approved", "ada", job_id=handle.id, org_id=ORG))
        snooze(row)

    monkeypatch.setattr(wait, "_snooze", send_first)
    drain(hf)

    assert sent == [True]
    assert hf.get(handle.id, org_id=ORG).result == {"order": 7, "by": "ada"}
    verify_clean(hf)


def test_a_wait_that_is_too_long_raises_an_error_that_the_handler_can_catch(
    hf: Holdfast, clock: FakeClock
) -> None:
    @hf.job("flow.patient")
    def patient(job: Context, catches: bool) -> str:
        try:
            job.wait_for("approved", timeout="1h")
        except WaitTimedOut as exc:
            if catches:
                return exc.name
            raise
        return "approved"

    calm, strict = patient.configure(org_id=ORG).enqueue_many(
        [{"catches": True}, {"catches": False}]
    )
    drain(hf)
    clock.advance(timedelta(minutes=59))
    assert not drain(hf)
    clock.advance(timedelta(minutes=2))
    drain(hf)

    assert hf.get(calm.id, org_id=ORG).result == "approved"
    dead = hf.get(strict.id, org_id=ORG)
    assert (dead.state, dead.error_class) == ("failed", "WAIT_TIMED_OUT")
    verify_clean(hf)


def test_each_wait_receives_one_event_in_the_order_in_which_they_were_sent(hf: Holdfast) -> None:
    @hf.job("flow.read")
    def read(job: Context) -> list[Any]:
        return [job.wait_for("line") for _ in range(3)]

    handle = read.configure(org_id=ORG).enqueue()
    for line in ("a", "b"):
        hf.send_event("line", line, job_id=handle.id, org_id=ORG)
    drain(hf)
    assert hf.get(handle.id, org_id=ORG).state == "queued"
    hf.send_event("line", "c", job_id=handle.id, org_id=ORG)
    drain(hf)

    assert hf.get(handle.id, org_id=ORG).result == ["a", "b", "c"]


def test_a_job_sleeps_without_a_worker(hf: Holdfast, clock: FakeClock) -> None:
    @hf.job("flow.sleep")
    async def nap(job: Context) -> str:
        await job.sleep(timedelta(hours=2))
        await job.sleep_until(clock.now() + timedelta(hours=1))
        return "rested"

    handle = nap.configure(org_id=ORG).enqueue()
    drain(hf)
    clock.advance(timedelta(hours=2, seconds=1))
    drain(hf)
    assert hf.get(handle.id, org_id=ORG).state == "queued"
    clock.advance(timedelta(hours=1, seconds=1))
    drain(hf)

    assert hf.get(handle.id, org_id=ORG).result == "rested"
    verify_clean(hf)


def test_an_event_can_be_sent_to_a_workflow_or_to_a_key(hf: Holdfast) -> None:
    @hf.job("flow.keyed")
    def keyed(job: Context) -> Any:
        return job.wait_for("paid", key="order:7")

    by_workflow = chain(keyed.step()).enqueue(org_id=ORG)
    drain(hf)
    hf.send_event("paid", 1, workflow_id=by_workflow.id, org_id=ORG)
    drain(hf)
    hf.send_event("paid", 2, key="order:7", org_id=ORG)
    by_key = keyed.configure(org_id=ORG).enqueue()
    drain(hf)

    assert by_workflow.result(timeout=10) == 1
    assert hf.get(by_key.id, org_id=ORG).result == 2
    verify_clean(hf)


def test_an_event_of_another_tenant_is_refused(hf: Holdfast) -> None:
    handle = declare(hf, []).configure(org_id=ORG).enqueue(order=7)
    drain(hf)

    with pytest.raises(JobNotFound):
        hf.send_event("approved", "eve", job_id=handle.id, org_id=OTHER_ORG)
    hf.send_event("approved", "eve", key="order:7", org_id=OTHER_ORG)
    drain(hf)

    assert hf.get(handle.id, org_id=ORG).state == "queued"


def test_a_wait_inside_a_transaction_is_refused(hf: Holdfast) -> None:
    problems: list[str] = []

    @hf.job("flow.inside")
    def inside(job: Context) -> None:
        with job.transaction():
            try:
                job.wait_for("approved")
            except RuleViolated as exc:
                problems.append(str(exc))

    inside.configure(org_id=ORG).enqueue()
    drain(hf)
    assert len(problems) == 1


def test_a_bad_event_is_refused(hf: Holdfast) -> None:
    for bad in (
        {"name": "no spaces please", "key": "a"},
        {"name": "ok"},
        {"name": "ok", "key": "a", "job_id": ORG},
        {"name": "ok", "key": ""},
        {"name": "ok", "key": "a", "payload": object()},
        {"name": "ok", "key": "a", "payload": {"api_key": "sk-ant-api03-" + "x" * 80}},
    ):
        with pytest.raises(InvalidJob):
            hf.send_event(org_id=ORG, **bad)  # type: ignore[arg-type]


@pytest.mark.both_databases
def test_events_and_waits_at_the_same_time_all_meet(hf: Holdfast) -> None:
    @hf.job("flow.meet")
    def meet(job: Context) -> Any:
        return job.wait_for("go", timeout="1d")

    jobs = meet.configure(org_id=ORG).enqueue_many([{}] * 30)
    worker = hf.worker(concurrency=8)
    running = threading.Thread(target=worker.run)
    running.start()
    try:
        for number, job in enumerate(jobs):
            hf.send_event("go", number, job_id=job.id, org_id=ORG)
        results = [job.result(timeout=60) for job in jobs]
    finally:
        worker.stop()
        running.join(60)
    assert results == list(range(30))
