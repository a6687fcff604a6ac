"""A multipart file upload, streamed: the whole file is never in memory or on disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from holdfast_llm.provider.adapter import Content


@dataclass(frozen=True, slots=True)
class Form:
    """The headers and the bytes of a form with one file."""

    headers: dict[str, str]
    chunks: Iterator[bytes]


def form(fields: Mapping[str, str], filename: str, content: Content) -> Form:
    """Build a form of *fields* and a file; its length is known before its first byte is sent."""
    # The content cannot contain its own hash.
    boundary = f"hf{content.sha256[:48]}"
    head = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    )
    head += (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n'
        "Content-Type: application/jsonl\r\n\r\n"
    )
    tail = f"\r\n--{boundary}--\r\n"
    headers = {
        "content-type": f"multipart/form-data; boundary={boundary}",
        "content-length": str(len(head) + content.size + len(tail)),
    }
    return Form(headers, _chunks(head.encode("ascii"), content, tail.encode("ascii")))


def _chunks(head: bytes, content: Content, tail: bytes) -> Iterator[bytes]:
    yield head
    yield from content.chunks()
    yield tail
