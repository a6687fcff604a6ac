"""Signatures as Standard Webhooks defines them. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac


def sign(key: bytes, message_id: str, stamp: str, body: bytes) -> str:
    """The signature of a message, version 1: over its id, its second and its body."""
    digest = hmac.new(key, f"{message_id}.{stamp}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"
