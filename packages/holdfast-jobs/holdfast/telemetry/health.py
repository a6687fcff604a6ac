"""Health of a worker process: over HTTP for Kubernetes, by sd_notify for systemd."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from holdfast.engine.worker.worker import Worker
from holdfast.errors import StoreError
from holdfast.telemetry.waits import queue_waits

if TYPE_CHECKING:
    from holdfast.app import Holdfast

WAIT_CACHE_SECONDS = 2.0
LONGEST_BEAT = 1.0


@dataclass(frozen=True, slots=True)
class Health:
    """What a process says about itself: each returns None, or why not."""

    alive: Callable[[], str | None]
    ready: Callable[[], str | None]
    is_stopping: Callable[[], bool]


def health_of(worker: Worker) -> Health:
    """The health of one worker."""
    return Health(
        lambda: worker.failure,
        lambda: worker.unready,
        lambda: worker.is_draining,
    )


ALWAYS = Health(lambda: None, lambda: None, lambda: False)


class HealthServer:
    """Serves ``/healthz``, ``/readyz`` and ``/waits`` in background threads."""

    def __init__(self, app: Holdfast, health: Health, host: str, port: int) -> None:
        self._waits = _Cached(lambda: queue_waits(app))
        answers: dict[str, Callable[[], tuple[int, Any]]] = {
            "/healthz": lambda: _verdict(health.alive()),
            "/readyz": lambda: _verdict(health.alive() or health.ready()),
            "/waits": self._answer_waits,
        }
        self._server = _Server((host, port), _handler(answers))
        self.port: int = self._server.server_address[1]
        run = self._server.serve_forever
        threading.Thread(target=run, name="holdfast-health", daemon=True).start()

    def _answer_waits(self) -> tuple[int, Any]:
        try:
            waits = self._waits.get()
        except StoreError as exc:
            return 503, {"status": type(exc).__name__}
        seconds = {wait.queue: wait.wait_seconds for wait in waits if not wait.is_paused}
        return 200, {"oldest_wait_seconds": max(seconds.values(), default=0.0), "queues": seconds}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> HealthServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # An IPv6 address has colons.
    address_family = socket.AF_INET

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)


def _verdict(problem: str | None) -> tuple[int, Any]:
    return (200, {"status": "ok"}) if problem is None else (503, {"status": problem})


def _handler(
    answers: dict[str, Callable[[], tuple[int, Any]]],
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 5.0

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def _answer(self, *, with_body: bool) -> None:
            answer = answers.get(self.path.partition("?")[0])
            status, value = (404, {"status": "not found"}) if answer is None else answer()
            body = json.dumps(value).encode() + b"\n"
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Probes are not logged."""

    return Handler


class _Cached:
    """The last value of a call, for a short time: probes may be frequent."""

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read = read
        self._value: Any = None
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def get(self) -> Any:
        with self._lock:
            if time.monotonic() - self._read_at > WAIT_CACHE_SECONDS:
                self._value, self._read_at = self._read(), time.monotonic()
            return self._value


# -- systemd


def sd_notify(*lines: str) -> bool:
    """Send a state to systemd. False if the process does not run under it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    # A leading @ means the abstract namespace.
    name = "\0" + address[1:] if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(name)
        sender.sendall("\n".join(lines).encode())
        return True
    return False


@contextmanager
def notifying(health: Health) -> Iterator[None]:
    """Tell systemd that the process is ready, alive and stopping, while the block runs."""
    if not os.environ.get("NOTIFY_SOCKET"):
        yield
        return
    end = threading.Event()
    thread = threading.Thread(
        target=_notify_until, args=(health, end), name="holdfast-sd-notify", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(timeout=2.0)
        sd_notify("STOPPING=1")


def _notify_until(health: Health, end: threading.Event) -> None:
    beat = _beat_seconds()
    is_ready = is_stopping = False
    while not end.is_set():
        if not is_ready and health.ready() is None:
            is_ready = sd_notify("READY=1", "STATUS=Claiming jobs")
        if not is_stopping and health.is_stopping():
            is_stopping = sd_notify("STOPPING=1", "STATUS=Finishing running jobs")
        # Without it, systemd kills and restarts the process.
        if health.alive() is None:
            sd_notify("WATCHDOG=1")
        end.wait(beat)


def _beat_seconds() -> float:
    """A third of the interval in which systemd expects a sign of life."""
    try:
        return min(LONGEST_BEAT, int(os.environ["WATCHDOG_USEC"]) / 3_000_000)
    except (KeyError, ValueError):
        return LONGEST_BEAT
