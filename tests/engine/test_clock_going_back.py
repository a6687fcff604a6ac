"""A clock that goes back two hours at any step of a job prevents no write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Context, FakeClock, Holdfast, RetryPolicy, State, Transient
from holdfast.engine.maintenance import rescue_jobs
from holdfast.errors import Defect
from holdfast.operate.dead_letter import DeadLetterState
from holdfast.outbox.in_app import Feed, InAppChannel
from tests.operate.letters import operator, prepare
from tests.operate.sound import report_of, violations
from tests.outbox.test_in_app import intend
from tests.story import ORG, claim, look, make_holdfast, seal_all

TWO_HOURS = timedelta(hours=2)


class TurnedClock(FakeClock):
    """A clock that an administrator sets back; its monotonic time never goes back."""

    def turn_back(self) -> None:
        with self._lock:
            self._now -= TWO_HOURS
            self._began -= TWO_HOURS


@pytest.fixture
def clock() -> TurnedClock:
    return TurnedClock()


@pytest.fixture
def hf(url: str, clock: TurnedClock) -> Iterator[Holdfast]:
    with make_holdfast(url, clock) as made:
        yield made


class Walk:
    """A job that fails for good, is replayed, fails again, is replayed and completes."""

    def __init__(self, hf: Holdfast, clock: TurnedClock, turn_at: str) -> None:
        self.hf = hf
        self.clock = clock
        self.turn_at = turn_at
        self.seen: list[str] = []
        self.fault: BaseException | None = Transient()
        hf.job("order.pay", max_attempts=2, retry=RetryPolicy(steps=(timedelta(seconds=1),)))(
            self._handle
        )

    def reach(self, point: str) -> None:
        """Name a point; the clock goes back at one of them."""
        name = f"{point} {self.seen.count(point) + 1}"
        self.seen.append(point)
        if name == self.turn_at:
            self.clock.turn_back()

    def _handle(self, job: Context, payload: Any) -> str:
        self.reach("handler")
        if self.fault is not None:
            raise self.fault
        return "paid"

    def run(self) -> None:
        """Run what is due in the next three hours, in steps that are shorter than two hours."""
        self.reach("claim")
        for _ in range(5):
            self.hf.worker().run_once()
            self.clock.advance(minutes=35)

    def walk(self) -> str:
        letters = operator(self.hf)
        self.reach("enqueue")
        job = self.hf.enqueue("order.pay", {}, org_id=ORG)
        self.clock.advance(seconds=1)
        self.run()
        assert self.hf.get(job.id, org_id=ORG).state is State.FAILED
        for fault in (Defect(), None):
            self.fault = fault
            self.reach("triage")
            prepare(letters, job)
            self.reach("replay")
            letters.replay(job.id, reason="it is mended")
            self.run()
        self.reach("verify")
        letters.verify_replay(job.id)
        self.reach("resolve")
        letters.resolve(job.id, notes="done")
        return job.id


POINTS = [
    "enqueue 1", "claim 1", "handler 1", "handler 2", "triage 1", "replay 1", "claim 2",
    "handler 3", "triage 2", "replay 2", "claim 3", "handler 4", "verify 1", "resolve 1",
]  # fmt: skip


@pytest.mark.req("J-06")
@pytest.mark.parametrize("point", POINTS)
def test_a_job_dies_and_its_letter_is_resolved_although_the_clock_goes_back(
    hf: Holdfast, clock: TurnedClock, point: str
) -> None:
    walk = Walk(hf, clock, point)

    job_id = walk.walk()

    letter = operator(hf).show(job_id).letter
    assert letter.state is DeadLetterState.RESOLVED
    assert letter.first_failure_at <= letter.last_failure_at
    assert point.rpartition(" ")[0] in walk.seen
    seal_all(hf.store)
    # These three compare instants and report the clock itself.
    assert set(violations(report_of(hf))) <= {"I27", "I33", "I36"}


@pytest.mark.req("C-09", "J-06")
def test_a_job_that_kills_its_workers_is_dead_lettered_although_the_clock_goes_back(
    hf: Holdfast, clock: TurnedClock
) -> None:
    hf.job("order.pay")(lambda job, payload: None)
    job = hf.enqueue("order.pay", {}, org_id=ORG, max_attempts=2)
    assert len(claim(hf)) == 1
    clock.advance(seconds=61)
    rescue_jobs(hf.store, limit=1)
    clock.turn_back()
    assert len(claim(hf)) == 1
    clock.advance(seconds=61)

    rescue_jobs(hf.store, limit=1)

    found = hf.get(job.id, org_id=ORG)
    assert (found.state, found.last_error) == (State.FAILED, "stale_claim_exhausted")
    assert found.record["first_failed_at"] <= found.record["last_error_at"]


@pytest.mark.parametrize("way", ["one", "all"])
def test_a_notification_is_read_although_the_clock_goes_back(
    hf: Holdfast, clock: TurnedClock, way: str
) -> None:
    channel, feed = InAppChannel(lambda: hf.store, hf.ids), Feed(lambda: hf.store)
    channel.send(intend(hf, "order:7"))
    (notice,) = feed.list("ada", org_id=ORG)
    clock.turn_back()

    if way == "one":
        feed.read("ada", [notice.id], org_id=ORG)
    else:
        feed.read_all("ada", upto=notice.id, org_id=ORG)

    (read,) = feed.list("ada", org_id=ORG)
    assert read.read_at == read.created_at


# Every CHECK that compares two instants, and the code that satisfies it when the clock goes back.
COMPARED = {
    "dead_letter_times_in_order": "the tests above",
    "in_app_notification_read_later": "the tests above",
    "api_request_ends": "both are counted from one reading of the clock",
    "console_session_ends": "both are counted from one reading of the clock",
    "artifact_expires_later": "both are counted from one reading of the clock",
    "provider_account_opened": "both are counted from one reading of the clock",
    "schedule_fires_forward": "the next tick is computed from the last one, not from the clock",
    "rewrite_request_reveal_follows_completion": "computed from the completion; revealed_at only"
    " when the clock is past sender_reveal_at",
}
INSTANT = r"\w*(?:_at|_to|_until|_for)"
COMPARES = re.compile(rf"\b{INSTANT}\b\W*(?:<|>)=?\W*\b{INSTANT}\b")


def test_every_check_that_compares_two_instants_is_known(postgres_url: str) -> None:
    with make_holdfast(postgres_url) as hf:
        checks = look(
            hf.store,
            "SELECT conname, pg_get_constraintdef(oid) AS text FROM pg_constraint"
            " WHERE contype = 'c' AND connamespace = CAST('holdfast' AS regnamespace)",
        )

    assert {row["conname"] for row in checks if COMPARES.search(row["text"])} == set(COMPARED)
