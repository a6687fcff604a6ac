"""Subscribers of groups: the same events as one by one, in fewer calls."""

from __future__ import annotations

from holdfast import Context, Holdfast
from holdfast.event import (
    Event,
    Events,
    Grouped,
    JobEnqueued,
    JobEvents,
    JobSettled,
    JobStarted,
    LeaseWasLost,
    Only,
)
from tests.story import ORG, claim


def run_some(hf: Holdfast) -> None:
    @hf.job("work", max_attempts=1)
    def work(job: Context, payload: dict[str, int]) -> None:
        if payload["n"] == 2:
            raise ValueError

    hf.enqueue_many("work", [{"n": n} for n in range(4)], org_id=ORG)
    hf.worker(concurrency=1).run(until_idle=True)


def test_a_group_holds_the_events_that_others_get_one_by_one(hf: Holdfast) -> None:
    groups, alone = list[JobEvents](), list[Event]()
    hf.events.subscribe(Grouped(groups.append))
    hf.events.subscribe(alone.append)

    run_some(hf)

    assert [event for group in groups for event in group] == alone
    for kind in (JobEnqueued, JobStarted, JobSettled):
        assert len([event for event in alone if isinstance(event, kind)]) == 4
    settled = [event for event in alone if isinstance(event, JobSettled)]
    assert sorted(event.outcome for event in settled) == ["completed"] * 3 + ["dead"]
    assert all(event.seconds is not None and event.stage == "run" for event in settled)


def test_a_subscriber_of_some_kinds_gets_only_those(hf: Holdfast) -> None:
    found = list[Event]()
    hf.events.subscribe(Only((JobStarted,), found.append))
    hf.events.subscribe(Only((LeaseWasLost,), found.append))

    run_some(hf)

    assert [type(event) for event in found] == [JobStarted] * 4


def test_a_subscriber_that_fails_disturbs_no_other(hf: Holdfast) -> None:
    def fail(_events: object) -> None:
        raise ValueError

    hf.job("work")(lambda job, payload: None)
    hf.enqueue_many("work", [{}, {}], org_id=ORG)
    found = list[Event]()
    events = Events([Grouped(fail), fail, Only((JobStarted,), fail), found.append])

    events.emit_all(JobEvents(started=claim(hf, limit=2), worker_id="w"))

    assert [type(event) for event in found] == [JobStarted] * 2
