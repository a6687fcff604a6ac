"""Isolated handlers: each runs in a process of its own that is killed at the time limit."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import ConfigError, Context, Holdfast, State, Worker
from holdfast.config import Settings
from holdfast.engine.worker import isolation
from holdfast.store import Store
from tests.story import look


@pytest.fixture
def live(url: str) -> Iterator[Holdfast]:
    with Holdfast(settings=Settings(db=url), default_tenant=True) as made:
        yield made


@pytest.fixture
def note(tmp_path: Path) -> Path:
    return tmp_path / "pid"


def wait_for(path: Path) -> int:
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return int(path.read_text())


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@contextmanager
def running(worker: Worker) -> Iterator[None]:
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.drain()
        thread.join(timeout=60)


def until(condition: Callable[[], object], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_a_handler_that_ignores_its_time_limit_is_killed(live: Holdfast, note: Path) -> None:
    @live.job("match.slowly", isolation="process", timeout=0.5, max_attempts=1)
    def match(job: Context, payload: Any) -> None:
        note.write_text(str(os.getpid()))
        # One call that blocks every other thread of the process.
        re.match(r"(a+)+$", "a" * 60 + "b")

    handle = match.enqueue({})
    with running(live.worker(concurrency=1)):
        assert until(lambda: handle.get().error_class == "HANDLER_TIMEOUT")
        pid = wait_for(note)
        assert pid != os.getpid()
        assert until(lambda: not is_running(pid), seconds=10)

    assert (handle.get().state, handle.get().attempt_count) == (State.FAILED, 1)


def test_a_child_reports_progress_commits_and_returns_its_result(
    live: Holdfast, url: str, note: Path
) -> None:
    @live.job("rows.write", isolation="process")
    async def write(job: Context, rows: int) -> dict[str, int]:
        job.progress(1, rows)
        with job.transaction(complete=True):
            job.set_result({"rows": rows, "pid": os.getpid()})
        return None  # type: ignore[return-value]

    @live.job("rows.count", isolation="process")
    def count() -> int:
        return os.getpid()

    handles = [write.enqueue(rows=3), count.enqueue()]
    live.worker().run(until_idle=True)

    first, second = (handle.get() for handle in handles)
    assert first.result["rows"] == 3
    assert first.progress["done"] == 1
    assert len({first.result["pid"], second.result, os.getpid()}) == 3
    assert [first.state, second.state] == [State.COMPLETED] * 2
    # The connections of the worker survived the children.
    assert look(live.store, "SELECT count(*) AS jobs FROM holdfast.job")[0]["jobs"] == 2


def test_a_child_that_dies_is_a_crashed_attempt(live: Holdfast) -> None:
    @live.job("die.early", isolation="process", max_attempts=1)
    def die(job: Context, payload: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    handle = die.enqueue({})
    worker = live.worker(concurrency=1)
    worker.run_once()

    found = handle.get()
    assert (found.state, found.error_class) == (State.FAILED, "WORKER_CRASHED")


def test_a_child_that_cannot_start_is_replaced_without_an_attempt(
    live: Holdfast, note: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock of another thread is copied by the fork and stays locked in the child."""
    monkeypatch.setattr(isolation, "START_SECONDS", 1.0)
    reopen = live.worker()._isolation.reopen
    assert reopen is not None

    def reopen_at_the_second_host() -> Store:
        host = tmp_path / f"host-{os.getppid()}"
        host.touch()
        if len(list(tmp_path.glob("host-*"))) == 1:
            time.sleep(3600)
        return reopen()

    @live.job("which.process", isolation="process", max_attempts=1)
    def which(job: Context, payload: Any) -> int:
        return os.getpid()

    handle = which.enqueue({})
    worker = live.worker(concurrency=1)
    worker._isolation.reopen = reopen_at_the_second_host
    worker.run_once()

    found = handle.get()
    assert (found.state, found.attempt_count) == (State.COMPLETED, 0)
    assert len(list(tmp_path.glob("host-*"))) == 2


def test_a_cancel_reaches_the_child(live: Holdfast, note: Path) -> None:
    @live.job("wait.long", isolation="process")
    def wait_long(job: Context, payload: Any) -> None:
        note.write_text(str(os.getpid()))
        while True:
            job.raise_if_canceled()
            time.sleep(0.01)

    handle = wait_long.enqueue({})
    with running(live.worker(concurrency=1)):
        pid = wait_for(note)
        handle.cancel()
        assert until(lambda: handle.get().state is State.CANCELED)

    assert handle.get().state is State.CANCELED
    assert until(lambda: not is_running(pid))


def test_the_children_of_a_killed_worker_end(live: Holdfast, note: Path, tmp_path: Path) -> None:
    @live.job("wait.long", isolation="process")
    def wait_long(job: Context, payload: Any) -> None:
        note.write_text(str(os.getpid()))
        time.sleep(3600)

    wait_long.enqueue({})
    live.close()
    pid = os.fork()
    if pid == 0:
        try:
            live.worker(concurrency=1).run_once()
        finally:
            os._exit(0)
    child = wait_for(note)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

    assert until(lambda: not is_running(child))


def test_a_database_in_memory_runs_the_handler_in_the_worker() -> None:
    with Holdfast("sqlite:") as hf:

        @hf.job("which.process", isolation="process")
        def which() -> int:
            return os.getpid()

        handle = which.enqueue()
        hf.worker().run_once()

        assert handle.get().result == os.getpid()
        with pytest.raises(ConfigError, match="must be 'thread' or 'process'"):
            hf.job("no.such", isolation="planet")(lambda job, payload: None)
