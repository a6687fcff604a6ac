"""Real processes: workers, commands of the command line, and a wait with a limit."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from holdfast import Enqueued, Holdfast, State
from holdfast.engine import maintenance
from tests.acceptance.app import make
from tests.forking import SPAWN

ROOT = Path(__file__).resolve().parent.parent.parent
# A new process rescues nothing until live workers could have connected again, which takes up to
# four seconds after an outage. Only a test with an outage passes that limit.
RECONNECT_SECONDS = 0.2

_started: list[multiprocessing.process.BaseProcess] = []
_commands: list[Command] = []


def fork(target: Callable[..., object], *args: Any) -> multiprocessing.process.BaseProcess:
    """Run ``target(*args)`` in a process of its own. Both are pickled.

    The process imports the module of *target*: a module that imports little starts faster.
    """
    process = SPAWN.Process(target=target, args=args, daemon=True)
    process.start()
    _started.append(process)
    return process


def start_worker(url: str, **options: Any) -> multiprocessing.process.BaseProcess:
    return fork(_work, url, options)


def kill_all() -> None:
    """End every process that a test started and did not end itself."""
    for process in _started:
        process.kill()
        process.join()
    for command in _commands:
        command.kill()
    _started.clear()
    _commands.clear()


# Before multiprocessing waits for the processes that still run.
atexit.register(kill_all)


def _work(url: str, options: dict[str, Any]) -> None:
    _rescue_soon(options.pop("reconnect_seconds", RECONNECT_SECONDS))
    settings = options.pop("settings", {})
    hf = make(url, **settings)
    running = hf.worker(**{"concurrency": 4, **options})
    signal.signal(signal.SIGTERM, lambda *_: running.drain())
    running.run()


def _rescue_soon(reconnect_seconds: float) -> None:
    """Let a new process rescue before other workers could have connected again."""
    maintenance.RECONNECT_SECONDS = reconnect_seconds


class Command:
    """``holdfast`` with *arguments* in a forked process, as ``python -m holdfast`` runs it.

    The process leads a group of its own. If it is a supervisor, its worker processes are forked
    too, unless *forks* is false: then it starts them with a new interpreter.
    """

    def __init__(
        self, *arguments: str, env: Mapping[str, str] | None = None, forks: bool = True
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-command-")
        self._process = SPAWN.Process(
            target=_command, args=(arguments, dict(env or {}), self._folder.name, forks)
        )
        self._process.start()
        _commands.append(self)

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        """The exit code; None while the command runs."""
        return self._process.exitcode

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def log(self) -> str:
        """What the command and its worker processes have written to stderr so far."""
        return self._read("stderr")

    def wait(self, timeout: float = 90.0) -> tuple[str, str]:
        """Wait for the end of the command; return what it wrote to stdout and stderr."""
        self._process.join(timeout)
        if self.returncode is None:
            raise AssertionError(f"the command runs after {timeout} seconds: {self.log()}")
        return self._read("stdout"), self.log()

    def kill(self) -> None:
        """End the command and its worker processes."""
        if self._process.is_alive():
            for number in (*self._read("groups").split(), self.pid):
                with suppress(ProcessLookupError):
                    os.killpg(int(number), signal.SIGKILL)
            self._process.kill()
        self._process.join()
        self._folder.cleanup()

    def _read(self, name: str) -> str:
        path = Path(self._folder.name, name)
        return path.read_text() if path.exists() else ""


def _command(arguments: Sequence[str], env: dict[str, str], folder: str, forks: bool) -> None:
    from holdfast.cli import main
    from holdfast.engine.worker import supervisor

    _rescue_soon(RECONNECT_SECONDS)
    os.setsid()
    os.chdir(ROOT)
    os.environ.update(env)
    for number, name in ((1, "stdout"), (2, "stderr")):
        written = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(written, number)
    if forks:
        start = partial(_Child, env, folder)
        supervisor.subprocess = SimpleNamespace(Popen=start)  # type: ignore[assignment]
    sys.argv = ["holdfast", *arguments]
    main()


class _Child:
    """A worker process of a supervisor; the part of ``Popen`` that a supervisor uses."""

    def __init__(
        self, env: dict[str, str], folder: str, command: Sequence[str], *, start_new_session: bool
    ) -> None:
        assert start_new_session
        assert list(command[:3]) == [sys.executable, "-m", "holdfast"]
        given = (tuple(command[3:]), env, folder, False)
        self._process = SPAWN.Process(target=_command, args=given, daemon=True)
        self._process.start()
        with Path(folder, "groups").open("a") as file:
            file.write(f"{self._process.pid}\n")

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self._process.pid or 0, number)


def holdfast(url: str, *arguments: str, **options: Any) -> Command:
    """The command line in a process of its own, with the application of these tests."""
    given = ("--app", "tests.acceptance.app:hf", *arguments)
    return Command(*given, env={"HOLDFAST_DB": url}, **options)


def wait_until(true: Callable[[], bool], seconds: float = 90.0) -> None:
    """Wait until *true* holds. The interval between checks grows, because a check costs time."""
    deadline = time.monotonic() + seconds
    pause = 0.005
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"not true after {seconds} seconds")
        time.sleep(pause)
        pause = min(pause * 1.2, 0.05)


def all_in(hf: Holdfast, jobs: Sequence[Enqueued], *states: State) -> bool:
    return all(hf.get(job.id, org_id=job.org_id).state in states for job in jobs)
