"""The lock file of SQLite: callers wait up to their limit, and never keep it after a timeout."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from holdfast.store.write_lock import WriteLock
from tests.acceptance.processes import wait_until


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "work.db")


@pytest.fixture
def lock(path: str) -> Iterator[WriteLock]:
    made = WriteLock(path, "sqlite:///work.db")
    yield made
    made.close()


@pytest.fixture
def other(path: str, lock: WriteLock) -> Iterator[int]:
    """The lock file as another process has it open; a lock belongs to the open file."""
    fd = os.open(path + ".lock", os.O_RDWR)
    yield fd
    os.close(fd)


def is_free(path: str) -> bool:
    fd = os.open(path + ".lock", os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


@pytest.mark.timeout(60)
def test_a_lock_that_another_process_holds_is_waited_for_as_long_as_asked(
    lock: WriteLock, other: int
) -> None:
    fcntl.flock(other, fcntl.LOCK_EX)

    began = time.monotonic()
    got = [lock.acquire(0.1), lock.acquire(0.1)]

    assert got == [False, False]
    assert time.monotonic() - began < 30
    fcntl.flock(other, fcntl.LOCK_UN)


@pytest.mark.timeout(60)
def test_an_abandoned_wait_leaves_the_lock_to_others(
    lock: WriteLock, other: int, path: str
) -> None:
    fcntl.flock(other, fcntl.LOCK_EX)
    assert not lock.acquire(0.05)

    fcntl.flock(other, fcntl.LOCK_UN)
    wait_until(lambda: not lock._is_waiting)

    assert is_free(path)
    assert lock.acquire(0.05)
    assert not is_free(path)
    lock.release()
    assert is_free(path)


@pytest.mark.timeout(60)
def test_a_request_after_an_abandoned_wait_gets_the_lock(
    lock: WriteLock, other: int, path: str
) -> None:
    fcntl.flock(other, fcntl.LOCK_EX)
    assert not lock.acquire(0.05)
    got: list[bool] = []
    asking = threading.Thread(target=lambda: got.append(lock.acquire()))
    asking.start()
    wait_until(lambda: lock._is_wanted)

    fcntl.flock(other, fcntl.LOCK_UN)
    asking.join(60)

    assert got == [True]
    assert not is_free(path)
    lock.release()
    assert is_free(path)


@pytest.mark.timeout(60)
def test_a_lock_that_is_closed_while_it_is_waited_for_lets_go(
    lock: WriteLock, other: int, path: str
) -> None:
    fcntl.flock(other, fcntl.LOCK_EX)
    assert not lock.acquire(0.05)

    lock.close()
    fcntl.flock(other, fcntl.LOCK_UN)

    wait_until(lambda: is_free(path))


@pytest.mark.timeout(60)
def test_a_lock_that_is_granted_while_it_is_closed_uses_no_closed_file(
    lock: WriteLock, other: int, path: str
) -> None:
    fcntl.flock(other, fcntl.LOCK_EX)
    assert not lock.acquire(0.05)
    close, granted = os.close, threading.Event()

    def close_while_granted(fd: int) -> None:
        close(fd)
        fcntl.flock(other, fcntl.LOCK_UN)
        # The helper thread has the lock now, and time to use its descriptor.
        granted.wait(0.2)

    with mock.patch.object(os, "close", close_while_granted):
        lock.close()

    # An error in the helper thread fails the test.
    wait_until(lambda: not lock._is_waiting and is_free(path))
