"""A receiver of webhooks on loopback that answers well, badly, slowly, with a redirect or never."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.telemetry.collector import serving

PEM = Path(__file__).parent / "loopback.pem"


@dataclass
class Receiver:
    url: str = ""
    answer: Callable[[BaseHTTPRequestHandler, int], None] = lambda handler, number: None
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)
    arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    @property
    def alerts(self) -> list[dict[str, Any]]:
        return [json.loads(body)["data"] for _, body in self.got]

    def wait(self, count: int = 1, seconds: float = 30.0) -> None:
        for _ in range(count):
            assert self.arrived.acquire(timeout=seconds), "nothing came"


def says(status: int, **headers: str) -> Callable[[BaseHTTPRequestHandler, int], None]:
    def answer(handler: BaseHTTPRequestHandler, number: int) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("content-length", "0")
        handler.end_headers()

    return answer


@contextmanager
def receiving(
    answer: Callable[[BaseHTTPRequestHandler, int], None] | None = None, *, tls: bool = False
) -> Iterator[Receiver]:
    receiver = Receiver(answer=answer or says(204))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
            number = len(receiver.got)
            receiver.arrived.release()
            try:
                receiver.answer(self, number)
            except OSError:
                # The sender did not wait.
                self.close_connection = True

        def do_GET(self) -> None:
            """A client that follows a redirect sends a GET."""
            receiver.got.append(({}, b"{}"))

        def log_message(self, *_: Any) -> None: ...

    with serving(Handler) as server:
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(PEM)
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
            server.handle_error = lambda *_: None  # type: ignore[method-assign]
        scheme, host = ("https", "localhost") if tls else ("http", "127.0.0.1")
        receiver.url = f"{scheme}://{host}:{server.server_port}/alerts?team=7"
        try:
            yield receiver
        finally:
            receiver.release.set()
