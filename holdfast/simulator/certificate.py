"""A certificate for this machine that nobody else trusts, made without any dependency.

ECDSA over P-256 and the little of DER that one self-signed certificate needs. The key is derived
from the seed, so it protects nothing: it is for servers of a test on the loopback address.
"""

from __future__ import annotations

import base64
import hashlib
import ssl
import tempfile
from functools import cache
from pathlib import Path

# NIST P-256 (FIPS 186-4, D.1.2.3).
P = 2**256 - 2**224 + 2**192 + 2**96 - 1
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
Point = tuple[int, int] | None

SEQUENCE, SET, INTEGER, BITS, OCTETS = 0x30, 0x31, 0x02, 0x03, 0x04
TRUE = bytes([0x01, 1, 0xFF])
ECDSA_SHA256 = bytes.fromhex("06082a8648ce3d040302")
EC_KEY = bytes.fromhex("06072a8648ce3d0201")
CURVE = bytes.fromhex("06082a8648ce3d030107")
COMMON_NAME = bytes.fromhex("0603550403")
SUBJECT_KEY, KEY_USAGE, ALT_NAME, CONSTRAINTS, AUTHORITY_KEY = (
    bytes([0x06, 3, 0x55, 0x1D, number]) for number in (14, 15, 17, 19, 35)
)


@cache
def certificate(seed: int = 0) -> tuple[str, str]:
    """A certificate for localhost, 127.0.0.1 and ::1, and its key, as PEM."""
    secret = _number("key", seed) % (N - 1) + 1
    public = _times(secret, G)
    point = b"\x04" + b"".join(part.to_bytes(32, "big") for part in public)
    algorithm = _der(SEQUENCE, ECDSA_SHA256)
    name = _der(
        SEQUENCE,
        _der(SET, _der(SEQUENCE, COMMON_NAME, _der(0x0C, b"Holdfast simulator"))),
    )
    told = _der(
        SEQUENCE,
        _der(0xA0, _integer(2)),
        _integer(_number("serial", seed) >> 128),
        algorithm,
        name,
        # As long as two digits for a year allow, so that no test ends with it.
        _der(SEQUENCE, _der(0x17, b"200101000000Z"), _der(0x17, b"491231235959Z")),
        name,
        _der(SEQUENCE, _der(SEQUENCE, EC_KEY, CURVE), _der(BITS, b"\x00", point)),
        _der(0xA3, _der(SEQUENCE, *_extensions(hashlib.sha256(point).digest()[:20]))),
    )
    signature = _der(BITS, b"\x00", _sign(secret, told, seed))
    key = _der(
        SEQUENCE,
        _integer(1),
        _der(OCTETS, secret.to_bytes(32, "big")),
        _der(0xA0, CURVE),
        _der(0xA1, _der(BITS, b"\x00", point)),
    )
    signed = _der(SEQUENCE, told, algorithm, signature)
    return _pem("CERTIFICATE", signed), _pem("EC PRIVATE KEY", key)


def serving(seed: int = 0) -> ssl.SSLContext:
    """The server's side of TLS with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        # The standard library reads a certificate from a file only.
        place = Path(folder, "both.pem")
        place.write_text("".join(certificate(seed)))
        context.load_cert_chain(place)
    return context


def _extensions(key_id: bytes) -> list[bytes]:
    names = (
        _der(0x82, b"localhost"),
        _der(0x87, bytes([127, 0, 0, 1])),
        _der(0x87, bytes(15) + b"\x01"),
    )
    return [
        _der(SEQUENCE, CONSTRAINTS, TRUE, _der(OCTETS, _der(SEQUENCE, TRUE))),
        # digitalSignature and keyCertSign.
        _der(SEQUENCE, KEY_USAGE, TRUE, _der(OCTETS, _der(BITS, b"\x02\x84"))),
        _der(SEQUENCE, ALT_NAME, _der(OCTETS, _der(SEQUENCE, *names))),
        _der(SEQUENCE, SUBJECT_KEY, _der(OCTETS, _der(OCTETS, key_id))),
        _der(SEQUENCE, AUTHORITY_KEY, _der(OCTETS, _der(SEQUENCE, _der(0x80, key_id)))),
    ]


# -- the curve


def _number(label: str, seed: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{label} {seed}".encode()).digest(), "big")


def _sign(secret: int, told: bytes, seed: int) -> bytes:
    digest = int.from_bytes(hashlib.sha256(told).digest(), "big")
    once = _number("once", seed) % (N - 1) + 1
    r = _times(once, G)[0] % N
    s = pow(once, -1, N) * (digest + r * secret) % N
    return _der(SEQUENCE, _integer(r), _integer(s))


def _times(factor: int, point: tuple[int, int]) -> tuple[int, int]:
    total: Point = None
    step: Point = point
    while factor:
        if factor & 1:
            total = _plus(total, step)
        step = _plus(step, step)
        factor >>= 1
    if total is None:
        raise ArithmeticError("a multiple of the order has no point")
    return total


def _plus(a: Point, b: Point) -> Point:
    if a is None or b is None:
        return a or b
    if a[0] == b[0] and (a[1] + b[1]) % P == 0:
        return None
    if a == b:
        slope = (3 * a[0] * a[0] - 3) * pow(2 * a[1], -1, P) % P
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, P) % P
    x = (slope * slope - a[0] - b[0]) % P
    return (x, (slope * (a[0] - x) - a[1]) % P)


# -- the encoding


def _der(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    if len(body) < 128:
        return bytes([tag, len(body)]) + body
    length = len(body).to_bytes((len(body).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + body


def _integer(value: int) -> bytes:
    return _der(INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _pem(kind: str, der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""])
