"""Pages: a list with an opaque cursor of the next page."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, Field

from holdfast.api.problems import ProblemError
from holdfast.operate.page import Page

T = TypeVar("T")
MOST = 200

Limit = Annotated[int, Query(ge=1, le=MOST, description="Maximum number of items on the page.")]
Cursor = Annotated[
    str | None,
    Query(max_length=500, description="The value of next of the page before. Opaque."),
]


class Listing(BaseModel, Generic[T]):
    """One page of a list."""

    items: list[T]
    next: str | None = Field(
        description="The cursor of the next page, None on the last one. Pass it as cursor."
    )


class Pages:
    """Reads and writes the cursors of one listing: of one caller, with one filter.

    A cursor says where the next page begins. It is signed for its listing, so that a cursor of
    another tenant or another filter is refused.
    """

    def __init__(
        self, key: bytes, name: str, org_id: str | None, wanted: Mapping[str, Any]
    ) -> None:
        asked = "\n".join(f"{key}={value}" for key, value in sorted(wanted.items()))
        self._key = key
        self._of = f"{name}\n{org_id}\n{asked}".encode("utf-8", "replace")

    def start(self, cursor: str | None, first: Any = None) -> Any:
        """Where the page begins: *first* without a cursor. Raises ProblemError."""
        if cursor is None:
            return first
        try:
            raw = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
            place = raw[16:].decode()
        except (ValueError, binascii.Error):
            raw, place = b"", ""
        if not place or not hmac.compare_digest(raw[:16], self._sign(place)):
            raise ProblemError(
                400,
                "invalid_cursor",
                "The cursor does not belong to this list.",
                "Start at the first page, and keep the same filter while you follow next.",
            )
        return place

    def page(self, found: Page[Any], item: Callable[[Any], T]) -> dict[str, Any]:
        """The answer for a page of the operator API."""
        next_place = None if found.next is None else str(found.next)
        return {
            "items": [item(row) for row in found],
            "next": None if next_place is None else self._write(next_place),
        }

    def _write(self, place: str) -> str:
        raw = self._sign(place) + place.encode()
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    def _sign(self, place: str) -> bytes:
        return hmac.digest(self._key, self._of + b"\n" + place.encode(), hashlib.sha256)[:16]
