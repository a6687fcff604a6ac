"""Host names that resolve to scripted addresses, and ports without a listener."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def deaf_port() -> Iterator[int]:
    """A reserved port of this machine without a listener."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@contextmanager
def leading(name: str, *answers: str) -> Iterator[list[str]]:
    """Resolve *name* to these addresses in turn; yields the queried names. An address is itself."""
    real = socket.getaddrinfo
    left = list(answers)
    asked: list[str] = []

    def getaddrinfo(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if host != name:
            return real(host, port, *args, **options)
        asked.append(host)
        return real(left.pop(0) if len(left) > 1 else left[0], port, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", getaddrinfo)
        yield asked
