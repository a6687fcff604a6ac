"""One job system on one database: fills it, starts its workers, and reads the meters."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bench.peers.adapter import HEAD, KEPT, METER_BYTES
from bench.peers.environments import ROOT, Environment
from bench.peers.host import Server, foreign_share, read_cpu

READY_SECONDS = 60.0
# A drain without one more job started for so long has failed.
STALL_SECONDS = 45.0
CALL_SECONDS = 1800.0
END_SECONDS = 10.0
POLL_SECONDS = 0.005
# 200 jobs 20 ms apart; the worker is idle before each.
PICK_UPS = 200
PAUSE_MS = 20


class Failed(Exception):
    """A phase that could not be measured, with the reason."""


# The results of one phase: names as in the rows of `measures`.
Values = dict[str, float]


class Store(Protocol):
    """The database of one contender."""

    url: str

    @property
    def server_pid(self) -> int | None: ...
    def create(self) -> None: ...
    def drop(self) -> None: ...
    def rest(self) -> None: ...
    def size(self) -> int: ...
    def wal_position(self) -> int: ...


class PostgresStore:
    def __init__(self, server: Server, name: str) -> None:
        self.server, self.name = server, name
        self.url = server.url(name)

    @property
    def server_pid(self) -> int | None:
        return self.server.pid

    def create(self) -> None:
        self.server.create(self.name)

    def drop(self) -> None:
        self.server.drop(self.name)

    def rest(self) -> None:
        self.server.rest(self.name)

    def size(self) -> int:
        return self.server.size(self.name)

    def wal_position(self) -> int:
        return self.server.wal_position()


class SqliteStore:
    server_pid: int | None = None

    def __init__(self, folder: Path, name: str) -> None:
        self.file = folder / f"{name}.db"
        self.url = f"sqlite:///{self.file}"

    def create(self) -> None:
        self.drop()

    def drop(self) -> None:
        for path in self._files():
            path.unlink(missing_ok=True)

    def rest(self) -> None:
        os.sync()

    def size(self) -> int:
        return sum(path.stat().st_size for path in self._files())

    def wal_position(self) -> int:
        return 0

    def _files(self) -> list[Path]:
        return [path for path in self.file.parent.glob(f"{self.file.name}*") if path.is_file()]


@dataclass(slots=True)
class Readings:
    """The meters of all workers of a phase."""

    first: float = 0.0
    last: float = 0.0
    handled: int = 0
    waits: list[float] = field(default_factory=list)


class Contender:
    """A job system in an environment, with a database of its own."""

    def __init__(
        self,
        name: str,
        environment: Environment,
        store: Store,
        folder: Path,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.store = store
        self.folder = folder
        self._environment = environment
        self._extra = dict(extra or {})
        self.log = folder / f"{name}.log"
        self.filled = 0
        self._empty_size = 0

    def describe(self) -> dict[str, Any]:
        return self._call("describe")

    def fresh(self) -> None:
        """Start with an empty, prepared database."""
        self.store.create()
        self._call("prepare")
        self.filled = 0
        self._empty_size = self.store.size()

    def fill(self, jobs: int) -> None:
        self._call("enqueue-bulk", jobs)
        self.filled += jobs

    def discard(self) -> None:
        self.store.drop()
        self.filled = 0

    def enqueue(self, kind: str, jobs: int) -> Values:
        """Time *jobs* enqueues into a fresh database: kind is `one` or `bulk`."""
        self.fresh()
        self._rest()
        wal = self.store.wal_position()
        seconds = self._call(f"enqueue-{kind}", jobs)["seconds"]
        wal = self.store.wal_position() - wal
        self.filled = jobs
        return {"rate": jobs / seconds, "wal": wal / jobs}

    def drain(self, processes: int, jobs: int, *, to_empty: bool = True) -> Values:
        """Time *processes* workers from the first job that starts until *jobs* are done.

        With *to_empty* they are done when the database says so, otherwise when the last started.
        """
        self._rest()
        with self.workers(processes, watch=to_empty) as run:
            wal, cpu = self.store.wal_position(), read_cpu(run.sessions, self.store.server_pid)
            run.go()
            began = time.monotonic()
            readings = run.wait(jobs)
            ended = run.empty_at() if to_empty else readings.last
            cpu_after = read_cpu(run.sessions, self.store.server_pid)
            passed = time.monotonic() - began
            wal = self.store.wal_position() - wal
            size = self.store.size() - self._empty_size
        # Until they ended, the workers executed some more.
        self.filled -= run.executed
        handled = jobs if to_empty else readings.handled
        worker = (cpu_after.workers - cpu.workers) / handled * 1e6
        server = (cpu_after.server - cpu.server) / handled * 1e6
        return {
            "rate": handled / (ended - readings.first),
            "cpu": worker + server,
            "cpu_worker": worker,
            "cpu_server": server,
            "wal": wal / handled,
            "disk": size / handled,
            "foreign": foreign_share(cpu, cpu_after, passed),
        }

    def pick_up(self) -> Values:
        """Time jobs of an idle worker from before the enqueue to the start of the handler."""
        self.fresh()
        self._rest()
        with self.workers(1, watch=False) as run:
            run.go()
            time.sleep(2.0)
            self._call("trickle", PICK_UPS, PAUSE_MS)
            waits = sorted(run.wait(PICK_UPS).waits)
        return {"p50": percentile(waits, 0.50) * 1e3, "p99": percentile(waits, 0.99) * 1e3}

    @contextmanager
    def workers(
        self, processes: int, *, watch: bool, extra: Mapping[str, str] | None = None
    ) -> Iterator[Run]:
        """Start worker processes that wait for the clock; end them and their children."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            run = Run(Path(name))
            try:
                for _ in range(processes):
                    run.processes.append(self.start("work", folder=run.folder, extra=extra))
                if watch:
                    run.watcher = self.start("watch", folder=run.folder)
                run.wait_until_ready()
                yield run
            finally:
                run.end()
                run.executed = run.read().handled

    def start(
        self, *command: object, folder: Path, extra: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        with self.log.open("a") as log:
            return subprocess.Popen(
                [*self._environment.command, *map(str, command)],
                env=self._variables(folder, extra),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if command[0] == "watch" else log,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def _call(self, *command: object) -> dict[str, Any]:
        with self.log.open("a") as log:
            done = subprocess.run(
                [*self._environment.command, *map(str, command)],
                env=self._variables(self.folder),
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                timeout=CALL_SECONDS,
                check=False,
            )
        if done.returncode:
            tail = self.log.read_text()[-500:]
            raise Failed(f"{self.name} {command[0]}: exit code {done.returncode}: {tail}")
        lines = done.stdout.strip().splitlines()
        return dict(json.loads(lines[-1])) if lines else {}

    def _variables(self, folder: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        variables = {**os.environ, **self._environment.env, **self._extra, **(extra or {})}
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        return {**variables, "BENCH_URL": self.store.url, "BENCH_FOLDER": str(folder)}

    def _rest(self) -> None:
        self.store.rest()
        time.sleep(0.3)


class Run:
    """The worker processes of one phase."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []
        self.watcher: subprocess.Popen[str] | None = None
        self.executed = 0

    @property
    def sessions(self) -> frozenset[int]:
        return frozenset(process.pid for process in self.processes)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while len(list(self.folder.glob("ready.*"))) < len(self.processes) or (
            self.watcher is not None and not (self.folder / "watching").exists()
        ):
            self._check_alive()
            if time.monotonic() > deadline:
                raise Failed(f"the workers were not ready after {READY_SECONDS:.0f} seconds")
            time.sleep(0.01)

    def go(self) -> None:
        (self.folder / "go").touch()

    def wait(self, jobs: int) -> Readings:
        """Wait until *jobs* have started."""
        seen, moved = 0, time.monotonic()
        while (readings := self.read()).handled < jobs:
            self._check_alive()
            if readings.handled > seen:
                seen, moved = readings.handled, time.monotonic()
            elif time.monotonic() - moved > STALL_SECONDS:
                raise Failed(f"stopped at {seen} of {jobs} jobs")
            time.sleep(POLL_SECONDS)
        return readings

    def empty_at(self) -> float:
        """Return when the database reports that no job is left."""
        assert self.watcher is not None
        (self.folder / "handled").touch()
        try:
            answer, _ = self.watcher.communicate(timeout=STALL_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise Failed("jobs were executed but not recorded as done") from error
        if not answer:
            raise Failed("the process that watches the database ended")
        return float(json.loads(answer)["empty_at"])

    def read(self) -> Readings:
        found = Readings()
        for path in self.folder.glob("*.meter"):
            page = path.read_bytes()
            if len(page) < METER_BYTES:
                continue
            first, last, handled = HEAD.unpack_from(page)
            if handled:
                found.first = min(found.first or first, first)
                found.last = max(found.last, last)
                found.handled += handled
                found.waits += struct.unpack_from(f"<{min(handled, KEPT)}d", page, 64)
        return found

    def end(self) -> None:
        processes = [*self.processes, *([self.watcher] if self.watcher else [])]
        for process in processes:
            _signal(process, signal.SIGTERM)
        deadline = time.monotonic() + END_SECONDS
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            _signal(process, signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _check_alive(self) -> None:
        for process in self.processes:
            if process.poll() is not None:
                raise Failed(f"a worker ended with exit code {process.returncode}")


def _signal(process: subprocess.Popen[str], how: signal.Signals) -> None:
    """Signal the session of *process*, with its children."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, how)


def percentile(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, round(part * (len(ordered) - 1)))]
