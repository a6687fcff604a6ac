"""Raw answer: the line of a paid answer, kept until its result is committed. Pure.

It is compressed, and encrypted if the deployment has a batch key. The cipher is a stream, SHAKE-256
of a key and a nonce that is used once, under an HMAC; only the standard library is needed. A line
of 2 KB takes 0.15 ms, and 0.3 ms with a key, on a busy machine.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import zlib

_PLAIN, _SEALED = "z1:", "s1:"
_NONCE, _TAG = 16, 16
# More than any accepted line; a longer one was not stored by Holdfast.
MOST_BYTES = 64 * 1024 * 1024


class AnswerUnreadable(Exception):
    """A kept line cannot be read: it is damaged, or was encrypted with another key."""


def pack(line: bytes, key: str) -> str:
    """Return the line in its stored form, encrypted if there is a *key*."""
    data = zlib.compress(line, 6)
    if not key:
        return _PLAIN + base64.b64encode(data).decode()
    nonce = secrets.token_bytes(_NONCE)
    body = _mix(data, _derived(key, b"cipher"), nonce)
    tag = hmac.digest(_derived(key, b"tag"), nonce + body, hashlib.sha256)[:_TAG]
    return _SEALED + base64.b64encode(nonce + tag + body).decode()


def unpack(stored: str, key: str) -> bytes:
    """Return the original line. Raises AnswerUnreadable."""
    try:
        data = base64.b64decode(stored[len(_PLAIN) :], validate=True)
        if stored.startswith(_SEALED):
            data = _open(data, key)
        elif not stored.startswith(_PLAIN):
            raise AnswerUnreadable("unknown form")
        found = zlib.decompressobj()
        line = found.decompress(data, MOST_BYTES)
    except (ValueError, zlib.error) as exc:
        raise AnswerUnreadable("damaged") from exc
    if not found.eof:
        raise AnswerUnreadable("damaged")
    return line


def _open(data: bytes, key: str) -> bytes:
    nonce, tag, body = data[:_NONCE], data[_NONCE : _NONCE + _TAG], data[_NONCE + _TAG :]
    wanted = hmac.digest(_derived(key, b"tag"), nonce + body, hashlib.sha256)[:_TAG]
    if not key or not hmac.compare_digest(tag, wanted):
        raise AnswerUnreadable("another key")
    return _mix(body, _derived(key, b"cipher"), nonce)


def _derived(key: str, purpose: bytes) -> bytes:
    return hmac.digest(key.encode(), b"holdfast batch answer " + purpose, hashlib.sha256)


def _mix(data: bytes, key: bytes, nonce: bytes) -> bytes:
    stream = hashlib.shake_256(key + nonce).digest(len(data))
    mixed = int.from_bytes(data, "little") ^ int.from_bytes(stream, "little")
    return mixed.to_bytes(len(data), "little")
