"""A webhook for alerts, signed as Standard Webhooks are: one POST an alert, tried a few times.

Redirects are not followed and certificates are checked. One attempt takes at most a few seconds,
however slowly the receiver answers.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from contextlib import suppress
from http.client import HTTPConnection, HTTPSConnection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.clock import Clock, write_instant
from holdfast.config import signing_key
from holdfast.errors import UpstreamError
from holdfast.ids import IdSource
from holdfast.outbound.signature import sign

if TYPE_CHECKING:
    from holdfast.telemetry.alert import Alert

TIMEOUT_SECONDS = 5.0
TRIES = 4
FIRST_PAUSE_SECONDS = 0.5
# The receiver asks for patience; any other answer below 500 will not change.
PATIENT = frozenset({408, 425, 429})


class Webhook:
    """A target: posts an alert to *url*. Raises UpstreamError if the receiver does not take it."""

    def __init__(
        self,
        url: str,
        secret: str = "",
        *,
        clock: Clock,
        ids: IdSource,
        timeout: float = TIMEOUT_SECONDS,
        pause: float = FIRST_PAUSE_SECONDS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._address = urlsplit(url)
        self._key = signing_key(secret)
        self._clock = clock
        self._ids = ids
        self._timeout = timeout
        self._pause = pause
        self._tls = tls or (ssl.create_default_context() if url.startswith("https:") else None)
        self._hurrying = threading.Event()

    def __call__(self, alert: Alert) -> None:
        # The same on every try, so that the receiver can tell a repetition.
        message_id = f"msg_{self._ids.new().replace('-', '')}"
        body = json.dumps(
            {
                "type": f"holdfast.alert.{alert.kind}",
                "timestamp": write_instant(alert.at),
                "data": alert.document(),
            },
            ensure_ascii=True,
        ).encode()
        pause = self._pause
        for left in range(TRIES - 1, -1, -1):
            answer = self._try(message_id, body)
            if isinstance(answer, int) and 200 <= answer < 300:
                return
            final = isinstance(answer, int) and answer < 500 and answer not in PATIENT
            if final or not left or self._hurrying.wait(pause):
                raise UpstreamError("The webhook did not take an alert.", answer=answer)
            pause *= 2

    def hurry(self) -> None:
        """Do not wait for another try any more: the process ends."""
        self._hurrying.set()

    def _try(self, message_id: str, body: bytes) -> int | str:
        """The status that came back, or the name of what went wrong."""
        try:
            return self._post(message_id, body)
        except Exception as exc:
            return type(exc).__name__

    def _post(self, message_id: str, body: bytes) -> int:
        connection = self._connection()
        # A timeout of a socket counts from its last byte, so a receiver that sends one now and then
        # would hold us for ever.
        cut = threading.Timer(self._timeout, _cut, (connection,))
        cut.daemon = True
        cut.start()
        try:
            target = self._address.path or "/"
            if self._address.query:
                target += f"?{self._address.query}"
            connection.request("POST", target, body, self._headers(message_id, body))
            return connection.getresponse().status
        finally:
            cut.cancel()
            connection.close()

    def _connection(self) -> HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        if self._tls is not None:
            return _Https(host, port, timeout=self._timeout, context=self._tls)
        return HTTPConnection(host, port, timeout=self._timeout)

    def _headers(self, message_id: str, body: bytes) -> dict[str, str]:
        stamp = str(int(self._clock.now().timestamp()))
        headers = {
            "content-type": "application/json",
            "user-agent": "holdfast",
            "webhook-id": message_id,
            "webhook-timestamp": stamp,
        }
        if self._key:
            headers["webhook-signature"] = sign(self._key, message_id, stamp, body)
        return headers


class _Https(HTTPSConnection):
    """HTTPS whose handshake can be cut off as well."""

    def __init__(
        self, host: str, port: int | None, *, timeout: float, context: ssl.SSLContext
    ) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._trust = context

    def connect(self) -> None:
        HTTPConnection.connect(self)
        self.sock = self._trust.wrap_socket(
            self.sock, server_hostname=self.host, do_handshake_on_connect=False
        )
        self.sock.do_handshake()


def _cut(connection: HTTPConnection) -> None:
    found: socket.socket | None = connection.sock
    if found is not None:
        with suppress(OSError):
            found.shutdown(socket.SHUT_RDWR)
