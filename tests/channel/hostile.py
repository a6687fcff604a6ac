"""Receivers that answer a message with status 200 and a body that cannot be read.

Each one is a name and a function that writes the raw bytes of an answer. The test sets *over* when
it has its result, so that a receiver that never ends does not outlive it.
"""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

REASONS = {200: "OK", 202: "Accepted", 204: "No Content", 404: "Not Found", 410: "Gone"}
Answer = Callable[[socket.socket, int, bytes, threading.Event], None]

TWENTY_MEGABYTES = 20 * 1024 * 1024


def head(status: int, *lines: str) -> bytes:
    first = f"HTTP/1.1 {status} {REASONS.get(status, 'X')}"
    return "\r\n".join([first, *lines]).encode() + b"\r\n\r\n"


def without_length(wire: socket.socket, status: int, body: bytes, over: threading.Event) -> None:
    wire.sendall(head(status, "content-type: application/json") + body)


def compressed(wire: socket.socket, status: int, body: bytes, over: threading.Event) -> None:
    packed = gzip.compress(body)
    wire.sendall(head(status, "content-encoding: gzip", f"content-length: {len(packed)}") + packed)


def compressed_garbage(
    wire: socket.socket, status: int, body: bytes, over: threading.Event
) -> None:
    wire.sendall(head(status, "content-encoding: gzip", "content-length: 9") + b"\x1f\x8bgarbage")


def compressed_by_brotli(
    wire: socket.socket, status: int, body: bytes, over: threading.Event
) -> None:
    wire.sendall(head(status, "content-encoding: br", "content-length: 4") + b"\x8b\x01\x80\x03")


def truncated(wire: socket.socket, status: int, body: bytes, over: threading.Event) -> None:
    half = body[: len(body) // 2]
    wire.sendall(head(status, f"content-length: {len(body) + 100}") + half)


def wrong_chunks(wire: socket.socket, status: int, body: bytes, over: threading.Event) -> None:
    wire.sendall(head(status, "transfer-encoding: chunked") + b"zz\r\n" + body + b"\r\n0\r\n\r\n")


def chunks_cut_short(wire: socket.socket, status: int, body: bytes, over: threading.Event) -> None:
    wire.sendall(head(status, "transfer-encoding: chunked") + b"ffff\r\n" + body)


def unknown_encoding(wire: socket.socket, status: int, body: bytes, over: threading.Event) -> None:
    wire.sendall(head(status, "transfer-encoding: gzip, chunked") + b"4\r\n\x1f\x8b\x08\x00\r\n")


def two_lengths(wire: socket.socket, status: int, body: bytes, over: threading.Event) -> None:
    wire.sendall(head(status, "content-length: 1", f"content-length: {len(body)}") + body)


def nonsense_length(wire: socket.socket, status: int, body: bytes, over: threading.Event) -> None:
    wire.sendall(head(status, "content-length: many") + body)


def bad_header(wire: socket.socket, status: int, body: bytes, over: threading.Event) -> None:
    wire.sendall(head(status, "this is no header", f"content-length: {len(body)}") + body)


def twenty_megabytes(wire: socket.socket, status: int, body: bytes, over: threading.Event) -> None:
    wire.sendall(head(status, f"content-length: {TWENTY_MEGABYTES}"))
    with suppress(OSError):
        for _ in range(TWENTY_MEGABYTES // 65_536):
            wire.sendall(b" " * 65_536)


def dripping(wire: socket.socket, status: int, body: bytes, over: threading.Event) -> None:
    wire.sendall(head(status, f"content-length: {len(body) + 100_000}"))
    with suppress(OSError):
        for letter in body + b" " * 100_000:
            if over.wait(0.05):
                return
            wire.sendall(bytes([letter]))


def dripping_head(wire: socket.socket, status: int, body: bytes, over: threading.Event) -> None:
    wire.sendall(f"HTTP/1.1 {status} X\r\n".encode())
    with suppress(OSError):
        while not over.wait(0.05):
            wire.sendall(b"x")


def silent_body(wire: socket.socket, status: int, body: bytes, over: threading.Event) -> None:
    wire.sendall(head(status, f"content-length: {len(body)}"))
    over.wait(60)


def cut_after_the_status(
    wire: socket.socket, status: int, body: bytes, over: threading.Event
) -> None:
    wire.sendall(f"HTTP/1.1 {status} X\r\ncontent-le".encode())


def reset_after_the_head(
    wire: socket.socket, status: int, body: bytes, over: threading.Event
) -> None:
    wire.sendall(head(status, f"content-length: {len(body)}"))
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


def after_a_hint(wire: socket.socket, status: int, body: bytes, over: threading.Event) -> None:
    hint = b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n"
    wire.sendall(hint + f"HTTP/1.1 {status} X\r\ncontent-length: many\r\n\r\n".encode())


ANSWERS: Mapping[str, Answer] = {
    one.__name__: one
    for one in (
        without_length,
        compressed,
        compressed_garbage,
        compressed_by_brotli,
        truncated,
        wrong_chunks,
        chunks_cut_short,
        unknown_encoding,
        two_lengths,
        nonsense_length,
        bad_header,
        twenty_megabytes,
        dripping,
        dripping_head,
        silent_body,
        cut_after_the_status,
        reset_after_the_head,
        after_a_hint,
    )
}
