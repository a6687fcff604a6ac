"""A failed job is retried up to its limits, and no longer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    AuthDenied,
    ConfigInvalid,
    FakeClock,
    Gone,
    Holdfast,
    Job,
    NetworkTimeout,
    PolicyRejected,
    RateLimited,
    RetryPolicy,
    RuleViolated,
    SchemaInvalid,
    State,
    Transient,
    UpstreamDown,
    UpstreamError,
    WriteConflict,
)
from holdfast.event import Event, JobSettled
from tests.story import ORG, timeline


def failing(hf: Holdfast, faults: Callable[[int], BaseException | None], **options: Any) -> str:
    """A job whose attempt n raises what *faults* returns for n."""

    @hf.job("flaky.work", **options)
    def work(job: Any, payload: object) -> str:
        fault = faults(job.attempt)
        if fault is not None:
            raise fault
        return "done"

    return hf.enqueue("flaky.work", {}, org_id=ORG).id


def run_to_end(hf: Holdfast, clock: FakeClock, job_id: str) -> Job:
    for _ in range(30):
        hf.worker().run_once()
        job = hf.get(job_id, org_id=ORG)
        if job.state.is_terminal:
            return job
        clock.advance(hours=1)
    raise AssertionError("the job never ended")


TRANSIENT = {
    "timeout.error": TimeoutError(),
    "tcp.reset": ConnectionResetError(),
    "network.timeout": NetworkTimeout(),
    "upstream.down": UpstreamDown(),
    "rate.limited": RateLimited(),
    "upstream.error": UpstreamError(),
    "write.conflict": WriteConflict(),
}


@pytest.mark.req("R-02", "R-03", "R-04", "R-05", "R-12")
def test_a_transient_failure_is_tried_again_until_it_passes(hf: Holdfast, clock: FakeClock) -> None:
    def flaky(job: Any, payload: object) -> str:
        if job.attempt < 3:
            raise TRANSIENT[job.job_type]
        return "done"

    jobs = []
    for name in TRANSIENT:
        hf.job(name)(flaky)
        jobs.append(hf.enqueue(name, {}, org_id=ORG))

    for enqueued in jobs:
        job = run_to_end(hf, clock, enqueued.id)
        assert (job.state, job.attempt_count, job.result) == (State.COMPLETED, 2, "done")
        assert timeline(hf, job) == [
            "job.enqueued",
            *["job.started", "job.failed", "job.retried"] * 2,
            "job.started", "job.succeeded",
        ]  # fmt: skip


PERMANENT = {
    "schema.invalid": SchemaInvalid(),
    "auth.denied": AuthDenied(),
    "gone.away": Gone(),
    "policy.rejected": PolicyRejected(),
    "config.invalid": ConfigInvalid(),
    "plain.bug": AttributeError("no such thing"),
    "rule.violated": RuleViolated(),
}


@pytest.mark.req("R-01", "R-06", "R-07", "R-08", "R-09", "R-10", "R-11")
def test_a_permanent_failure_is_dead_lettered_at_once(hf: Holdfast) -> None:
    def failing_at_once(job: Any, payload: object) -> None:
        raise PERMANENT[job.job_type]

    jobs = []
    for name in PERMANENT:
        hf.job(name)(failing_at_once)
        jobs.append(hf.enqueue(name, {}, org_id=ORG))

    hf.worker().run_once()

    for enqueued in jobs:
        job = hf.get(enqueued.id, org_id=ORG)
        assert (job.state, job.attempt_count, job.queue) == (State.FAILED, 1, "q:deadletter")
        assert timeline(hf, job) == [
            "job.enqueued", "job.started", "job.failed", "job.deadlettered",
        ]  # fmt: skip


@pytest.mark.req("R-10")
@pytest.mark.parametrize(
    ("fault", "loud"), [(KeyError("x"), True), (ConfigInvalid(), True), (SchemaInvalid(), False)]
)
def test_a_bug_pages_the_operator(hf: Holdfast, fault: BaseException, loud: bool) -> None:
    heard: list[Event] = []
    hf.events.subscribe(heard.append)
    failing(hf, lambda attempt: fault)

    hf.worker().run_once()

    (settled,) = [event for event in heard if isinstance(event, JobSettled)]
    assert (settled.outcome, settled.pages_operator) == ("dead", loud)


@pytest.mark.req("R-26")
def test_a_failure_reclassified_as_permanent_stops_the_retries_at_once(
    hf: Holdfast, clock: FakeClock
) -> None:
    job_id = failing(hf, lambda attempt: Transient() if attempt == 1 else SchemaInvalid())

    job = run_to_end(hf, clock, job_id)

    assert (job.state, job.attempt_count, job.max_attempts) == (State.FAILED, 2, 5)
    assert job.error_class == "SCHEMA_INVALID"


@pytest.mark.parametrize(
    ("category", "attempts"),
    [
        pytest.param("general", 5, marks=pytest.mark.req("R-27", "R-04")),
        pytest.param("notification", 10, marks=pytest.mark.req("R-28")),
        pytest.param("planning", 3, marks=pytest.mark.req("R-29")),
        pytest.param("export", 5, marks=pytest.mark.req("R-30")),
    ],
)
def test_a_job_is_tried_as_often_as_its_category_says_and_then_fails_for_good(
    hf: Holdfast, clock: FakeClock, category: str, attempts: int
) -> None:
    job_id = failing(hf, lambda attempt: UpstreamError(), category=category)

    job = run_to_end(hf, clock, job_id)

    assert (job.state, job.attempt_count) == (State.FAILED, attempts)
    assert timeline(hf, job).count("job.started") == attempts
    assert timeline(hf, job).count("job.deadlettered") == 1


@pytest.mark.req("J-06")
def test_a_failed_job_says_what_and_when(hf: Holdfast, clock: FakeClock) -> None:
    job_id = failing(hf, lambda attempt: UpstreamError(status=500), max_attempts=1)

    hf.worker().run_once()

    job = hf.get(job_id, org_id=ORG)
    assert job.last_error == "UPSTREAM_ERROR stage=run attempt=1 status=500"
    assert job.record["last_error_at"] == clock.now()


@pytest.mark.req("R-03", "R-25")
@pytest.mark.parametrize(("asked", "waited"), [(90, 90), (100_000, 300)])
def test_a_retry_after_from_upstream_is_honoured_up_to_five_minutes(
    hf: Holdfast, clock: FakeClock, asked: int, waited: int
) -> None:
    job_id = failing(
        hf,
        lambda attempt: RateLimited(retry_after=asked),
        retry=RetryPolicy(first=timedelta(seconds=1), longest=timedelta(seconds=60)),
    )

    hf.worker().run_once()

    due = hf.get(job_id, org_id=ORG).record["not_before_at"]
    assert due == clock.now() + timedelta(seconds=waited)


@pytest.mark.req("R-24")
def test_a_delay_is_computed_when_the_attempt_fails_from_the_policy_in_force_then(
    hf: Holdfast, clock: FakeClock
) -> None:
    job_id = failing(
        hf, lambda attempt: Transient(), retry=RetryPolicy(steps=(timedelta(seconds=10),))
    )
    hf.worker().run_once()
    first_due = hf.get(job_id, org_id=ORG).record["not_before_at"]
    clock.advance(seconds=10)

    del hf.registry.handlers["flaky.work"]
    hf.job("flaky.work", retry=RetryPolicy(steps=(timedelta(seconds=99),)))(_fail)
    hf.worker().run_once()

    job = hf.get(job_id, org_id=ORG)
    assert first_due == clock.now()
    assert job.record["not_before_at"] == clock.now() + timedelta(seconds=99)


def _fail(job: object, payload: object) -> None:
    raise Transient


@pytest.mark.req("R-23")
def test_two_jobs_that_fail_together_are_not_retried_together(
    hf: Holdfast, clock: FakeClock
) -> None:
    hf.job("flaky.work")(_fail)
    jobs = hf.enqueue_many("flaky.work", [{} for _ in range(20)], org_id=ORG)

    hf.worker().run_once()

    dues = {hf.get(item.id, org_id=ORG).record["not_before_at"] for item in jobs}
    assert len(dues) > 15
    assert max(dues) <= clock.now() + timedelta(seconds=5)


def test_a_retry_after_that_is_no_length_is_ignored(hf: Holdfast) -> None:
    class Sloppy(Transient):
        retry_after = "soon"  # type: ignore[assignment]

        def __init__(self) -> None:
            self.args = ()

    job_id = failing(hf, lambda attempt: Sloppy())

    counts = hf.worker().run_once()

    assert counts.outcomes == {"retry": 1}
    assert hf.get(job_id, org_id=ORG).state is State.QUEUED
