"""The lifecycle of a job."""

from __future__ import annotations

import pytest

from holdfast import FakeClock, Holdfast, State
from holdfast.engine import maintenance
from holdfast.engine.job import SYSTEM, Completed
from holdfast.engine.settle import settle
from tests.story import ORG, claim, timeline


@pytest.mark.req("J-05", "J-08", "A-07")
def test_a_job_is_enqueued_claimed_executed_and_settled(hf: Holdfast) -> None:
    @hf.job("report.export")
    def export(job: object, payload: dict[str, int]) -> dict[str, int]:
        return {"rows": payload["project"] * 2}

    enqueued = hf.enqueue("report.export", {"project": 7}, org_id=ORG)
    hf.worker().run_once()

    job = hf.get(enqueued.id, org_id=ORG)
    assert job.state is State.COMPLETED
    assert job.result == {"rows": 14}
    assert timeline(hf, enqueued) == ["job.enqueued", "job.started", "job.succeeded"]


@pytest.mark.req("C-09")
def test_a_rescued_job_cannot_be_completed_by_its_first_worker(
    hf: Holdfast, clock: FakeClock
) -> None:
    hf.job("slow.work")(lambda job, payload: None)
    enqueued = hf.enqueue("slow.work", {}, org_id=ORG)
    (slow,) = claim(hf, worker="slow")

    clock.advance(seconds=61)
    maintenance.rescue_jobs(hf.store, limit=10)
    (quick,) = claim(hf, worker="quick")
    (late,) = settle(hf.store, [(slow, Completed())], actor=SYSTEM)
    (good,) = settle(hf.store, [(quick, Completed())], actor=SYSTEM)

    assert (late.lease_held, good.lease_held) == (False, True)
    assert timeline(hf, enqueued) == [
        "job.enqueued",
        "job.started",
        "job.failed",
        "job.retried",
        "job.started",
        "job.lease_lost",
        "job.succeeded",
    ]
