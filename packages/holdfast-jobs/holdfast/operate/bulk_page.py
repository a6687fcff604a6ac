"""Bulk actions in pages: each page is one transaction, and a cursor says where the next begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from holdfast.store import Tx


@dataclass(frozen=True, slots=True)
class BulkCount:
    """How many items match, and to how many of them the action applies.

    *is_capped* means that the counting stopped, so there may be more.
    """

    matched: int
    ready: int
    is_capped: bool = False


@dataclass(frozen=True, slots=True)
class BulkPage:
    """The result of one page. *next* is the cursor of the following one, None after the last."""

    next: str | None
    counts: Mapping[str, int]
    # Called after the commit: wakes workers and emits events.
    announce: Callable[[], None] = lambda: None


class BulkPages(Protocol):
    """A bulk action that was validated and authorized, in pages."""

    @property
    def name(self) -> str:
        """The action."""

    @property
    def subject(self) -> str:
        """What it acts on: dead_letters, deliveries or jobs."""

    def count(self) -> BulkCount:
        """Count the items."""

    def first_cursor(self) -> str | None:
        """The cursor of the first page, which leaves out items that are created later.

        None if no item matches.
        """

    def act(self, tx: Tx, cursor: str) -> BulkPage:
        """Act on the items of one page."""

    def finish(self) -> None:
        """What follows after the last page. May be called again."""
