"""Isolated handlers: each execution in a process of its own, which is killed at the time limit.

A worker has many threads and cannot fork safely. Before it starts them, it forks one process, the
host, which has the application loaded and runs nothing. The host forks a child for each execution.
The child opens the database itself, runs one stage and sends its outcome back. If the worker dies,
the host kills the children and ends.
"""

from __future__ import annotations

import os
import pickle
import random
import select
import signal
import socket
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import NoReturn

from holdfast.engine.completion import Ended
from holdfast.engine.context import CancelToken, Context, FindExtension
from holdfast.engine.execute import Execution, execute, outcome_of_error, resolve, timed_out
from holdfast.engine.handler import Registry, Stage
from holdfast.engine.job import Claimed, Outcome, Released
from holdfast.engine.tracing import Tracing
from holdfast.errors import ConfigError, WorkerCrashed
from holdfast.store import Store

# How soon a cancel request reaches the child.
TICK_SECONDS = 0.1
# How long the first child may take to open the database; each further one twice as long.
START_SECONDS = 10.0
# How many children may be started for one execution.
STARTS = 3
# How long the host may take to end.
HOST_SECONDS = 2.0
_LENGTH = struct.Struct("!Q")
_CANCEL = b"c"
_STARTED = b"s"
# Signals whose handlers belong to the worker.
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP)


class IsolationHost:
    """Executes stages in child processes. *reopen* opens the store in a new process."""

    def __init__(
        self,
        registry: Registry,
        reopen: Callable[[], Store] | None,
        find_extension: FindExtension,
        *,
        patience: timedelta,
    ) -> None:
        self.registry = registry
        self.reopen = reopen
        self.find_extension = find_extension
        self.patience = patience
        self._control: socket.socket | None = None
        self._host = 0
        self._revision = -1
        # Hosts that are not asked for further children.
        self._retired: list[tuple[socket.socket, int]] = []
        self._lock = threading.Lock()

    @property
    def is_needed(self) -> bool:
        """Whether a job type asks for isolation."""
        return any(stage.is_isolated for handler in self.registry for stage in handler.stages)

    def start(self) -> None:
        """Fork the host, unless it runs. Call it before the worker starts its threads."""
        with self._lock:
            self._start()

    def _start(self) -> None:
        if self._control is not None and self._revision == self.registry.revision:
            return
        self._close()
        ours, theirs = socket.socketpair()
        _flush()
        with warnings.catch_warnings():
            # Python 3.12 warns of threads. The host only forks again, and the child opens a store
            # of its own.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            ours.close()
            self._serve(theirs)
        theirs.close()
        self._control, self._host, self._revision = ours, pid, self.registry.revision

    def close(self) -> None:
        """End the hosts and their children."""
        with self._lock:
            self._close()
            for control, pid in self._retired:
                _end(control, pid)
            self._retired.clear()

    def _close(self) -> None:
        if self._control is not None:
            _end(self._control, self._host)
            self._control = None

    def _retire(self, control: socket.socket) -> None:
        """Take further children from another host. Those of this one go on."""
        with self._lock:
            if self._control is control:
                self._retired.append((control, self._host))
                self._control = None

    # -- in the worker

    def execute(
        self, context: Context, execution: Execution, rng: random.Random, tracing: Tracing | None
    ) -> Ended:
        """Run a stage in a child process and return its outcome."""
        if not context.store.is_shareable:
            # Another process cannot open a database in memory: tests run the handler here.
            return execute(context, execution, rng, tracing)
        if tracing is None:
            return self._execute(context, execution, rng)
        with tracing.executing(context.job) as record_outcome:
            ended = self._execute(context, execution, rng)
            record_outcome(ended if isinstance(ended, Outcome) else ended.outcome)
            return ended

    def _execute(self, context: Context, execution: Execution, rng: random.Random) -> Ended:
        job, stage, token = context.job, execution.stage, context.token
        for number in range(STARTS):
            child, control = self._begin(job)
            with child:
                reply = _Reply(child)
                if _wait_until_started(reply, START_SECONDS * 2**number):
                    return self._follow(reply, job, stage, token, rng)
            # The application may have threads when the host is forked. A lock that one of them
            # holds at that moment, SQLite's for example, stays locked in every child of this host.
            # No user code has run in the child, so that another one is safe.
            self._retire(control)
        return outcome_of_error(WorkerCrashed(isolated=1), job, stage, rng)

    def _follow(
        self, reply: _Reply, job: Claimed, stage: Stage, token: CancelToken, rng: random.Random
    ) -> Ended:
        """Wait for the outcome of a child that has started; kill it at the time limit."""
        limit, is_cancel_sent = stage.timeout, False
        until = None if limit is None else time.monotonic() + limit.total_seconds()
        while not reply.is_complete:
            left = TICK_SECONDS if until is None else min(TICK_SECONDS, until - time.monotonic())
            if left <= 0:
                reply.kill()
                return timed_out(job, stage, rng)
            reply.read(left)
            if token.lease_lost:
                reply.kill()
                return Released("lease_lost")
            if token.is_set and not is_cancel_sent:
                is_cancel_sent = True
                reply.request_cancel()
        if reply.ended is None:
            return outcome_of_error(WorkerCrashed(isolated=1), job, stage, rng)
        return reply.ended

    def _begin(self, job: Claimed) -> tuple[socket.socket, socket.socket]:
        """Start a child. Returns the sockets to it and to its host."""
        with self._lock:
            try:
                ours = self._request()
            except OSError:
                # The host was killed; start another.
                self._close()
                ours = self._request()
            assert self._control is not None
            control = self._control
        _send(ours, pickle.dumps(job))
        return ours, control

    def _request(self) -> socket.socket:
        """Ask the host for a child. Returns the socket to it."""
        # Before the pair: a host with the other end would hide the death of the child.
        self._start()
        assert self._control is not None
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"j"], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return ours

    # -- in the host

    def _serve(self, control: socket.socket) -> NoReturn:
        """Fork a child for each request until the worker closes the socket."""
        children: set[int] = set()
        try:
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)
            os.setpgid(0, 0)
            while True:
                message, (*received,), _, _ = socket.recv_fds(control, 1, 1)
                if not message:
                    break
                _reap(children)
                (descriptor,) = received
                pid = os.fork()
                if pid == 0:
                    control.close()
                    self._run(socket.socket(fileno=descriptor))
                children.add(pid)
                os.close(descriptor)
        finally:
            _reap(children)
            for pid in children:
                _kill(pid)
            os._exit(0)

    # -- in the child

    def _run(self, parent: socket.socket) -> NoReturn:
        code = 1
        try:
            os.setpgid(0, 0)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            parent.sendall(_LENGTH.pack(os.getpid()))
            job: Claimed = pickle.loads(_receive(parent))  # noqa: S301
            if self.reopen is None:
                raise ConfigError("Isolated jobs require a worker created with hf.worker().")
            store = self.reopen()
            token = CancelToken()
            context = Context(job, store, token, find_extension=self.find_extension)
            planned = resolve(job, self.registry, store.clock, patience=self.patience)
            threading.Thread(target=_watch, args=(parent, token), daemon=True).start()
            parent.sendall(_STARTED)
            if isinstance(planned, Execution):
                planned = execute(context, planned, random.Random())  # type: ignore[assignment]
            _send(parent, pickle.dumps(planned))
            code = 0
        finally:
            _flush()
            os._exit(code)


def _wait_until_started(reply: _Reply, seconds: float) -> bool:
    """Whether the child has opened the database or ended. The time limit counts from then."""
    deadline = time.monotonic() + seconds
    while not reply.has_started and not reply.is_complete:
        if time.monotonic() > deadline:
            reply.kill()
            return False
        reply.read(TICK_SECONDS)
    return True


class _Reply:
    """What a child sends: its process id, that it has started, its outcome. None if it died."""

    def __init__(self, child: socket.socket) -> None:
        self._child = child
        self._data = b""
        self.is_complete = False
        self.ended: Ended | None = None

    def read(self, seconds: float) -> None:
        # poll, not select: select fails with descriptors above 1,024.
        poll = select.poll()
        poll.register(self._child, select.POLLIN)
        if not poll.poll(seconds * 1000):
            return
        try:
            found = self._child.recv(1 << 16)
        except OSError:
            found = b""
        self._data += found
        begin = _LENGTH.size + len(_STARTED)
        head = begin + _LENGTH.size
        if len(self._data) >= head:
            (length,) = _LENGTH.unpack(self._data[begin:head])
            if len(self._data) >= head + length:
                self.ended = pickle.loads(self._data[head:])  # noqa: S301
                self.is_complete = True
        self.is_complete = self.is_complete or not found

    @property
    def has_started(self) -> bool:
        return len(self._data) > _LENGTH.size

    def request_cancel(self) -> None:
        """Forward a cancel request to the handler."""
        with suppress(OSError):
            self._child.sendall(_CANCEL)

    def kill(self) -> None:
        """Kill the child and the processes that it has started."""
        deadline = time.monotonic() + 5.0
        while len(self._data) < _LENGTH.size and not self.is_complete:
            self.read(max(0.0, deadline - time.monotonic()))
            if time.monotonic() > deadline:
                return
        if not self.is_complete:
            _kill(_LENGTH.unpack(self._data[: _LENGTH.size])[0])


def _end(control: socket.socket, host: int) -> None:
    """End a host. It ends as soon as it sees the closed socket."""
    control.close()
    deadline = time.monotonic() + HOST_SECONDS
    with suppress(ChildProcessError):
        while os.waitpid(host, os.WNOHANG)[0] == 0:
            if time.monotonic() > deadline:
                _kill(host)
                os.waitpid(host, 0)
                break
            time.sleep(0.005)


def _flush() -> None:
    """Write out buffered output: a child would write it again, or lose its own."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _kill(pid: int) -> None:
    # The child may not have its own group yet.
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _reap(children: set[int]) -> None:
    for pid in list(children):
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        children.discard(pid)


def _watch(parent: socket.socket, token: CancelToken) -> None:
    """Forward a cancel request to the handler; end with the worker."""
    while True:
        try:
            found = parent.recv(1)
        except OSError:
            return
        if not found:
            # The worker abandoned this process or died.
            os._exit(1)
        token.set()


def _send(where: socket.socket, data: bytes) -> None:
    where.sendall(_LENGTH.pack(len(data)) + data)


def _receive(where: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(where, _LENGTH.size))
    return _exactly(where, length)


def _exactly(where: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        found = where.recv(size - len(data))
        if not found:
            raise EOFError
        data += found
    return data
