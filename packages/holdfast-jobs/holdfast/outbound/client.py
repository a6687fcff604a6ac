"""A guarded HTTP client: bounded in time and size, without redirects or retries.

Bodies and headers never appear in logs or errors.
"""

from __future__ import annotations

import socket
import ssl
import weakref
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.clock import Clock, SystemClock
from holdfast.errors import ConfigError
from holdfast.outbound.guard import Blocked, Guard
from holdfast.outbound.head import Head
from holdfast.outbound.retry_after import retry_after

if TYPE_CHECKING:
    import httpcore2

# A listing of a hundred batches is 100 KiB, a long answer of a model 1 MiB.
MAX_ANSWER = 16 * 1024 * 1024
MAX_CONNECTIONS = 32
# The answer to a message is a status and possibly an id.
MAX_REPLY = 64 * 1024
# The time limit for the body after the status.
BODY_SECONDS = 5.0


class NotSent(Exception):
    """The request was not sent: no connection was opened. *reason* is a code."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Unsure(Exception):
    """The request was sent, but no complete answer arrived. *reason* is a code."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts in seconds: for a connection, for the next bytes, for a slot in the pool.

    *answer* and *download* bound a whole body, because a server that sends a byte now and then
    never triggers a read timeout.
    """

    connect: float = 10.0
    read: float = 60.0
    write: float = 60.0
    pool: float = 30.0
    answer: float = 300.0
    download: float = 3600.0

    @property
    def of_call(self) -> dict[str, float]:
        return {
            "connect": self.connect,
            "read": self.read,
            "write": self.write,
            "pool": self.pool,
        }


@dataclass(frozen=True, slots=True)
class Received:
    """An answer with any status: headers in lower case, and *body* or *pieces* of it.

    *is_whole* is False if the body failed or was not read to its end.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    pieces: Iterator[bytes] = field(default_factory=lambda: iter(()))
    retry_after: float | None = None
    is_whole: bool = True


class Client:
    """Calls to one origin. Safe to share between threads; closed when it is garbage-collected."""

    def __init__(
        self, guard: Guard, timeouts: Timeouts | None = None, *, clock: Clock | None = None
    ) -> None:
        try:
            from holdfast.outbound.pinned import open_pool
        except ImportError as exc:
            raise ConfigError(
                "HTTP calls need httpcore2: pip install 'holdfast-jobs[channels]' or holdfast-llm."
            ) from exc
        self._guard = guard
        self._timeouts = timeouts or Timeouts()
        self._clock = clock or SystemClock()
        self._pool = open_pool(guard, max_connections=MAX_CONNECTIONS)
        self.close = weakref.finalize(self, self._pool.close)

    def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        content: Iterator[bytes] | bytes | None = None,
    ) -> Received:
        """Make one call and read its whole answer. *target* is path and query at the origin.

        Raises NotSent or Unsure if there is no answer.
        """
        with self._open(method, target, headers, content) as answer:
            body = bytearray()
            for piece in self._pieces(answer, self._timeouts.answer):
                body += piece
                if len(body) > MAX_ANSWER:
                    raise Unsure("too_large")
            return self._received(answer, body=bytes(body))

    def post(self, target: str, headers: Mapping[str, str], content: bytes) -> Received:
        """Post a message. Its answer counts as soon as the status is read.

        The body is read for at most BODY_SECONDS and MAX_REPLY bytes. A failure in it, or in the
        headers, does not change the status. Raises NotSent or Unsure if there is none.
        """
        from holdfast.outbound.pinned import noting

        head = Head(head_seconds=self._timeouts.answer, body_seconds=BODY_SECONDS)
        try:
            with noting(head), self._open("POST", target, headers, content) as answer:
                body, is_whole = _as_far_as_it_goes(answer)
                return self._received(answer, body=body, is_whole=is_whole)
        except Unsure:
            if head.status is None:
                raise
        wait = retry_after(head.headers, self._clock.now())
        return Received(head.status, head.headers, retry_after=wait, is_whole=False)

    @contextmanager
    def stream(self, method: str, target: str, headers: Mapping[str, str]) -> Iterator[Received]:
        """Make one call whose answer is read in pieces of at most 64 KiB.

        The pieces raise Unsure if the body is truncated or its end cannot be known.
        """
        with self._open(method, target, headers, None) as answer:
            yield self._received(answer, pieces=self._pieces(answer, self._timeouts.download))

    @contextmanager
    def _open(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        content: Iterator[bytes] | bytes | None,
    ) -> Iterator[httpcore2.Response]:
        import httpcore2

        origin = self._guard.origin
        url = httpcore2.URL(
            scheme=origin.scheme.encode(),
            host=origin.host.strip("[]").encode(),
            port=origin.port,
            target=target.encode("ascii"),
        )
        given = {"accept-encoding": "identity", "user-agent": "holdfast", **headers}
        with (
            _named(),
            self._pool.stream(
                method,
                url,
                headers=[(name.encode(), value.encode()) for name, value in given.items()],
                content=content,
                extensions={"timeout": self._timeouts.of_call},
            ) as answer,
        ):
            yield answer

    def _received(self, answer: httpcore2.Response, **body: Any) -> Received:
        headers: dict[str, str] = {}
        for name, value in answer.headers:
            headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
        wait = retry_after(headers, self._clock.now())
        return Received(answer.status, headers, retry_after=wait, **body)

    def _pieces(self, answer: httpcore2.Response, seconds: float) -> Iterator[bytes]:
        names = {name.lower(): value.lower() for name, value in answer.headers}
        if names.get(b"content-encoding", b"identity") not in (b"identity", b""):
            raise Unsure("encoded_body")
        end = self._clock.monotonic() + seconds
        size = 0
        with _named():
            for piece in answer.iter_stream():
                size += len(piece)
                yield piece
                if self._clock.monotonic() > end:
                    raise Unsure("timeout")
        if size and b"content-length" not in names and b"transfer-encoding" not in names:
            # A broken connection looks like the end of such a body.
            raise Unsure("unframed_body")


def _as_far_as_it_goes(answer: httpcore2.Response) -> tuple[bytes, bool]:
    """The readable part of a body, and whether it is complete."""
    names = {name.lower(): value.strip().lower() for name, value in answer.headers}
    body, is_whole = bytearray(), False
    try:
        with _named():
            for piece in answer.iter_stream():
                body += piece
                if len(body) > MAX_REPLY:
                    return bytes(body), False
        # A broken connection looks like the end of a body without a length.
        is_whole = not body or b"content-length" in names or b"transfer-encoding" in names
    except Unsure:
        pass
    encoding = names.get(b"content-encoding", b"identity")
    if encoding in (b"identity", b"") or not body:
        return bytes(body), is_whole
    if encoding not in (b"gzip", b"x-gzip", b"deflate"):
        return b"", False
    # We request no compression, but accept it.
    unpacking = zlib.decompressobj(wbits=47)
    try:
        plain = unpacking.decompress(bytes(body), MAX_REPLY)
    except zlib.error:
        return b"", False
    return plain, is_whole and unpacking.eof


@contextmanager
def _named() -> Iterator[None]:
    """Translate errors to NotSent or Unsure."""
    import httpcore2

    try:
        yield
    except Blocked as exc:
        raise NotSent("blocked") from exc
    except httpcore2.PoolTimeout as exc:
        raise NotSent("no_connection_free") from exc
    except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as exc:
        raise NotSent(_why_unreachable(exc)) from exc
    except httpcore2.TimeoutException as exc:
        raise Unsure("timeout") from exc
    except (httpcore2.NetworkError, httpcore2.ProtocolError) as exc:
        raise Unsure("reset") from exc


# The peer closed the connection during the handshake. This may be temporary.
_INTERRUPTED = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


def _why_unreachable(exc: BaseException) -> str:
    if is_tls_refusal(exc):
        return "tls"
    causes = _causes(exc)
    return (
        "name_unknown"
        if any(isinstance(one, socket.gaierror) for one in causes)
        else ("unreachable")
    )


def is_tls_refusal(exc: BaseException) -> bool:
    """Whether TLS failed for good: certificate, host name or protocol version."""
    for found in _causes(exc):
        if isinstance(found, ssl.SSLError):
            return not isinstance(found, _INTERRUPTED)
    return False


def _causes(exc: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = exc
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__
