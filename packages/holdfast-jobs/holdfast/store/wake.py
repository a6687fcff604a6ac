"""Wake-up on PostgreSQL: NOTIFY after commit, LISTEN on a dedicated connection.

Only a hint. A lost notification, or a pooler that does not forward them, costs one poll interval.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import psycopg
from psycopg import sql

from holdfast.store.libpq import CONNECT, Connection
from holdfast.store.store import AWAITING, WakeUp

CHANNEL = "holdfast:"
# One notification per queue in this interval is enough: an awake worker polls.
ANNOUNCE_EVERY_SECONDS = 0.01
RETRY_SECONDS = 2.0
# A process that waits for results says so every few seconds.
AWAITED_SECONDS = 10.0
_AWAITING = (CHANNEL + AWAITING).encode()


class Announcer:
    """Sends notifications from its own thread, so that no enqueue waits for one."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._wanted: set[str] = set()
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="holdfast-announcer", daemon=True)
        self._thread.start()

    def announce(self, channels: Sequence[str]) -> None:
        with self._lock:
            self._wanted.update(channels)
        if not self._news.is_set():
            self._news.set()

    def _run(self) -> None:
        connection: Connection | None = None
        while True:
            self._news.wait()
            self._news.clear()
            with self._lock:
                wanted, self._wanted = self._wanted, set()
            try:
                if wanted and connection is None:
                    connection = psycopg.connect(self._dsn, **CONNECT)
                    # A hint need not survive a crash, so its commit need not wait for the disk.
                    connection.execute("SET synchronous_commit = off")
                for channel in sorted(wanted):
                    if connection is not None:
                        connection.execute("SELECT pg_notify(%s, '')", (CHANNEL + channel,))
            except psycopg.Error:
                # Only a hint was lost: polling finds the jobs.
                connection = None
            if self._closing:
                if connection is not None:
                    connection.close()
                return
            time.sleep(ANNOUNCE_EVERY_SECONDS)

    def close(self) -> None:
        self._closing = True
        self._news.set()
        self._thread.join(timeout=2.0)


class Listener(WakeUp):
    """Listens on its own connection. Without one, it only waits for the timeout."""

    def __init__(self, dsn: str, channels: Sequence[str]) -> None:
        self._dsn = dsn
        self._channels = [CHANNEL + channel for channel in channels]
        self._connection: Connection | None = None
        self._retry_at = 0.0
        # Reentrant, because a signal handler may interrupt poke() and call it.
        self._lock = threading.RLock()
        self._closed = False
        self._poke_in, self._poke_out = os.pipe()
        os.set_blocking(self._poke_in, False)
        os.set_blocking(self._poke_out, False)
        self._connect()

    def _connect(self) -> None:
        self._retry_at = time.monotonic() + RETRY_SECONDS
        connection: Connection | None = None
        try:
            connection = psycopg.connect(self._dsn, **CONNECT)
            for channel in self._channels:
                connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        except psycopg.Error:
            if connection is not None:
                connection.close()
            connection = None
        self._connection = connection

    def wait(self, timeout: float) -> bool:
        return bool(self._poll(timeout))

    def pause(self, timeout: float) -> bool:
        return bool(self._poll(timeout) - {self._poke_in})

    def _poll(self, timeout: float) -> set[int]:
        """Read and discard pending input; return its sources."""
        if self._connection is None and time.monotonic() >= self._retry_at:
            self._connect()
        # poll, not select: select fails with descriptors above 1,024.
        sources = select.poll()
        sources.register(self._poke_in, select.POLLIN)
        if self._connection is not None:
            sources.register(self._connection.fileno(), select.POLLIN)
        ready = {source for source, _ in sources.poll(max(0.0, timeout) * 1000)}
        if self._poke_in in ready:
            with suppress(BlockingIOError):
                os.read(self._poke_in, 4096)
        if ready - {self._poke_in}:
            self._drain()
        return ready

    def _drain(self) -> None:
        try:
            if self._connection is not None:
                self._connection.pgconn.consume_input()
                while (heard := self._connection.pgconn.notifies()) is not None:
                    if heard.relname == _AWAITING:
                        self.awaited_until = time.monotonic() + AWAITED_SECONDS
        except psycopg.Error:
            self._connection = None

    def poke(self) -> None:
        with self._lock:
            # If the pipe is full, the wake-up is already pending.
            if not self._closed:
                with suppress(BlockingIOError):
                    os.write(self._poke_out, b".")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        with self._lock:
            # A closed descriptor number may be reused for another file.
            self._closed = True
            os.close(self._poke_in)
            os.close(self._poke_out)
