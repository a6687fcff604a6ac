"""A store that has been through everything and is healthy: verify must find no violations in it.

Its jobs were retried, snoozed, released, canceled, rescued, lost and dead-lettered, passed through
stages, were fired by a schedule, claimed by runs, archived and pruned; at the end some still wait
or run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from holdfast import (
    Actor,
    Context,
    Enqueued,
    FakeClock,
    Gone,
    Holdfast,
    NetworkTimeout,
    RetryPolicy,
    Snooze,
    State,
    UpstreamDown,
)
from holdfast.config import RunSettings
from holdfast.engine.bounded_run import BoundedRun
from holdfast.engine.job import SYSTEM, Canceled, Claimed, Completed, Outcome, Released
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.run_log import Trigger, TriggerKind
from holdfast.engine.schedule.dispatcher import dispatch_once
from holdfast.engine.schedule.rows import sync_schedules
from holdfast.engine.settle import settle
from holdfast.engine.worker.worker import run_maintenance
from tests.story import ORG, OTHER_ORG, PROJECT, claim, seal_all

ADA = Actor.read("user:ada")
STAGES = ("fetch", "think", "tell")


@dataclass(frozen=True, slots=True)
class Busy:
    """Some of its jobs, by their outcome."""

    done: Enqueued
    unit: Enqueued
    staged: Enqueued
    archived: Enqueued
    canceled: Enqueued
    dead: Enqueued
    waiting: Enqueued
    deferred: Enqueued
    running: Enqueued
    others: Enqueued
    # Deleted after its retention.
    pruned: Enqueued


def make_busy(
    hf: Holdfast, clock: FakeClock, *, before_last: Callable[[], None] | None = None
) -> Busy:
    """Run every kind of work on the new *hf*. The clock does not move afterwards.

    *before_last* runs before the jobs that are left open are enqueued.
    """
    declare(hf)
    pruned = _outlive_a_job(hf, clock)
    early = _archive_some(hf, clock)
    _lose_and_rescue(hf, clock)
    _follow_the_clock(hf, clock)
    _give_orders(hf)
    dead = _bury(hf, clock)
    if before_last is not None:
        before_last()
    late = _leave_some_open(hf, clock)
    seal_all(hf.store, key=hf.settings.audit_key)
    return Busy(**early, **late, dead=dead, pruned=pruned)


def declare(hf: Holdfast) -> None:
    hf.settings = replace(
        hf.settings, runs={"nightly": RunSettings(queues=("q:exports",), max_jobs_per_run=2)}
    )
    hf.job("plain")(lambda job, payload: {"seen": len(payload)})
    hf.job("report.make", queue="q:exports")(lambda job, payload: None)
    hf.job("mail.send", category="notification")(lambda job, payload: None)
    hf.job("db.cleanup", category="maintenance")(lambda job, payload: None)
    # A delay without jitter: a retry that is due already may be promoted, which is no violation.
    hf.job("flaky", retry=RetryPolicy(steps=(timedelta(seconds=8),)))(_flaky)
    hf.job("sleepy")(_sleepy)
    hf.job("hopeless")(_hopeless)
    hf.job("filing")(_filing)
    hf.job("plan.day", category="planning", policy=lambda job, command: True)(_plan)
    hf.job("enrich", category="audit_enrichment")(_enrich)
    for job_type, last in (("steps", _flaky), ("steps.hopeless", _failing)):
        pipeline = hf.pipeline(job_type)
        for name in STAGES[:2]:
            pipeline.stage(name)(_flaky if name == "think" else _step)
        pipeline.stage(STAGES[2])(last)


def _step(job: Context, payload: Any) -> dict[str, str]:
    return {"by": job.stage}


def _flaky(job: Context, payload: Any) -> int:
    if job.attempt < 3:
        raise NetworkTimeout
    return job.attempt


def _failing(job: Context, payload: Any) -> None:
    raise UpstreamDown


def _hopeless(job: Context, payload: Any) -> None:
    raise Gone


def _sleepy(job: Context, payload: Any) -> str:
    if job.saved is None:
        job.checkpoint({"slept": True})
        raise Snooze(timedelta(minutes=1))
    job.progress(1, 1, "awake")
    return "rested"


def _filing(job: Context, payload: Any) -> str:
    return job.artifacts.put(b"a,b\n", name="out.csv").ref


def _plan(job: Context, payload: Any) -> dict[str, str]:
    with job.transaction() as connection:
        connection.execute("SELECT 1")
    return {"proposal": job.artifacts.put(b"1. Ada\n", name="plan.txt").ref}


def _enrich(job: Context, payload: Any) -> None:
    (first, *_) = job.audit.events(payload["job"])
    job.audit.note(first["id"], {"name": "Ada"}, name="who")
    job.audit.append("sheet.compared", subject="sheet:1", detail={"lines": 1})


def work(hf: Holdfast, clock: FakeClock) -> None:
    """Work until no job is left that could become due within the hour."""
    for _ in range(12):
        while hf.worker().run_once().claimed:
            pass
        clock.advance(minutes=5)


def upkeep(hf: Holdfast) -> None:
    hf.artifacts.upkeep()
    run_maintenance(hf.store, hf.settings, hf.events)


def end(hf: Holdfast, job: Claimed, outcome: Outcome) -> bool:
    """Settle by hand; whether the lease still held."""
    (settled,) = settle(hf.store, [(job, outcome)], actor=SYSTEM)
    return settled.lease_held


def take(hf: Holdfast, job: Enqueued, **options: Any) -> Claimed:
    """Claim *job*, which is the only one due."""
    (claimed,) = claim(hf, **options)
    assert claimed.id == job.id
    return claimed


def _outlive_a_job(hf: Holdfast, clock: FakeClock) -> Enqueued:
    """The audit of a job that has been deleted."""
    gone = hf.enqueue("plain", {}, org_id=ORG)
    hf.worker().run_once()
    for _ in range(2):
        clock.advance(days=100)
        upkeep(hf)
    assert hf.find_key("plain", gone.idempotency_key, org_id=ORG) is None
    return gone


def _archive_some(hf: Holdfast, clock: FakeClock) -> dict[str, Enqueued]:
    archived = hf.enqueue("plain", {"n": 1}, org_id=ORG, idempotency_key="first")
    staged = hf.enqueue("steps", {}, org_id=ORG)
    canceled = hf.enqueue("plain", {}, org_id=ORG)
    hf.cancel(canceled.id, org_id=ORG, reason="not wanted")
    hf.enqueue("steps", {}, org_id=OTHER_ORG)
    hf.enqueue_many("plain", [{}, {}], org_id=OTHER_ORG, project_id=PROJECT, actor=ADA)
    for job_type in ("flaky", "sleepy", "hopeless", "filing"):
        hf.enqueue(job_type, {}, org_id=ORG)
    hf.enqueue("plan.day", {}, org_id=ORG, command="assign")
    hf.enqueue("enrich", {"job": archived.id}, org_id=ORG)
    hf.enqueue("plain", {"n": 2}, org_id=ORG, idempotency_key="first")
    work(hf, clock)
    clock.advance(hours=2)
    upkeep(hf)
    # Enqueued again, and too late: history answers both.
    assert not hf.enqueue("plain", {"n": 3}, org_id=ORG, idempotency_key="first").created
    assert hf.cancel(archived.id, org_id=ORG, reason="changed my mind") == "too_late"
    return {"archived": archived, "staged": staged, "canceled": canceled}


def _lose_and_rescue(hf: Holdfast, clock: FakeClock) -> None:
    lost = hf.enqueue("plain", {}, org_id=ORG)
    frozen = take(hf, lost, worker="frozen")
    clock.advance(seconds=61)
    rescue_jobs(hf.store, limit=10)
    hf.worker().run_once()
    assert not end(hf, frozen, Completed("1"))

    released = hf.enqueue("plain", {}, org_id=ORG)
    assert end(hf, take(hf, released), Released("drain"))
    stopped = hf.enqueue("plain", {}, org_id=ORG)
    (one, other) = claim(hf, limit=2)
    assert {one.id, other.id} == {released.id, stopped.id}
    assert hf.cancel(stopped.id, org_id=ORG, reason="stop") == "requested"
    for job in (one, other):
        assert end(hf, job, Canceled() if job.id == stopped.id else Completed("1"))

    between = hf.enqueue("steps", {}, org_id=ORG)
    hf.worker().run_once()
    clock.advance(minutes=5)
    take(hf, between, worker="dying")
    clock.advance(seconds=61)
    rescue_jobs(hf.store, limit=10)
    crashing = hf.enqueue("plain", {}, org_id=ORG, max_attempts=1)
    claim(hf, limit=2, worker="dying")
    clock.advance(seconds=61)
    rescue_jobs(hf.store, limit=10)
    assert hf.get(crashing.id, org_id=ORG).state is State.FAILED
    work(hf, clock)
    assert hf.get(between.id, org_id=ORG).state is State.COMPLETED


def _follow_the_clock(hf: Holdfast, clock: FakeClock) -> None:
    hf.schedule("hourly", every="1h", job_type="db.cleanup", org_id=ORG)
    hf.schedule("sweep", every="1h", run="nightly")
    sync_schedules(hf)
    hf.enqueue("mail.send", {}, org_id=ORG, scheduled_for=clock.now() + timedelta(minutes=30))
    hf.enqueue_many("report.make", [{"n": n} for n in range(5)], org_id=ORG)
    for hours in (1, 3, 1):
        clock.advance(hours=hours)
        dispatch_once(hf)
        hf.worker().run_once()
    BoundedRun(hf, "nightly", trigger=Trigger(TriggerKind.SCHEDULE), inline=True).perform()


def _give_orders(hf: Holdfast) -> None:
    hf.queues.pause("q:planning", reason="maintenance", actor=ADA)
    hf.queues.resume("q:planning", reason="done", actor=ADA)


def _bury(hf: Holdfast, clock: FakeClock) -> Enqueued:
    dead = hf.enqueue("steps.hopeless", {}, org_id=ORG)
    work(hf, clock)
    assert hf.get(dead.id, org_id=ORG).state is State.FAILED
    return dead


def _leave_some_open(hf: Holdfast, clock: FakeClock) -> dict[str, Enqueued]:
    made = {
        "done": hf.enqueue("plain", {}, org_id=ORG, idempotency_key="second"),
        "unit": hf.enqueue("plain", {}, org_id=ORG, unit_key="month-1"),
        "others": hf.enqueue("plain", {}, org_id=OTHER_ORG),
        "deferred": hf.enqueue("flaky", {}, org_id=ORG),
    }
    hf.worker().run_once()
    made["running"] = hf.enqueue("plain", {}, org_id=ORG)
    take(hf, made["running"], worker="busy")
    made["waiting"] = hf.enqueue("plain", {}, org_id=ORG)
    hf.enqueue("mail.send", {}, org_id=ORG, scheduled_for=clock.now() + timedelta(days=1))
    hf.enqueue("report.make", {}, org_id=ORG, not_before_at=clock.now() + timedelta(days=1))
    return made
