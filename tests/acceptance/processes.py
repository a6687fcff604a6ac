"""Real worker processes, and patience with a limit."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast import Enqueued, Holdfast, State
from tests.acceptance.app import make

ROOT = Path(__file__).resolve().parent.parent.parent

# Forked from a clean process that has imported everything: a worker starts in milliseconds and
# inherits no thread, lock or connection of the test.
SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(["tests.acceptance.app", "psycopg"])


_started: list[multiprocessing.process.BaseProcess] = []
_commands: list[subprocess.Popen[str]] = []


def start_worker(url: str, **options: Any) -> multiprocessing.process.BaseProcess:
    process = SPAWN.Process(target=_work, args=(url, options), daemon=True)
    process.start()
    _started.append(process)
    return process


def kill_all() -> None:
    """End whatever a test started and did not end itself."""
    for process in _started:
        process.kill()
        process.join()
    for command in _commands:
        if command.poll() is None:
            os.killpg(command.pid, signal.SIGKILL)
        command.communicate()
    _started.clear()
    _commands.clear()


def _work(url: str, options: dict[str, Any]) -> None:
    settings = options.pop("settings", {})
    hf = make(url, **settings)
    running = hf.worker(**{"concurrency": 4, **options})
    signal.signal(signal.SIGTERM, lambda *_: running.drain())
    running.run()


def holdfast(url: str, *arguments: str) -> subprocess.Popen[str]:
    """The command line in a process of its own."""
    command = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "--app", "tests.acceptance.app:hf", *arguments],
        env={**os.environ, "HOLDFAST_DB": url},
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    _commands.append(command)
    return command


def wait_until(true: Callable[[], bool], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"not true after {seconds} seconds")
        time.sleep(0.01)


def all_in(hf: Holdfast, jobs: Sequence[Enqueued], *states: State) -> bool:
    return all(hf.get(job.id, org_id=job.org_id).state in states for job in jobs)
