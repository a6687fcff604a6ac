"""SQLite: one file, shared fairly and safely by threads and processes of one machine.

Three things differ from plain sqlite3:

* A sidecar lock file (flock) serializes all writes. SQLite's own busy handler lets one
  process starve another: 73 against 8,360 jobs in three seconds, worst wait 2.3 s; behind the
  lock 4,052 against 4,767, worst wait 48 ms.
* Group commit. The lock holder runs the work of all waiting callers, each in its own
  savepoint, and commits once: one fsync for all.
* The write-ahead log is checkpointed manually, under the lock. An automatic checkpoint that
  overlaps another connection's log reset can lose a commit in SQLite before 3.51.3.

SQLite has one writer, and a handler's transaction may take long. It runs on its own connection and
holds a second lock file instead of the first. Other callers see from it why the writer is busy, and
can limit their wait.
"""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

from holdfast.clock import Clock
from holdfast.errors import ForkedStore, StoreBusy, StoreError
from holdfast.store import migrate
from holdfast.store.availability import Availability
from holdfast.store.block_lock import LOCK_FILE_SECONDS, BlockLock, Patience, find_stuck_writer
from holdfast.store.component import CORE, Component
from holdfast.store.dialect import SQLITE
from holdfast.store.file_watch import FileWatch
from holdfast.store.guards import LentConnection
from holdfast.store.read_limit import ReadTimeout, interrupted_after, read_limit
from holdfast.store.sidecar import SQL as LEASES
from holdfast.store.sidecar import Sidecar
from holdfast.store.sqlite_connect import connect, path_of
from holdfast.store.sqlite_transaction import SqliteTransaction
from holdfast.store.sqlite_tx import SqliteTx, begin, is_open, translate, until_commit
from holdfast.store.store import Access, Row, Store, Tx, WakeUp
from holdfast.store.transaction import LOCK_SECONDS, HandlerTransaction, caller
from holdfast.store.write_lock import WriteLock

T = TypeVar("T")
C = TypeVar("C", bound=sqlite3.Connection)

CHECKPOINT_BYTES = 8 * 1024 * 1024
GROUP_LIMIT = 200
# How long a write waits while a handler's transaction occupies the only writer.
PATIENCE_SECONDS = 60.0
# Poll interval of such a wait, behind another process and behind another thread.
POLL_SECONDS = 0.005
TURN_SECONDS = 0.05


class _Request:
    """One caller's work in a group commit."""

    __slots__ = ("asked_at", "done", "error", "result", "work")

    def __init__(self, work: Callable[[Tx], Any]) -> None:
        self.work = work
        self.asked_at = time.monotonic()
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None


class SqliteStore(Store):
    dialect = SQLITE
    is_embedded = True

    def __init__(self, url: str, clock: Clock) -> None:
        self.url = url
        self.clock = clock
        self._path = path_of(url)
        self._pid = os.getpid()
        self._turn = threading.Lock()
        # The open handler transaction of this process.
        self._opened: SqliteTransaction | None = None
        self._waiting: deque[_Request] = deque()
        # A pool, not one per thread: threads end and would leave their connections open.
        self._idle_readers: list[sqlite3.Connection] = []
        self._idle_lent: list[LentConnection] = []
        self._lock = WriteLock(self._path, url)
        _with_lock_file.add(self)
        self._block = BlockLock(self._path, url)
        self._sidecar = Sidecar(self._path, clock)
        self._writer = self._open_first()
        self.availability = Availability()

    @property
    def is_shareable(self) -> bool:
        return self._path is not None

    def _open_first(self) -> sqlite3.Connection:
        # Two processes that switch a new file to WAL at the same time fail each other. A file
        # already in WAL mode can be opened even if a stalled process holds the lock.
        has_lock = self._lock.acquire(LOCK_FILE_SECONDS)
        try:
            if not has_lock and os.stat(cast(str, self._path)).st_size == 0:
                raise self._block.busy()
            return self._open_writer()
        finally:
            if has_lock:
                self._lock.release()

    def _open_writer(self) -> sqlite3.Connection:
        # An in-memory database has one connection only, and it is lent.
        return self._connect(LentConnection if self._path is None else sqlite3.Connection)

    def _connect(self, kind: type[C]) -> C:
        return connect(self._path, self.url, kind)

    def write(self, work: Callable[[Tx], T]) -> T:
        return self._write(work, PATIENCE_SECONDS, math.inf)

    def write_soon(
        self,
        work: Callable[[Tx], T],
        *,
        lock_seconds: float = LOCK_SECONDS,
        seconds: float = math.inf,
        single: bool = False,
    ) -> T:
        return self._write(work, lock_seconds, seconds)

    def _write(self, work: Callable[[Tx], T], block_seconds: float, seconds: float) -> T:
        self._same_process()
        self._block.check_caller()
        patience = Patience(self._block, block_seconds, seconds)
        request = _Request(work)
        self._waiting.append(request)
        self._take_turn(patience, request)
        try:
            # Another caller may have run this work while it waited; a full group may also leave
            # before this work is in it.
            while not request.done:
                self._commit_group(request, patience)
        finally:
            self._turn.release()
        if request.error is not None:
            raise request.error
        return cast(T, request.result)

    def write_one(self, work: Callable[[Tx], T]) -> T:
        return self.write(work)

    def announce(self, channels: Sequence[str]) -> None:
        """Nothing to send: waiters watch the file's data version."""

    def _take_turn(self, patience: Patience, request: _Request | None = None) -> None:
        while not self._turn.acquire(timeout=min(TURN_SECONDS, patience.left)):
            try:
                patience.check()
            except StoreBusy:
                if request is None or self._withdraw(request):
                    raise
                # Another thread is running it and will finish it.
                self._turn.acquire()
                return

    def _withdraw(self, request: _Request) -> bool:
        try:
            self._waiting.remove(request)
        except ValueError:
            return False
        return True

    def _commit_group(self, own: _Request, patience: Patience) -> None:
        group: list[_Request] = []
        try:
            with self._file_lock(patience):
                writer = self._live_writer()
                try:
                    begin(writer, patience.left)
                except StoreError:
                    if patience.left == math.inf:
                        # The others would wait as long for the same lock.
                        self._gather(group)
                    raise
                self._gather(group)
                self.availability.note_wait(time.monotonic() - group[0].asked_at)
                with until_commit(writer):
                    self._run_group(group)
                self._checkpoint()
        except Exception as exc:
            if not group:
                # Only this caller's patience is over; the others keep waiting.
                self._withdraw(own)
                raise
            for request in group:
                request.error = request.error or exc
        except BaseException:
            # An interrupt belongs to the thread that received it; the others only learn that
            # nothing was written.
            for request in group:
                request.error = request.error or StoreBusy("The write was interrupted. Try again.")
            raise
        finally:
            for request in group:
                request.done = True

    def _gather(self, group: list[_Request]) -> None:
        while self._waiting and len(group) < GROUP_LIMIT:
            group.append(self._waiting.popleft())

    def _live_writer(self) -> sqlite3.Connection:
        """Return the writer; reopen it if other code in this process closed it."""
        if self._path is not None and not is_open(self._writer):
            self._writer = self._open_writer()
        return self._writer

    def _run_group(self, group: Sequence[_Request]) -> None:
        tx = self._following(SqliteTx(self._writer, self.clock))
        if len(group) == 1:
            group[0].result = group[0].work(tx)
        else:
            for request in group:
                self._run_guarded(tx, request)

    def _run_guarded(self, tx: SqliteTx, request: _Request) -> None:
        """Run one request so that its failure undoes only its own writes."""
        self._writer.execute("SAVEPOINT request")
        try:
            request.result = request.work(tx)
        except Exception as exc:
            request.error = exc
            self._writer.execute("ROLLBACK TO request")
        self._writer.execute("RELEASE request")

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Iterator[None]:
        """Run a write transaction and commit it. Call with the locks held."""
        begin(connection)
        with until_commit(connection):
            yield

    @contextmanager
    def _file_lock(self, patience: Patience) -> Iterator[None]:
        """Hold the lock file while no handler transaction is open. Call with the turn held."""
        while True:
            if not self._lock.acquire(patience.lock_left):
                raise self._block.busy()
            try:
                if not self._block.is_held:
                    yield
                    return
            finally:
                self._lock.release()
            patience.check()
            time.sleep(POLL_SECONDS)

    def _checkpoint(self) -> None:
        if self._path is None:
            return
        try:
            size = os.stat(self._path + "-wal").st_size
        except FileNotFoundError:
            return
        if size > CHECKPOINT_BYTES:
            # A reader may block the checkpoint; the log then grows until a later commit. Errors do
            # not affect the commit.
            with suppress(sqlite3.Error):
                self._writer.execute("PRAGMA busy_timeout = 0")
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._writer.execute("PRAGMA busy_timeout = 5000")

    def read(self, work: Callable[[Tx], T]) -> T:
        self._same_process()
        if self._path is None:
            return self._read_memory(work)
        connection, limit = self._reader(), read_limit()
        connection.execute("BEGIN")
        try:
            with interrupted_after(connection, limit):
                return work(self._following(SqliteTx(connection, self.clock)))
        except StoreError as exc:
            if limit is not None and "interrupted" in str(exc):
                raise ReadTimeout(limit.seconds) from None
            raise
        finally:
            connection.execute("ROLLBACK")
            self._idle_readers.append(connection)

    def _read_memory(self, work: Callable[[Tx], T]) -> T:
        opened = self._opened
        if opened is not None and self._block.owner == caller():
            return opened.run(work)
        self._block.check_caller()
        self._take_turn(Patience(self._block, PATIENCE_SECONDS, math.inf))
        try:
            return work(self._following(SqliteTx(self._writer, self.clock)))
        finally:
            self._turn.release()

    def _reader(self) -> sqlite3.Connection:
        try:
            return self._idle_readers.pop()
        except IndexError:
            connection = self._connect(sqlite3.Connection)
            connection.execute("PRAGMA query_only = ON")
            return connection

    def extend_leases(self, claims: Sequence[Row], lease_ms: int) -> None:
        self._same_process()
        self._sidecar.extend(claims, lease_ms)

    def extended_leases(self, claims: Sequence[Row]) -> frozenset[tuple[str, str, int]]:
        self._same_process()
        found = self._sidecar.find(claims)
        return frozenset((row["org_id"], row["id"], row["lease_token"]) for row in found)

    def find_stuck_writer(self, seconds: float) -> str | None:
        self._same_process()
        return find_stuck_writer(self._block, WriteLock(self._path, self.url), seconds)

    @contextmanager
    def handler_transaction(
        self,
        org_id: str,
        unit: str | None,
        *,
        guard: Callable[[Tx], None],
        finish: Callable[[Tx], None],
        access: Access = Access.WRITE,
    ) -> Iterator[HandlerTransaction]:
        self._same_process()
        self._block.check_caller()
        with self._block_begun() as connection:
            opened = self._opened = SqliteTransaction(
                connection,
                access,
                self.audit_tables,
                lambda: self._following(SqliteTx(connection, self.clock)),
                translate,
            )

            def last(tx: Tx) -> None:
                finish(tx)
                # The next writer must see the leases that were extended meanwhile.
                extended = self._sidecar.all()
                if extended:
                    tx.affected(LEASES.apply_extensions, extended=extended)

            with opened.block(guard, last):
                yield opened

    @contextmanager
    def _block_begun(self) -> Iterator[LentConnection]:
        """Yield a connection in a write transaction; commit it at the end."""
        patience = Patience(self._block, math.inf, math.inf)
        self._take_turn(patience)
        if self._path is None:
            try:
                self._block.hold()
                assert isinstance(self._writer, LentConnection)
                with self._transaction(self._writer):
                    yield self._writer
            finally:
                self._opened = None
                self._block.release()
                self._turn.release()
            return
        try:
            connection = self._idle_lent.pop() if self._idle_lent else self._connect(LentConnection)
            with self._file_lock(patience):
                begin(connection)
                self._block.hold()
        finally:
            self._turn.release()
        try:
            with until_commit(connection):
                yield connection
        finally:
            self._release_block(connection)

    def _release_block(self, connection: LentConnection) -> None:
        opened, self._opened = self._opened, None
        self._block.release()
        if self._idle_lent or opened is None or opened.leaves_something or not is_open(connection):
            connection.close()
        else:
            self._idle_lent.append(connection)

    def wake_up(self, channels: Sequence[str]) -> WakeUp:
        return FileWatch(None if self._path is None else self._connect(sqlite3.Connection))

    def migrate(self) -> list[str]:
        return self._migrate(self.components)

    def _migrate(self, components: Sequence[Component]) -> list[str]:
        self._same_process()
        patience = Patience(self._block, math.inf, math.inf)
        with self._turn, self._file_lock(patience), self._transaction(self._writer):
            return migrate.apply_sqlite(self._writer, components, self.component_versions())

    def check_schema(self) -> None:
        """Create missing tables: an embedded database has no separate migration step.

        A component that already has tables is only checked, so an upgrade stays explicit.
        """
        versions = self.component_versions()
        if not {CORE.name, *(found.name for found in self.components)} <= versions.keys():
            created = [found for found in self.components if found.name not in versions]
            present = [found for found in self.components if found.name in versions]
            if versions:
                migrate.check_versions(versions, SQLITE, self.url, present)
            self._migrate(created)
        migrate.check_versions(self.component_versions(), SQLITE, self.url, self.components)

    def component_versions(self) -> dict[str, int]:
        # Not the writer of a file: another thread may be writing with it.
        connection = self._writer if self._path is None else self._reader()
        try:
            rows = connection.execute(
                "SELECT component, max(version) FROM holdfast_migration GROUP BY component"
            ).fetchall()
        except sqlite3.OperationalError as exc:
            if "no such table" in str(exc):
                return {}
            raise translate(exc) from exc
        except sqlite3.Error as exc:
            raise translate(exc) from exc
        finally:
            if connection is not self._writer:
                self._idle_readers.append(connection)
        return {name: int(version) for name, version in rows}

    def version(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}"

    def close(self) -> None:
        if os.getpid() != self._pid:
            return
        for connection in (*self._idle_readers, *self._idle_lent, self._writer):
            connection.close()
        self._idle_readers.clear()
        self._idle_lent.clear()
        self._sidecar.close()
        self._close_locks()

    def _close_locks(self) -> None:
        self._block.close()
        self._lock.close()

    def _same_process(self) -> None:
        # After a fork a connection shares its locks with the parent and would corrupt the file.
        if os.getpid() != self._pid:
            raise ForkedStore(
                "This store was opened before a fork. Open a new one in the child process."
            )


_with_lock_file: weakref.WeakSet[SqliteStore] = weakref.WeakSet()


def _let_go_of_locks() -> None:
    # A lock belongs to the open file, which a child shares: if the parent died during a write, the
    # child's copy would keep the lock as long as the child lives.
    for store in _with_lock_file:
        store._close_locks()


os.register_at_fork(after_in_child=_let_go_of_locks)
