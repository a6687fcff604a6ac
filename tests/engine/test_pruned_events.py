"""The audit of a job is the same after the job was pruned."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast import FakeClock, Holdfast, Transient
from holdfast.clock import read_instant
from holdfast.config import RetentionSettings
from holdfast.document import decode
from holdfast.engine.retention import prune_jobs
from tests.story import ORG, look


def events_of(hf: Holdfast) -> list[dict[str, Any]]:
    rows = look(
        hf.store,
        "SELECT id, name, attempt, actor_type, actor_id, job_id, job_type, request_id,"
        " correlation_id, at, CAST(detail AS text) AS detail FROM holdfast.job_event"
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
    clock.advance(timedelta(days=400))

    pruned = prune_jobs(hf.store, RetentionSettings(), limit=100)

    assert pruned == 5
    assert len(before) == 5 + 6 + 5 + 2
    assert events_of(hf) == before
