"""Connections to the addresses that the guard has checked. Needs httpcore2."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import httpcore2

from holdfast.clock import SystemClock
from holdfast.outbound.guard import Guard
from holdfast.outbound.head import Head

# At most this many addresses of a host are tried.
_TRIED = 3
# The head of the answer that this thread reads, if it is recorded.
_noted: ContextVar[Head | None] = ContextVar("noted", default=None)
# Test servers send in real time, independent of the application's clock.
_clock = SystemClock()


@contextmanager
def noting(head: Head) -> Iterator[None]:
    """Record in *head* what this thread reads, and enforce its time limits."""
    token = _noted.set(head)
    try:
        yield
    finally:
        _noted.reset(token)


class NotedStream(httpcore2.NetworkStream):
    """A connection that records its answers while they are read."""

    def __init__(self, inner: httpcore2.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        head = _noted.get()
        if head is None:
            return self._inner.read(max_bytes, timeout)
        left = head.seconds_left(_clock.monotonic())
        if left <= 0:
            raise httpcore2.ReadTimeout("the answer takes too long")
        data = self._inner.read(max_bytes, left if timeout is None else min(timeout, left))
        head.add(data, _clock.monotonic())
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, timeout)

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        return NotedStream(self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class PinnedBackend(httpcore2.NetworkBackend):
    """Opens connections for a pool: resolves once, checks every address, connects to one of them.

    The certificate is still checked against the host name.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._inner = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        try:
            addresses = self._guard.addresses(host, port)
        except OSError as exc:
            raise httpcore2.ConnectError("no address") from exc
        failure: Exception = httpcore2.ConnectError("no address")
        for address in addresses[:_TRIED]:
            try:
                opened = self._inner.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
                return NotedStream(opened)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as exc:
                failure = exc
        raise failure


def open_pool(guard: Guard, *, max_connections: int) -> httpcore2.ConnectionPool:
    """A pool for one origin: HTTP/1.1, no proxy, no retries."""
    is_encrypted = guard.origin.scheme == "https"
    return httpcore2.ConnectionPool(
        # Loading the system's certificates takes 50 ms.
        ssl_context=httpcore2.default_ssl_context() if is_encrypted else None,
        max_connections=max_connections,
        # Servers close idle connections. A POST on such a connection gets no answer, and its
        # outcome is unknown, so a new connection is opened instead.
        keepalive_expiry=5.0,
        retries=0,
        network_backend=PinnedBackend(guard),
    )
