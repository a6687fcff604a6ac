"""Shared parts of the fairness tests: many tenants, an application, and a worker's fetcher."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Actor, Enqueued, Holdfast, JobRequest
from holdfast.engine import claim as claiming
from holdfast.engine import promote as promoting
from holdfast.engine.job import Claimed
from holdfast.engine.worker import fetcher as fetching
from holdfast.engine.worker.fetcher import FairFetcher

OPERATOR = Actor.read("user:op")
# Lower than any other tenant here: in the order of ids the noisy one is always first.
NOISY = "0198c0de-0000-7000-8000-000000000000"
QUIET = "0198c0de-ffff-7000-8000-000000000000"
QUEUE = "q:default"
# The limits of one poll of the queues, an eighth of the real ones or less, so that a poll does not
# read all rows.
BACKLOGS = 32
KEYS = 40
DEPTH = 100
PROMOTED = 100


def narrow_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a worker see fewer tenants, keys and jobs at once."""
    monkeypatch.setattr(claiming, "BACKLOGS", BACKLOGS)
    monkeypatch.setattr(claiming, "KEYS", KEYS)
    monkeypatch.setattr(fetching, "KEYS", KEYS)
    monkeypatch.setattr(fetching, "DEPTH", DEPTH)
    monkeypatch.setattr(promoting, "LIMIT", PROMOTED)


def tenant(number: int) -> str:
    return f"0198c0de-0001-7000-8000-{number:012d}"


def declare(hf: Holdfast) -> Holdfast:
    """Handlers that do nothing, one for every queue that a test needs."""
    hf.job("work")(lambda job, payload: None)
    hf.job("rush", queue="q:critical", slo=timedelta(seconds=1))(lambda job, payload: None)
    hf.job("tell", category="notification")(lambda job, payload: None)
    hf.job("sweep", category="maintenance")(lambda job, payload: None)
    return hf


def fetcher(hf: Holdfast, *queues: str, worker: str = "w1") -> FairFetcher:
    return FairFetcher(hf.store, queues=queues or (QUEUE,), worker_id=worker, lease_ms=60_000)


def fill(hf: Holdfast, org_id: str, count: int, job_type: str = "work", **options: Any) -> None:
    hf.enqueue_many(job_type, [{"n": n} for n in range(count)], org_id=org_id, **options)


def fill_tenants(hf: Holdfast, tenants: int, count: int) -> None:
    """This many jobs for each of the first *tenants*."""
    requests = [JobRequest({}, tenant(number)) for number in range(tenants) for _ in range(count)]
    hf.enqueue_many("work", requests)


def fill_with(hf: Holdfast, org_id: str, requests: Sequence[dict[str, Any]]) -> list[Enqueued]:
    """One job of *org_id* for each of these options."""
    return hf.enqueue_many("work", [JobRequest({}, org_id, **given) for given in requests])


def by_tenant(claimed: Sequence[Claimed]) -> Counter[str]:
    return Counter(job.org_id for job in claimed)


def by_queue(claimed: Sequence[Claimed]) -> Counter[str]:
    return Counter(job.queue for job in claimed)
