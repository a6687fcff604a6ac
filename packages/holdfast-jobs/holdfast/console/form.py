"""Forms of the console: bounded in size, time and number of fields, and uncompressed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from urllib.parse import parse_qsl

from starlette.requests import Request

LONGEST_FORM = 64 * 1024
# How much of a form is read and discarded before the answer that it is too large.
DISCARDED_BYTES = 32 * 1024 * 1024
MOST_FIELDS = 200
MEDIA_TYPE = "application/x-www-form-urlencoded"


@dataclass
class FormRefused(Exception):
    """The form was not read. Nothing was done."""

    status: int
    says: str


async def read_form(request: Request, seconds: float) -> dict[str, list[str]]:
    """Return the fields of a form. Files are not accepted. Raises FormRefused."""
    if request.method != "POST":
        return {}
    if request.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise FormRefused(415, "Compressed forms are not accepted.")
    try:
        async with asyncio.timeout(seconds):
            body = await _read(request)
    except TimeoutError:
        raise FormRefused(408, f"The form did not arrive within {seconds:g} s.") from None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and kind != MEDIA_TYPE:
        raise FormRefused(415, "The console accepts forms only.")
    found: dict[str, list[str]] = {}
    try:
        fields = parse_qsl(
            body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MOST_FIELDS
        )
    except ValueError:
        raise FormRefused(400, f"The form has more than {MOST_FIELDS} fields.") from None
    for name, value in fields:
        found.setdefault(name, []).append(value)
    return found


async def _read(request: Request) -> bytes:
    """The form. What is beyond the limit is discarded, so that the browser gets the answer."""
    parts, size = list[bytes](), 0
    async for part in request.stream():
        size += len(part)
        if size > DISCARDED_BYTES:
            break
        if size <= LONGEST_FORM:
            parts.append(part)
    if size > LONGEST_FORM:
        raise FormRefused(413, f"The form is larger than {LONGEST_FORM:,} bytes.")
    return b"".join(parts)
