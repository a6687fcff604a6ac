"""Download links: signed tokens, each for one artifact, with an expiry. Pure.

The token is ``body.mac``. The body names the tenant, the artifact, its checksum, the expiry and the
audience. The mac is HMAC-SHA-256 over the encoded body, so only one encoding of a body is valid.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from holdfast.clock import EPOCH
from holdfast.errors import LinkRefused

LONGEST_LINK = timedelta(days=7)
AUDIENCE_BYTES = 200

_VERSION = b"\x01"
_FIXED = 1 + 16 + 16 + 32 + 8
# Separates these signatures from other uses of the same key.
_PURPOSE = b"holdfast artifact link 1\n"


@dataclass(frozen=True, slots=True)
class Link:
    """The contents of a token."""

    org_id: str
    artifact_id: str
    sha256: str
    expires_at: datetime
    audience: str = ""


def sign_link(link: Link, key: str) -> str:
    """Return the token for *link*."""
    body = _text(
        _VERSION
        + uuid.UUID(link.org_id).bytes
        + uuid.UUID(link.artifact_id).bytes
        + bytes.fromhex(link.sha256)
        + round((link.expires_at - EPOCH).total_seconds() * 1000).to_bytes(8)
        + link.audience.encode()
    )
    return f"{body}.{_mac(body, key)}"


def read_link(token: str, key: str) -> Link:
    """Decode and verify *token*. Every failure raises LinkRefused."""
    if not isinstance(token, str) or len(token) > 1000 or not token.isascii():
        raise LinkRefused
    body, _, mac = token.partition(".")
    if not hmac.compare_digest(_mac(body, key), mac):
        raise LinkRefused
    try:
        raw = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
    except binascii.Error:
        raise LinkRefused from None
    if len(raw) < _FIXED or raw[:1] != _VERSION:
        raise LinkRefused
    expires_ms = int.from_bytes(raw[65:73])
    return Link(
        str(uuid.UUID(bytes=raw[1:17])),
        str(uuid.UUID(bytes=raw[17:33])),
        raw[33:65].hex(),
        datetime.fromtimestamp(expires_ms / 1000, UTC),
        raw[73:].decode(),
    )


def _mac(body: str, key: str) -> str:
    return _text(hmac.new(key.encode(), _PURPOSE + body.encode(), hashlib.sha256).digest())


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")
