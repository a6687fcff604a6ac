"""Shared parts of tests: tenants, audit events, and SQL on either database."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Any

from holdfast import Enqueued, FakeClock, Holdfast, Job, Settings
from holdfast.engine.claim import claim_jobs
from holdfast.engine.job import Claimed
from holdfast.extension import components_of
from holdfast.sealed_audit.extension import SealExtension
from holdfast.sealed_audit.seal import seal_events
from holdfast.store import Row, Statements, Store
from holdfast.store.query import Statement

ORG = "0198c0de-0000-7000-8000-00000000000a"
OTHER_ORG = "0198c0de-0000-7000-8000-00000000000b"
PROJECT = "0198c0de-0000-7000-8000-0000000000aa"

SQL = Statements("holdfast.engine", "job.sql")

_OPENED: Counter[str] = Counter()


def make_holdfast(url: str, clock: FakeClock | None = None, **settings: Any) -> Holdfast:
    """A Holdfast on a fake clock with a fixed random source, unique on its database.

    Two with the same source would make the same ids whenever a stopped clock shows both the same
    instant.
    """
    source = random.Random(7 + _OPENED[url])
    # A database in memory is not shared.
    _OPENED[url] += url != "sqlite:"
    return Holdfast(settings=Settings(db=url, **settings), clock=clock or FakeClock(), rng=source)


def forget_ids(url: str) -> None:
    """Start with the first random source again, because the database at *url* is empty now."""
    _OPENED.pop(url, None)


def timeline(hf: Holdfast, job: Enqueued | Claimed | Job) -> list[str]:
    """The names of a job's audit events, in order."""
    return [row["name"] for row in events(hf, job)]


def events(hf: Holdfast, job: Enqueued | Claimed | Job) -> list[Row]:
    return hf.store.read(lambda tx: tx.many(SQL.list_events, org_id=job.org_id, job_id=job.id))


def seal_all(store: Store, *, key: str = "", limit: int = 5_000) -> list[int]:
    """Seal until no events are left; return the sizes of the passes that found some.

    On PostgreSQL a pass waits for every transaction of its time, also in other databases of the
    server.
    """
    # A SQLite file that a test opened without extensions gets the tables now.
    store.enable(components_of([SealExtension()]))
    found: list[int] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        passed = seal_events(store, limit=limit, key=key).events
        if passed:
            found.append(passed)
        cursor = look(
            store,
            "SELECT sealed_to, (SELECT coalesce(max(id), 0) FROM holdfast.job_event) AS newest"
            " FROM holdfast.audit_cursor",
        )[0]
        if cursor["sealed_to"] == cursor["newest"]:
            return found
    raise AssertionError("the audit could not be sealed in time")


def claim(
    hf: Holdfast,
    *,
    worker: str = "w1",
    limit: int = 1,
    queue: str = "q:default",
    lease_ms: int = 60_000,
) -> list[Claimed]:
    return claim_jobs(hf.store, queue=queue, worker_id=worker, limit=limit, lease_ms=lease_ms)


def by_hand(store: Store, text: str, **params: Any) -> list[Row]:
    """Run SQL that Holdfast itself would not run, in the notation of our .sql files."""
    statement = Statement("by_hand", "many", "", text, frozenset())
    return store.write(lambda tx: tx.many(statement, **params))


def look(store: Store, text: str, **params: Any) -> list[Row]:
    statement = Statement("look", "many", "", text, frozenset())
    return store.read(lambda tx: tx.many(statement, **params))
