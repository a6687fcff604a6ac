"""Connections that go to the address the guard has looked at. Needs httpcore2."""

from __future__ import annotations

from collections.abc import Iterable

import httpcore2

from holdfast.outbound.guard import Guard

# A host with more addresses than this is down if none of them answers.
_TRIED = 3


class PinnedBackend(httpcore2.NetworkBackend):
    """Opens connections for a pool: resolves once, checks every address, connects to one of them.

    The certificate is checked against the host's name all the same.
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
                return self._inner.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as exc:
                failure = exc
        raise failure


def open_pool(guard: Guard, *, max_connections: int) -> httpcore2.ConnectionPool:
    """A pool for one origin: HTTP/1.1, no proxy, nothing repeated."""
    is_encrypted = guard.origin.scheme == "https"
    return httpcore2.ConnectionPool(
        # Loading the certificates of the machine takes 50 ms.
        ssl_context=httpcore2.default_ssl_context() if is_encrypted else None,
        max_connections=max_connections,
        # A server closes what it has not heard of for a while. A POST that meets such a connection
        # has no answer, and nobody knows what became of it: rather open another one.
        keepalive_expiry=5.0,
        retries=0,
        network_backend=PinnedBackend(guard),
    )
