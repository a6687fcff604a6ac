"""The machine: its description, processor time, and a private durable PostgreSQL."""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier, Literal

from tests.postgres_server import PostgresServer

TICK = os.sysconf("SC_CLK_TCK")
# Above the defaults of a test server, so that its small cache limits no contender; the harness runs
# the vacuum between phases.
SERVER_SETTINGS = {"shared_buffers": "512MB", "autovacuum_naptime": "60s"}


@dataclass(frozen=True, slots=True)
class Cpu:
    """Processor seconds so far."""

    workers: float
    server: float
    harness: float
    machine: float


def read_cpu(sessions: frozenset[int], server: int | None) -> Cpu:
    """Read the time of the worker *sessions*, of the server and its children, and of all."""
    workers = spent = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parent, session = int(fields[1]), int(fields[3])
        own, ended = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
        if session in sessions:
            workers += own + ended
        elif server is not None and int(folder.name) == server:
            # A backend's time is the server's once the backend has ended.
            spent += own + ended
        elif server is not None and parent == server:
            spent += own
    with open("/proc/stat") as file:
        user, nice, system, _idle, _wait, irq, soft, steal = map(int, file.readline().split()[1:9])
    busy = user + nice + system + irq + soft + steal
    return Cpu(workers / TICK, spent / TICK, sum(os.times()[:4]), busy / TICK)


def foreign_share(before: Cpu, after: Cpu, seconds: float) -> float:
    """Return the share of the machine that neither contender, server nor harness used."""
    used = after.machine - before.machine
    used -= after.workers - before.workers + after.server - before.server
    used -= after.harness - before.harness
    return max(0.0, used / (seconds * (os.cpu_count() or 1)))


def describe_machine(folder: Path) -> str:
    """Cores, memory, system, Python, and how long the disk takes for a commit."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        system = platform.system()
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GiB, {system}, Python {platform.python_version()},"
        f" `fdatasync` {sync_ms(folder):.2f} ms"
    )


def sync_ms(folder: Path) -> float:
    """Return the median milliseconds of a synced write of 8 KiB."""
    found = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(100):
            began = time.perf_counter()
            os.pwrite(file.fileno(), b"x" * 8192, 0)
            os.fdatasync(file.fileno())
            found.append((time.perf_counter() - began) * 1e3)
    return statistics.median(found)


class Server:
    """A private PostgreSQL with durable commits and the same settings for every contender."""

    def __init__(self) -> None:
        self._server = PostgresServer(durable=True)
        try:
            with self._connect("postgres") as admin:
                for name, value in SERVER_SETTINGS.items():
                    change = SQL("ALTER SYSTEM SET {} = {}")
                    admin.execute(change.format(Identifier(name), Literal(value)))
                row = admin.execute("SHOW server_version").fetchone()
            self.version = row[0].split()[0] if row else ""
            self._server.stop()
            self._server.start()
        except BaseException:
            self._server.close()
            raise

    @property
    def pid(self) -> int:
        assert self._server.process is not None
        return self._server.process.pid

    def url(self, name: str) -> str:
        return self._server.dsn(name)

    def create(self, name: str) -> None:
        """Create the database *name*, empty."""
        self.drop(name)
        with self._connect("postgres") as admin:
            admin.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))

    def drop(self, name: str) -> None:
        with self._connect("postgres") as admin:
            admin.execute(SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(Identifier(name)))

    def rest(self, name: str) -> None:
        """Finish the maintenance of earlier phases, so that it does not slow the next one."""
        with self._connect(name) as admin:
            admin.execute("VACUUM (ANALYZE)")
            admin.execute("CHECKPOINT")

    def wal_position(self) -> int:
        return self._number("postgres", "SELECT pg_current_wal_insert_lsn() - '0/0'")

    def size(self, name: str) -> int:
        return self._number(name, "SELECT pg_database_size(current_database())")

    @contextmanager
    def held_snapshot(self, name: str) -> Iterator[None]:
        """Keep a snapshot open in another session, as a backup or a long report does."""
        with self._connect(name) as session:
            session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            session.execute("SELECT count(*) FROM pg_class")
            yield
            session.execute("ROLLBACK")

    def close(self) -> None:
        self._server.stop()
        self._server.close()

    def _connect(self, name: str) -> psycopg.Connection:
        return psycopg.connect(self.url(name), autocommit=True)

    def _number(self, name: str, text: str) -> int:
        with self._connect(name) as admin:
            row = admin.execute(text.encode()).fetchone()
        assert row is not None
        return int(row[0])
