"""Limits on the reads of the current thread or task: how long they take, and what they see.

Faces that answer people use them, so that one slow filter does not occupy the database, and so that
row-level security of PostgreSQL checks the reads of a tenant.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from holdfast.errors import StoreError
from holdfast.ids import read_uuid


class ReadTimeout(StoreError):
    """A read took longer than its limit. Narrow the filter, or raise `serve.read_seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The read took longer than {seconds:g} s and was stopped.")


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """How long a read may take, and the tenant whose rows it sees; None for all."""

    seconds: float
    org_id: str | None = None


_limit: ContextVar[ReadLimit | None] = ContextVar("holdfast_read_limit", default=None)
# How many instructions SQLite executes between two looks at the clock: about a millisecond.
_INSTRUCTIONS = 10_000


@contextmanager
def limited_reads(seconds: float, org_id: str | None = None) -> Iterator[None]:
    """Within the block, a read that takes longer raises ReadTimeout.

    With *org_id*, PostgreSQL reads in the role of tenants, which sees the rows of this one only.
    """
    token = _limit.set(ReadLimit(seconds, None if org_id is None else read_uuid(org_id)))
    try:
        yield
    finally:
        _limit.reset(token)


@contextmanager
def shared_reads() -> Iterator[None]:
    """Within the block, reads leave the role of tenants; their time stays limited.

    For tables without a tenant, such as the rules of queues, and for what concerns one job of a
    tenant that was checked before. Never for a filter that a caller wrote.
    """
    limit = _limit.get()
    if limit is None or limit.org_id is None:
        yield
        return
    token = _limit.set(ReadLimit(limit.seconds))
    try:
        yield
    finally:
        _limit.reset(token)


def read_limit() -> ReadLimit | None:
    """Return the limit of the current thread or task, if there is one."""
    return _limit.get()


@contextmanager
def interrupted_after(connection: sqlite3.Connection, limit: ReadLimit | None) -> Iterator[None]:
    """Interrupt the statements of a SQLite connection when the time of *limit* is over."""
    if limit is None:
        yield
        return
    end = time.monotonic() + limit.seconds
    connection.set_progress_handler(lambda: time.monotonic() > end, _INSTRUCTIONS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)
