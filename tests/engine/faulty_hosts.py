"""Hosts on the loopback interface that fail in one way each."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import trustme

BODY = b'{"error": {"type": "x", "message": "canary-7f3a"}}'


@dataclass(frozen=True)
class Host:
    """Where a host listens, and what it does with a connection."""

    url: str
    port: int
    name: str = "127.0.0.1"

    @property
    def is_tls(self) -> bool:
        return self.url.startswith("https:")


def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _answer(connection: socket.socket, fault: str, headers: str) -> None:
    """Apply *fault* to a connection: reset, closed, cut, or an answer with a status."""
    if fault == "tls_breaks":
        connection.recv(10)
        return
    if fault in ("reset", "closed"):
        # The client of a protocol in which the server speaks first sends nothing.
        connection.settimeout(0.1)
        with suppress(TimeoutError):
            connection.recv(65_536)
    else:
        connection.recv(65_536)
    if fault == "reset":
        _reset(connection)
    elif fault == "cut":
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
    elif fault == "garbled":
        connection.sendall(b"no HTTP at all\r\n\r\n")
    elif fault.isdigit():
        head = f"HTTP/1.1 {fault} X\r\nContent-Type: application/json\r\nConnection: close\r\n"
        head += f"{headers}Content-Length: {len(BODY)}\r\n\r\n"
        connection.sendall(head.encode() + BODY)


@contextmanager
def host(fault: str, headers: str = "") -> Iterator[Host]:
    """A host with this fault. Connections to a host that hangs are never accepted."""
    if fault == "dns":
        yield Host("http://nowhere.invalid:9", 9, "nowhere.invalid")
        return
    if fault == "refused":
        port = closed_port()
        yield Host(f"http://127.0.0.1:{port}", port)
        return
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    scheme = "https" if fault in ("tls_breaks", "certificate") else "http"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if fault == "certificate":
        trustme.CA().issue_cert("127.0.0.1").configure_cert(context)

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with suppress(OSError), connection:
                connection.settimeout(5)
                if fault == "certificate":
                    context.wrap_socket(connection, server_side=True)
                _answer(connection, fault, headers)

    thread = threading.Thread(target=serve)
    if fault != "hangs":
        thread.start()
    yield Host(f"{scheme}://127.0.0.1:{port}", port)
    with suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    if fault != "hangs":
        thread.join()


@contextmanager
def mail_host(*replies: str) -> Iterator[int]:
    """A mail server that gives these replies, one per line it reads, then hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                connection.settimeout(5)
                for position, reply in enumerate(replies):
                    if position:
                        lines.readline()
                    connection.sendall(f"{reply}\r\n".encode())
                lines.readline()

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    with suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()
