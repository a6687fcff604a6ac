"""One handler call for many jobs: each keeps its own lease, attempt and outcome."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import Context, FakeClock, Holdfast, Permanent, Snooze, State, Transient
from holdfast.clock import SystemClock
from holdfast.config import Settings
from holdfast.engine.maintenance import rescue_jobs
from holdfast.errors import ConfigError, InvalidJob
from tests.engine.test_unique import is_clean
from tests.rows import expire_lease
from tests.story import ORG, OTHER_ORG, events, look, timeline

TYPE = "search.index"


def put(hf: Holdfast, *numbers: int, org_id: str = ORG, **options: Any) -> list[Any]:
    return hf.enqueue_many(TYPE, [{"n": n} for n in numbers], org_id=org_id, **options)


def states(hf: Holdfast, jobs: list[Any]) -> list[State]:
    return [hf.get(job.id, org_id=job.org_id).state for job in jobs]


def results(hf: Holdfast, jobs: list[Any]) -> list[Any]:
    return [hf.get(job.id, org_id=job.org_id).result for job in jobs]


def run_once(hf: Holdfast) -> None:
    hf.worker().run_once()


def run_worker(hf: Holdfast) -> None:
    hf.worker(concurrency=2).run(until_idle=True)


RUNS = pytest.mark.parametrize("run", [run_once, run_worker])
Run = Callable[[Holdfast], None]


@RUNS
def test_a_call_takes_the_jobs_of_one_tenant_up_to_its_size(hf: Holdfast, run: Run) -> None:
    calls: list[list[int]] = []

    @hf.job(TYPE, batch_size=4, batch_wait=0.5)
    def index(jobs: list[Context], payloads: list[dict[str, int]]) -> list[int]:
        assert len({job.org_id for job in jobs}) == 1
        calls.append([payload["n"] for payload in payloads])
        return [10 * payload["n"] for payload in payloads]

    mine, others = put(hf, 1, 2, 3, 4, 5), put(hf, 6, 7, org_id=OTHER_ORG)
    run(hf)

    assert sorted(map(len, calls)) == [1, 2, 4]
    assert results(hf, mine) == [10, 20, 30, 40, 50]
    assert results(hf, others) == [60, 70]
    assert timeline(hf, mine[0]) == ["job.enqueued", "job.started", "job.succeeded"]
    assert is_clean(hf)


@RUNS
def test_an_asynchronous_handler_takes_many_jobs_too(hf: Holdfast, run: Run) -> None:
    sizes: list[int] = []

    @hf.job(TYPE, batch_size=3, batch_wait=0.5)
    async def index(jobs: Any, payloads: Any) -> Any:
        await asyncio.sleep(0)
        sizes.append(len(jobs))
        return [payload["n"] for payload in payloads]

    jobs = put(hf, 1, 2, 3)
    run(hf)

    assert (sizes, results(hf, jobs)) == ([3], [1, 2, 3])
    assert is_clean(hf)


@RUNS
def test_an_exception_in_the_place_of_a_result_fails_that_job_only(hf: Holdfast, run: Run) -> None:
    @hf.job(TYPE, batch_size=10, batch_wait=0.2, max_attempts=2)
    def index(jobs: Any, payloads: Any) -> Any:
        ends = {2: Permanent("no"), 3: Transient("again"), 4: Snooze(60)}
        return [ends.get(payload["n"], "done") for payload in payloads]

    jobs = put(hf, 1, 2, 3, 4)
    run(hf)

    assert states(hf, jobs) == [State.COMPLETED, State.FAILED, State.QUEUED, State.QUEUED]
    records = [hf.get(job.id, org_id=ORG).record for job in jobs]
    assert [record["attempt_count"] for record in records] == [0, 1, 1, 0]
    assert timeline(hf, jobs[3])[-1] == "job.snoozed"
    assert is_clean(hf)


@RUNS
@pytest.mark.parametrize("is_async", [False, True])
def test_an_exception_of_the_call_fails_every_job(hf: Holdfast, run: Run, is_async: bool) -> None:
    def fail(jobs: Any, payloads: Any) -> Any:
        raise Transient("all")

    async def afail(jobs: Any, payloads: Any) -> Any:
        raise Transient("all")

    hf.job(TYPE, batch_size=10, batch_wait=0.2)(afail if is_async else fail)
    jobs = put(hf, 1, 2)
    run(hf)

    assert states(hf, jobs) == [State.QUEUED, State.QUEUED]
    assert [timeline(hf, job)[-2:] for job in jobs] == [["job.failed", "job.retried"]] * 2


@pytest.mark.parametrize("value", [[1], [1, 2, 3], "ab", {"a": 1}, 7])
def test_a_wrong_number_of_results_is_a_defect_of_the_handler(hf: Holdfast, value: Any) -> None:
    hf.job(TYPE, batch_size=10)(lambda jobs, payloads: value)
    jobs = put(hf, 1, 2)
    run_once(hf)

    assert states(hf, jobs) == [State.FAILED, State.FAILED]
    record = hf.get(jobs[0].id, org_id=ORG).record
    assert record["error_class"] == "RESULT_INVALID"


def test_without_a_result_every_job_completes(hf: Holdfast) -> None:
    hf.job(TYPE, batch_size=10)(lambda jobs, payloads: None)
    jobs = put(hf, 1, 2)
    run_once(hf)

    assert states(hf, jobs) == [State.COMPLETED, State.COMPLETED]


def test_the_first_job_waits_for_others_and_no_longer_than_the_limit(url: str) -> None:
    sizes: list[int] = []
    first = threading.Event()
    with Holdfast(settings=Settings(db=url), clock=SystemClock()) as hf:

        @hf.job(TYPE, batch_size=3, batch_wait=30)
        def index(jobs: Any, payloads: Any) -> None:
            sizes.append(len(jobs))
            first.set()

        worker = hf.worker(concurrency=2)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            for number in range(3):
                put(hf, number)
            assert first.wait(25), "a full call does not wait"
        finally:
            worker.drain()
            thread.join(60)
        assert sizes == [3]


def test_a_drain_releases_the_jobs_that_wait_for_others(url: str) -> None:
    with Holdfast(settings=Settings(db=url), clock=SystemClock()) as hf:
        hf.job(TYPE, batch_size=3, batch_wait=60)(lambda jobs, payloads: None)
        (job,) = put(hf, 1)
        worker = hf.worker(concurrency=2)
        thread = threading.Thread(target=worker.run)
        thread.start()
        wait_for(lambda: states(hf, [job]) == [State.PROCESSING])
        worker.drain()
        thread.join(60)

        assert states(hf, [job]) == [State.QUEUED]
        assert timeline(hf, job)[-1] == "job.released"
        assert is_clean(hf)


def test_a_job_whose_lease_was_lost_takes_no_outcome_and_the_others_do(
    hf: Holdfast, clock: FakeClock
) -> None:
    @hf.job(TYPE, batch_size=10)
    def index(jobs: Any, payloads: Any) -> Any:
        # The second job is rescued and claimed by another worker meanwhile.
        expire_lease(hf.store, jobs[1].id)
        assert len(rescue_jobs(hf.store, limit=5)) == 1
        return ["late", "late", "late"]

    jobs = put(hf, 1, 2, 3)
    run_once(hf)

    assert states(hf, jobs) == [State.COMPLETED, State.QUEUED, State.COMPLETED]
    assert "job.lease_lost" in timeline(hf, jobs[1])
    assert hf.get(jobs[1].id, org_id=ORG).record["attempt_count"] == 1


def test_a_canceled_job_ends_alone(url: str) -> None:
    """The call continues for the others; the canceled job is canceled by its own outcome."""
    started, go = threading.Event(), threading.Event()
    with Holdfast(settings=Settings(db=url), clock=SystemClock()) as hf:

        @hf.job(TYPE, batch_size=2, batch_wait=30)
        def index(jobs: Any, payloads: Any) -> Any:
            started.set()
            go.wait(60)
            found: list[Any] = []
            for job in jobs:
                try:
                    job.raise_if_canceled()
                    found.append("done")
                except BaseException as exc:
                    found.append(exc)
            return found

        jobs = put(hf, 1, 2)
        worker = hf.worker(concurrency=2)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            assert started.wait(60)
            hf.cancel(jobs[0].id, org_id=ORG)
            claims = [claim for claim in worker._in_flight.values() if claim.job.id == jobs[0].id]
            wait_for(lambda: claims[0].token.is_set)
            go.set()
            wait_for(lambda: State.PROCESSING not in states(hf, jobs))
        finally:
            go.set()
            worker.drain()
            thread.join(60)

        assert states(hf, jobs) == [State.CANCELED, State.COMPLETED]
        assert is_clean(hf)


@pytest.mark.parametrize("is_async", [False, True])
def test_the_time_limit_ends_the_call_for_every_job(url: str, is_async: bool) -> None:
    hold = threading.Event()

    def stuck(jobs: Any, payloads: Any) -> None:
        hold.wait(60)

    async def astuck(jobs: Any, payloads: Any) -> None:
        await asyncio.sleep(60)

    with Holdfast(settings=Settings(db=url), clock=SystemClock()) as hf:
        options: dict[str, Any] = {"batch_size": 2, "batch_wait": 30, "timeout": 0.3}
        hf.job(TYPE, max_attempts=1, **options)(astuck if is_async else stuck)
        jobs = put(hf, 1, 2)
        worker = hf.worker(concurrency=2)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            wait_for(lambda: states(hf, jobs) == [State.FAILED, State.FAILED])
        finally:
            hold.set()
            worker.drain()
            thread.join(60)
        failed = [event for event in events(hf, jobs[1]) if event["name"] == "job.failed"]
        assert "TIMEOUT" in str(failed[0]["detail"])
        assert is_clean(hf)


def test_a_job_may_complete_in_its_own_transaction(hf: Holdfast) -> None:
    @hf.job(TYPE, batch_size=10)
    def index(jobs: Any, payloads: Any) -> None:
        with jobs[0].transaction(complete=True):
            jobs[0].set_result("own")

    jobs = put(hf, 1, 2)
    run_once(hf)

    assert results(hf, jobs) == ["own", None]
    assert states(hf, jobs) == [State.COMPLETED, State.COMPLETED]


@dataclass
class Document:
    n: int


def test_payloads_are_read_as_the_annotation_says(hf: Holdfast) -> None:
    @hf.job(TYPE, batch_size=10)
    def index(jobs: list[Context], payloads: list[Document]) -> list[int]:
        return [document.n + 1 for document in payloads]

    with pytest.raises(InvalidJob):
        index.configure(org_id=ORG).enqueue(Document("x"))  # type: ignore[arg-type, call-arg]
    jobs = index.configure(org_id=ORG).enqueue_many([Document(1), Document(2)])
    by_hand_bad = look(hf.store, "SELECT count(*) AS n FROM holdfast.job")
    run_once(hf)

    assert by_hand_bad == [{"n": 2}]
    assert results(hf, jobs) == [2, 3]


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 0},
        {"batch_size": 1_001},
        {"batch_size": True},
        {"batch_size": 5, "batch_wait": -1},
        {"batch_size": 5, "batch_wait": "2m"},
        {"batch_wait": 1},
        {"batch_size": 5, "isolation": "process"},
        {"batch_size": 5, "category": "export"},
    ],
)
def test_bad_options_are_refused_when_declared(hf: Holdfast, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="batch_"):
        hf.job(TYPE, **options)(lambda jobs, payloads: None)


def test_a_handler_of_many_jobs_takes_two_lists_and_a_pipeline_takes_none(hf: Holdfast) -> None:
    with pytest.raises(ConfigError, match="two arguments"):
        hf.job(TYPE, batch_size=5)(lambda jobs, payloads, more: None)
    with pytest.raises(ConfigError, match="one stage"):
        hf.pipeline(TYPE, batch_size=5)


def wait_for(condition: Callable[[], bool]) -> None:
    clock = SystemClock()
    until = clock.monotonic() + 60
    while not condition():
        assert clock.monotonic() < until, "it did not happen in time"
        threading.Event().wait(0.02)
