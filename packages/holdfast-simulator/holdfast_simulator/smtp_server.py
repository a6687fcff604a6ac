"""An SMTP server that delivers nothing. It implements the real protocol and its faults."""

from __future__ import annotations

import socket
import socketserver
import ssl
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from holdfast_simulator.certificate import certificate, has_trustme, serving
from holdfast_simulator.journal import Journal
from holdfast_simulator.smtp_session import Session
from holdfast_simulator.state import SimulatorState


class SmtpServer:
    """Accepts mail on a local port, with STARTTLS or with TLS from the first byte.

    Without *users* anyone may send. With them a login is required, which is accepted under TLS
    only.
    """

    def __init__(
        self,
        state: SimulatorState,
        journal: Journal,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        is_tls: bool = False,
    ) -> None:
        self.state = state
        self.journal = journal
        self.is_tls = is_tls
        self.users: dict[str, str] = {}
        self.requires_tls = False
        # Without trustme, only plain SMTP is available.
        self.context = serving(state.seed) if is_tls or has_trustme() else None
        self.is_closing = threading.Event()
        self._server = _Listener((host, port), self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="holdfast-smtp", daemon=True
        )
        self._thread.start()

    @property
    def host(self) -> str:
        """The address that it listens on."""
        return str(self._server.server_address[0])

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    @property
    def certificate(self) -> str:
        """The CA in PEM that clients trust: ``ssl.create_default_context(cadata=…)``."""
        return certificate(self.state.seed)[0]

    def close(self) -> None:
        """Stop serving and close all connections."""
        self.is_closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.end_connections()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Listener(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], smtp: SmtpServer) -> None:
        self.smtp = smtp
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()
        super().__init__(address, _Connection)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # TLS wraps the socket; a second handle can still close the connection.
        handle = request.dup()
        with self._changed:
            self._open.add(handle)
        try:
            super().process_request_thread(request, client_address)
        finally:
            handle.close()
            with self._changed:
                self._open.discard(handle)
                self._changed.notify_all()

    def end_connections(self) -> None:
        with self._changed:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._open, timeout=5.0)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""


class _Connection(socketserver.BaseRequestHandler):
    server: _Listener

    def handle(self) -> None:
        smtp = self.server.smtp
        with suppress(ConnectionError, TimeoutError, ssl.SSLError, ValueError):
            connection = self.request
            if smtp.is_tls:
                assert smtp.context is not None
                connection = smtp.context.wrap_socket(connection, server_side=True)
            session = Session(smtp, connection)
            try:
                session.run()
            finally:
                session.close()
