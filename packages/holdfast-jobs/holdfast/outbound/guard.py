"""Check which server a call may go to, and at which of its addresses."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from holdfast.errors import ConfigError
from holdfast.outbound.address import may_reach


class Blocked(Exception):
    """A host name resolves to an address that may not be called. Nothing was sent."""


def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a host, in the system's order of preference.

    Raises OSError if there are none.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\]")


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port of a server. A credential belongs to one origin."""

    scheme: str
    host: str
    port: int

    @classmethod
    def from_url(cls, url: str, *, allow_private: bool = False) -> Origin:
        """The origin of a URL. Raises ConfigError if it may not be called.

        Only a server in a private network may be called without encryption.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise _bad_address() from None
        host = parts.netloc.lower()
        if port is not None:
            host = host.rpartition(":")[0]
        if not _HOST.fullmatch(host) or port == 0:
            raise _bad_address()
        if parts.scheme != "https" and not (parts.scheme == "http" and allow_private):
            raise ConfigError(
                f"Calls to {host} must use https; plain http is allowed only in a private network,"
                " with allow_private = true."
            )
        return cls(parts.scheme, host, port or (443 if parts.scheme == "https" else 80))


def _bad_address() -> ConfigError:
    # The URL is not repeated: it may contain a login.
    return ConfigError(
        "An outbound address cannot be used: it must be a scheme, a host name in ASCII and a path, "
        "without a login. Check base_url."
    )


@dataclass(frozen=True, slots=True)
class Guard:
    """Allows calls to one origin, at public addresses or, if configured, private ones."""

    origin: Origin
    allow_private: bool = False
    resolve: Callable[[str, int], Sequence[str]] = resolve

    def addresses(self, host: str, port: int) -> Sequence[str]:
        """The addresses to connect to. Raises Blocked if any address of the host is not allowed.

        The connection uses exactly these addresses. The name is not resolved again.
        """
        if (host, port) != (self.origin.host.strip("[]"), self.origin.port):
            raise Blocked("another host")
        found = self.resolve(host, port)
        if not all(may_reach(address, private=self.allow_private) for address in found):
            raise Blocked("an address that is not public")
        return found
