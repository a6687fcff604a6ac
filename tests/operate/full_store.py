"""A healthy store with every kind of job, into which violations are planted.

In addition to the busy store it has replayed dead letters, with a note, rewrites at a provider, and
notifications. All events but those of the last two jobs are sealed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from holdfast import FakeClock, Gone, Holdfast, NetworkTimeout, State
from holdfast.outbox.in_app import InAppChannel
from holdfast_rewrite.finish import finish_once
from tests.apps.planted import Stage, set_stage
from tests.operate.busy import Busy, make_busy
from tests.operate.letters import Review, operator, prepare, replay, work
from tests.story import ORG, PROJECT, claim, look, seal_all

PAYLOAD = {"name": "Ada", "rows": [1, 2.5, None], "empty": "", "text": "Grüße 🙂 | \\ \" '"}


@dataclass(frozen=True, slots=True)
class FullStore:
    """Some of its rows, by their outcome; each value is the id that a finding names."""

    busy: Busy
    # Every field of an enqueue is filled; it waits.
    detailed: str
    # A notification that waits on q:maintenance for its time.
    delayed: str
    # A pipeline that completed, still in the table of jobs.
    pipeline: str
    # Waits for its second attempt.
    retried: str
    # Canceled while it ran.
    stopping: str
    # Failed, was replayed from its failed stage, and the replay completed; with a note.
    mended: str
    replay: str
    # Failed, was replayed, and failed again.
    relapsed: str
    rewritten: str
    rewrite_job: str
    submitted: str
    delivery: str
    # Intended, and not due yet.
    pending: str
    # Not sealed yet: one that waits, and one that failed once.
    fresh: str
    fresh_failure: str


def declare_more(hf: Holdfast, clock: FakeClock) -> tuple[Review, Stage]:
    """The declarations of a full store beyond those of a busy one."""
    hf.job("fails", max_attempts=4)(_fail)
    hf.outbox.use(InAppChannel(lambda: hf.store, hf.ids))
    hf.outbox.template("sheet.updated", subject="{{ title }}", text="{{ title }} has changed")
    return Review(hf, attempts=1), set_stage(hf, clock)


def _fail(job: Any, payload: Any) -> None:
    raise NetworkTimeout


def make_full(hf: Holdfast, clock: FakeClock) -> FullStore:
    """Fill a new store. The clock does not move afterwards."""
    made: dict[str, str] = {}

    def before_last() -> None:
        review, stage = declare_more(hf, clock)
        made.update(_replay_two(hf, clock, review))
        made.update(_rewrite_two(stage))
        made.update(_notify_one(hf))
        made.update(_run_some(hf, review))

    busy = make_busy(hf, clock, before_last=before_last)
    made |= _leave_more_open(hf, clock)
    seal_all(hf.store, key=hf.settings.audit_key)
    made |= _leave_unsealed(hf)
    return FullStore(busy=busy, **made)


def _replay_two(hf: Holdfast, clock: FakeClock, review: Review) -> dict[str, str]:
    letters = operator(hf)
    mended, relapsed = (review.die(clock, Gone()) for _ in range(2))
    letters.add_note(mended.id, "The sheet was missing.")
    again = replay(letters, relapsed)
    work(hf, clock)
    assert hf.get(again, org_id=ORG).state is State.FAILED
    review.faults.clear()
    repeated = replay(letters, mended)
    hf.worker().run_once()
    assert hf.get(repeated, org_id=ORG).state is State.COMPLETED
    prepare(letters, relapsed)
    return {"mended": mended.id, "replay": repeated, "relapsed": relapsed.id}


def _rewrite_two(stage: Stage) -> dict[str, str]:
    done = stage.plant()
    stage.answer()
    assert stage.job(done).state is State.COMPLETED
    submitted = stage.plant("Please do not slam the door, number 3.")
    stage.submit()
    assert stage.job(submitted).state is State.BATCH_SUBMITTED
    finish_once(stage.store, reveal_delay=timedelta(hours=1))
    return {"rewritten": done.id, "rewrite_job": done.job_id, "submitted": submitted.job_id}


def _notify_one(hf: Holdfast) -> dict[str, str]:
    told = hf.outbox.notify(
        "sheet.updated", "ada", {"title": "Friday"}, channel="in_app", org_id=ORG
    )
    assert told is not None
    hf.worker(queues=["q:notifications"]).run_once()
    (row,) = look(hf.store, "SELECT state FROM holdfast.delivery WHERE id = :id", id=told.id)
    assert row["state"] == "sent"
    later = hf.outbox.notify(
        "sheet.updated",
        "bea",
        {"title": "Monday"},
        channel="in_app",
        org_id=ORG,
        scheduled_for=hf.clock.now() + timedelta(days=2),
    )
    assert later is not None
    return {"delivery": told.id, "pending": later.id}


def _run_some(hf: Holdfast, review: Review) -> dict[str, str]:
    pipeline = hf.enqueue(review.job_type, {"n": 1}, org_id=ORG)
    retried = hf.enqueue("fails", {}, org_id=ORG)
    hf.worker().run_once(limit=20)
    assert hf.get(pipeline.id, org_id=ORG).state is State.COMPLETED
    assert hf.get(retried.id, org_id=ORG).attempt_count == 1
    return {"pipeline": pipeline.id, "retried": retried.id}


def _leave_more_open(hf: Holdfast, clock: FakeClock) -> dict[str, str]:
    stopping = hf.enqueue("report.make", {}, org_id=ORG)
    (claimed,) = claim(hf, queue="q:exports", worker="w2")
    assert claimed.id == stopping.id
    assert hf.cancel(stopping.id, org_id=ORG, reason="not wanted") == "requested"
    detailed = hf.enqueue(
        "plain",
        PAYLOAD,
        org_id=ORG,
        project_id=PROJECT,
        actor="user:ada",
        request_id="request-1",
        correlation_id="correlation-1",
        priority="high",
        unit_key="month-2",
        limit_key="vendor",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        max_attempts=7,
        not_before_at=clock.now() + timedelta(hours=3),
    )
    due = clock.now() + timedelta(days=1)
    delayed = hf.enqueue("mail.send", {}, org_id=ORG, scheduled_for=due)
    return {"stopping": stopping.id, "detailed": detailed.id, "delayed": delayed.id}


def _leave_unsealed(hf: Holdfast) -> dict[str, str]:
    failure = hf.enqueue("fails", {}, org_id=ORG, queue="q:planning")
    hf.worker(queues=["q:planning"]).run_once()
    fresh = hf.enqueue("plain", {}, org_id=ORG, queue="q:planning")
    return {"fresh": fresh.id, "fresh_failure": failure.id}
