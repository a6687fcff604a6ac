"""Certificates for the simulated mail servers, issued by trustme. No system trusts them.

There is one CA per process and seed. Its keys exist only in memory.
"""

from __future__ import annotations

import ssl
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trustme import CA, LeafCert

NAMES = ("localhost", "127.0.0.1", "::1")


def has_trustme() -> bool:
    """Return whether certificates can be issued: trustme is an optional dependency."""
    return find_spec("trustme") is not None


def certificate(seed: int = 0) -> tuple[str, str]:
    """Return the CA certificate for clients, and the server's key with its certificate, as PEM."""
    authority, server = _issued(seed)
    loaded = server.private_key_and_cert_chain_pem
    return authority.cert_pem.bytes().decode(), loaded.bytes().decode()


def serving(seed: int = 0) -> ssl.SSLContext:
    """Return a server-side TLS context with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _issued(seed)[1].configure_cert(context)
    return context


@cache
def _issued(seed: int) -> tuple[CA, LeafCert]:
    if not has_trustme():
        raise RuntimeError(
            "TLS of the simulated mail servers needs the package trustme: "
            "install holdfast-simulator[tls]."
        )
    import trustme

    authority = trustme.CA(organization_name=f"Holdfast simulator {seed}")
    return authority, authority.issue_cert(*NAMES)
