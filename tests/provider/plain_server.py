"""A server that sends given bytes and records the requests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

Handler = Callable[[socket.socket, bytes], None]


@dataclass
class PlainServer:
    """One answer for one connection, in the order of *answers*; the last one is repeated."""

    answers: list[bytes | Handler]
    requests: list[bytes] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                request = read_request(connection)
                if request is None:
                    continue
                self.requests.append(request)
                answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
                if callable(answer):
                    answer(connection, request)
                else:
                    connection.sendall(answer)


def read_request(connection: socket.socket) -> bytes | None:
    """A whole request; None if the client closed the connection before."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    while len(body) < length:
        piece = connection.recv(65536)
        if not piece:
            return None
        body += piece
    return head + b"\r\n\r\n" + body


def reset(connection: socket.socket, request: bytes) -> None:
    """Take the request, then break the connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


def say(status: int, body: bytes, *headers: str) -> bytes:
    """An answer of known length, after which the connection ends."""
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", "connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@contextmanager
def plain_server(*answers: bytes | Handler) -> Iterator[PlainServer]:
    server = PlainServer(list(answers))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.port = listener.getsockname()[1]
        thread = threading.Thread(target=server.serve, args=(listener,), daemon=True)
        thread.start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(timeout=5)
        assert not thread.is_alive()
