"""The audit of a job is the same after the job was pruned."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast, Transient
from holdfast.clock import read_instant
from holdfast.config import RetentionSettings
from holdfast.document import decode
from holdfast.engine.retention import prune_jobs
from holdfast.store import Statements
from tests.operate.sound import assert_sound
from tests.story import ORG, look, seal_all

FEED = Statements("holdfast.feed", "feed.sql")


def events_of(hf: Holdfast, view: str = "job_event") -> list[dict[str, Any]]:
    rows = look(
        hf.store,
        "SELECT id, name, attempt, actor_type, actor_id, project_id, job_id, job_type, request_id,"
        f" correlation_id, at, CAST(detail AS text) AS detail FROM holdfast.{view}"
        " WHERE org_id = :org_id AND name <> 'job.pruned' ORDER BY id",
        org_id=ORG,
    )
    return [
        {
            **row,
            "at": read_instant(row["at"]),
            "detail": None if row["detail"] is None else decode(row["detail"]),
        }
        for row in rows
    ]


def test_the_events_of_a_job_stay_when_it_is_pruned(hf: Holdfast, clock: FakeClock) -> None:
    calls: list[Any] = []

    @hf.job("order.ship", max_attempts=3)
    def ship(job: Any, payload: Any) -> Any:
        calls.append(payload)
        if len(calls) == 1:
            raise Transient
        return {}

    hf.enqueue_many("order.ship", [{"n": n} for n in range(5)], org_id=ORG)
    for _ in range(3):
        hf.worker().run_once()
        clock.advance(minutes=10)
    before = events_of(hf)
    assert events_of(hf, "audit_entry") == before
    clock.advance(timedelta(days=400))

    pruned = prune_jobs(hf.store, RetentionSettings(), limit=100)

    assert pruned == 5
    assert len(before) == 5 + 6 + 5 + 2
    assert events_of(hf) == before
    assert events_of(hf, "audit_entry") == before


@pytest.mark.parametrize("sealed", ["before", "after"])
def test_the_seals_hold_when_the_jobs_are_pruned(
    hf: Holdfast, clock: FakeClock, sealed: str
) -> None:
    hf.job("order.ship")(lambda job, payload: payload)
    hf.enqueue_many("order.ship", [{"n": n} for n in range(5)], org_id=ORG, request_id="req-1")
    hf.enqueue("order.ship", {}, org_id=ORG, delay=60)
    clock.advance(minutes=2)
    hf.worker().run(until_idle=True)
    if sealed == "before":
        assert sum(seal_all(hf.store)) > 0
    clock.advance(timedelta(days=400))

    assert prune_jobs(hf.store, RetentionSettings(), limit=100) == 6

    assert sum(seal_all(hf.store)) > 0
    assert_sound(hf)


def test_the_feed_names_the_queue_of_a_job_that_was_pruned(hf: Holdfast, clock: FakeClock) -> None:
    hf.job("order.ship", queue="q:exports")(lambda job, payload: payload)
    hf.enqueue("order.ship", {}, org_id=ORG)
    hf.worker().run(until_idle=True)
    clock.advance(timedelta(days=400))
    prune_jobs(hf.store, RetentionSettings(), limit=100)

    asked = hf.store.many(FEED.list_after, after=0, limit=10)[0]

    assert (asked["name"], asked["queue"]) == ("job.enqueued", "q:exports")
