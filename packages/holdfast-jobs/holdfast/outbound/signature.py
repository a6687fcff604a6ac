"""Signatures as Standard Webhooks defines them. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac


def sign(key: bytes, message_id: str, stamp: str, body: bytes) -> str:
    """The version 1 signature of a message: over its id, its timestamp in seconds and its body."""
    digest = hmac.new(key, f"{message_id}.{stamp}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"
