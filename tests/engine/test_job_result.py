"""Results of jobs: waiting for them, progress, and handlers that are interrupted."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast import (
    Context,
    FakeClock,
    Gone,
    Holdfast,
    JobFailed,
    Permanent,
    ResultCanceled,
    State,
    Worker,
)
from holdfast.config import Settings
from holdfast.engine import job_result
from tests.story import ORG


@pytest.fixture
def live(url: str) -> Iterator[Holdfast]:
    """An application on the real clock."""
    with Holdfast(settings=Settings(db=url, lease_seconds=6), default_tenant=True) as made:
        yield made


@contextmanager
def working(hf: Holdfast) -> Iterator[Worker]:
    worker = hf.worker(concurrency=2)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.drain()
        thread.join(timeout=30)


class PrinterJam(Permanent):
    """The printer is jammed.

    Fault: the printer. Remedy: remove the paper.
    """

    error_class = "PRINTER_JAM"


def test_a_caller_waits_for_a_result_and_is_woken(
    live: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without polls, only the announcement can wake the caller.
    monkeypatch.setattr(job_result, "FIRST_POLL", 60.0)
    monkeypatch.setattr(job_result, "LAST_POLL", 60.0)
    released = threading.Event()

    @live.job("slow.sum")
    def total(numbers: list[int]) -> int:
        assert released.wait(30)
        return sum(numbers)

    with working(live) as worker:
        first = total.enqueue([1, 2])
        with pytest.raises(TimeoutError, match=r"has not ended within 0\.01 s"):
            first.result(timeout=0.01)

        async def wait_for_both() -> list[int]:
            both = asyncio.gather(*[total.enqueue([1, 2]), first])
            await asyncio.sleep(0)
            deadline = time.monotonic() + 30
            while not _is_awaited(live, worker) and time.monotonic() < deadline:
                await asyncio.sleep(0.01)
            released.set()
            return await asyncio.wait_for(both, 30)

        assert asyncio.run(wait_for_both()) == [3, 3]
        assert total.enqueue([4]).result(timeout=30) == 4


def _is_awaited(hf: Holdfast, worker: Worker) -> bool:
    """Whether the worker knows that a process waits. On SQLite the database file stores it."""
    wake = worker._wake
    return hf.store.is_embedded or (wake is not None and wake.awaited_until > time.monotonic())


def test_a_failure_is_raised_with_its_class(hf: Holdfast) -> None:
    @hf.job("print.page")
    def page(kind: str) -> None:
        raise {"jam": PrinterJam, "gone": Gone, "bug": ZeroDivisionError}[kind]("private")

    handles = {
        kind: page.configure(org_id=ORG).enqueue(kind=kind) for kind in ("jam", "gone", "bug")
    }
    canceled = page.configure(org_id=ORG, delay=60).enqueue(kind="jam")
    canceled.cancel()
    hf.worker().run_once()

    with pytest.raises(PrinterJam) as jam:
        handles["jam"].result(timeout=30)
    assert isinstance(jam.value, JobFailed)
    assert jam.value.error_class == "PRINTER_JAM"
    assert "private" not in str(jam.value)
    with pytest.raises(Gone):
        asyncio.run(asyncio.wait_for(_awaited(handles["gone"]), 30))
    with pytest.raises(JobFailed) as bug:
        handles["bug"].result(timeout=30)
    assert bug.value.error_class == "DEFECT"
    with pytest.raises(ResultCanceled, match="was canceled"):
        canceled.result(timeout=30)


def test_a_class_that_two_modules_declare_is_raised_as_both(hf: Holdfast) -> None:
    class PaperJam(Permanent):
        """Fault: the printer. Remedy: remove the paper."""

        error_class = "PRINTER_JAM"

    @hf.job("print.page")
    def page() -> None:
        raise PaperJam

    handle = page.configure(org_id=ORG).enqueue()
    hf.worker().run_once()

    with pytest.raises(PaperJam) as jam:
        handle.result(timeout=30)
    assert isinstance(jam.value, PrinterJam)


async def _awaited(handle: object) -> object:
    return await handle  # type: ignore[misc]


def test_progress_is_part_of_the_record(hf: Holdfast, clock: FakeClock) -> None:
    @hf.job("pages.read")
    async def read(job: Context, pages: int) -> None:
        await job.aprogress(3, pages, "third page")
        await job.acheckpoint({"page": 3})
        with job.transaction():
            await job.aprogress(4, pages)
        job.progress(5, pages, "fifth page")

    handle = read.configure(org_id=ORG).enqueue(pages=10)
    assert handle.get().progress is None
    hf.worker().run_once()

    assert handle.get().progress == {"done": 5, "total": 10, "note": "fifth page"}
    found = asyncio.run(hf.aget(handle.id, org_id=ORG))
    assert (found.state, found.progress["done"]) == (State.COMPLETED, 5)
    view = hf.operate(actor="user:1", role="admin").jobs.get(handle.id)
    assert view.record["progress"]["note"] == "fifth page"


def test_a_canceled_asynchronous_handler_is_interrupted_at_its_next_await(live: Holdfast) -> None:
    began, ended = threading.Event(), list[str]()

    @live.job("wait.long")
    async def wait_long(job: Context) -> None:
        began.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.append("interrupted")
            raise

    with working(live):
        handle = wait_long.enqueue()
        assert began.wait(30)
        asyncio.run(live.acancel(handle.id))
        with pytest.raises(ResultCanceled):
            handle.result(timeout=30)

    assert ended == ["interrupted"]
    assert handle.get().state is State.CANCELED
