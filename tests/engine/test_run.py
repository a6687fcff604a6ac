"""Bounded runs: limited by job count and run time; the remaining jobs wait."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import (
    Actor,
    Context,
    FakeClock,
    Forbidden,
    Holdfast,
    Priority,
    RateLimited,
    RetryPolicy,
    Role,
    Snooze,
    State,
    UpstreamDown,
)
from holdfast.actor import SYSTEM, ActorType
from holdfast.clock import read_instant
from holdfast.config import RunProfile, RunSettings
from holdfast.engine.audit import PLATFORM_ORG
from holdfast.engine.bounded_run import BoundedRun, pending_of, perform_run
from holdfast.engine.claim import claim_jobs
from holdfast.engine.run_log import RunOutcome, RunReport, Trigger, TriggerKind, clean_run_log
from holdfast.engine.runs import JobRun
from holdfast.engine.worker.worker import Worker, run_maintenance
from holdfast.errors import (
    ConfigError,
    RuleBroken,
    RunNotFound,
    UnknownKind,
    UnknownQueue,
    UnknownRun,
)
from holdfast.event import Event, WorkerRunFinished
from tests.engine.planting import plant
from tests.story import ORG, OTHER_ORG, by_hand, events, look, timeline

SCHEDULE = Trigger(TriggerKind.SCHEDULE)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def work(hf: Holdfast) -> Iterator[Holdfast]:
    """Jobs that do nothing, and a run over their queues."""
    hf.job("plain.work", queue="q:exports")(lambda job, payload: payload)
    hf.job("other.work", queue="q:planning")(lambda job, payload: payload)
    declare(hf)
    return hf


def declare(hf: Holdfast, **given: Any) -> None:
    """The run "nightly", with the options of the test."""
    run = RunSettings(**{"queues": ("q:exports", "q:planning"), **given})
    hf.settings = replace(hf.settings, runs={"nightly": run})


def enqueue(hf: Holdfast, count: int, job_type: str = "plain.work", **options: Any) -> list[Any]:
    return hf.enqueue_many(job_type, [{"n": n} for n in range(count)], org_id=ORG, **options)


def perform(hf: Holdfast, *, inline: bool = True, **options: Any) -> RunReport:
    return BoundedRun(hf, "nightly", trigger=SCHEDULE, inline=inline, **options).perform()


def worker_of(run: BoundedRun) -> Worker:
    assert isinstance(run._body, JobRun)
    return run._body._worker


def states(hf: Holdfast) -> Counter[str]:
    return Counter(row["state"] for row in look(hf.store, "SELECT state FROM holdfast.job"))


def by_run(hf: Holdfast, report: RunReport) -> Counter[str]:
    """The audit events of a run."""
    rows = look(
        hf.store,
        "SELECT name, count(*) AS events FROM holdfast.job_event"
        " WHERE actor_id = :id GROUP BY name",
        id=report.run_id,
    )
    return Counter({row["name"]: row["events"] for row in rows})


def actions(hf: Holdfast) -> list[tuple[str, str, str]]:
    rows = look(
        hf.store,
        "SELECT name, actor_type, actor_id FROM holdfast.job_event WHERE org_id = :org ORDER BY id",
        org=PLATFORM_ORG,
    )
    return [(row["name"], row["actor_type"], row["actor_id"]) for row in rows]


# -- the bound


@pytest.mark.req("B-01")
@pytest.mark.req("B-02")
@pytest.mark.req("B-04")
@pytest.mark.parametrize("inline", [True, False])
def test_sixty_jobs_and_a_limit_of_25_make_runs_of_25_25_and_10(
    work: Holdfast, inline: bool
) -> None:
    enqueue(work, 60)

    first = perform(work, inline=inline)
    waiting = look(work.store, "SELECT * FROM holdfast.job WHERE state = 'queued'")
    reports = [first, perform(work, inline=inline), perform(work, inline=inline)]

    assert [report.succeeded_count for report in reports] == [25, 25, 10]
    assert [report.outcome for report in reports] == ["full", "full", "done"]
    assert len(waiting) == 35
    assert {
        (row["attempt_count"], row["lease_token"], row["not_before_at"]) for row in waiting
    } == {(0, 0, None)}
    assert states(work) == {"completed": 60}


@pytest.mark.req("B-06")
def test_many_threads_and_several_queues_never_exceed_the_limit(work: Holdfast) -> None:
    enqueue(work, 40)
    enqueue(work, 40, "other.work")
    declare(work, max_jobs_per_run=50)

    report = perform(work, inline=False, concurrency=8)

    assert (report.claimed_count, states(work)["completed"]) == (50, 50)
    assert by_run(work, report)["job.started"] == 50


@pytest.mark.both_databases
def test_two_runs_at_once_take_different_jobs(work: Holdfast, url: str) -> None:
    enqueue(work, 40)
    both = threading.Barrier(2)
    reports: list[RunReport] = []

    def run() -> None:
        bounded = BoundedRun(work, "nightly", trigger=SCHEDULE, inline=False, concurrency=2)
        both.wait(10)
        reports.append(bounded.perform())

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert sum(report.claimed_count or 0 for report in reports) == 40
    assert all((report.claimed_count or 0) <= 25 for report in reports)
    assert states(work) == {"completed": 40}


@pytest.mark.both_databases
def test_the_database_refuses_a_run_beyond_its_bound(work: Holdfast) -> None:
    enqueue(work, 1)
    run = BoundedRun(work, "nightly", trigger=SCHEDULE)
    run._body.counts.claimed = 26

    with pytest.raises(RuleBroken, match="worker_run_within_bound"):
        run.perform()


@pytest.mark.both_databases
def test_a_run_that_ended_never_changes(work: Holdfast) -> None:
    report = perform(work)

    with pytest.raises(RuleBroken, match="worker_run_closed"):
        by_hand(
            work.store,
            "UPDATE holdfast.worker_run SET reason = 'x' WHERE run_id = :id RETURNING run_id",
            id=report.run_id,
        )


# -- the run time


@pytest.mark.req("B-09")
def test_a_run_takes_nothing_further_when_its_time_is_over(
    work: Holdfast, clock: FakeClock
) -> None:
    @work.job("slow.work", queue="q:exports")
    def slow(job: Context, payload: object) -> None:
        clock.advance(seconds=100)

    enqueue(work, 10, "slow.work")

    report = perform(work)

    assert (report.outcome, report.claimed_count, report.succeeded_count) == ("out_of_time", 3, 3)
    assert states(work) == {"completed": 3, "queued": 7}
    assert report.finished_at == report.started_at + timedelta(seconds=300)


@pytest.mark.req("B-09")
def test_what_was_claimed_and_not_reached_goes_back_at_no_attempt(
    work: Holdfast, clock: FakeClock
) -> None:
    """The first job uses up the run time while others already wait in this process."""

    @work.job("slow.work", queue="q:exports")
    def slow(job: Context, payload: object) -> None:
        clock.advance(seconds=241)

    # A worker that also has asynchronous jobs claims for its event loop as well.
    @work.job("loop.work")
    async def loop(job: Context, payload: object) -> None: ...

    jobs = enqueue(work, 6, "slow.work")

    report = perform(work, inline=False, concurrency=1)

    assert report.outcome == "out_of_time"
    assert (report.succeeded_count, report.failed_count) == (1, 0)
    assert report.requeued_count == report.released_count == report.claimed_count - 1 > 0  # type: ignore[operator]
    released = [item for item in jobs if "job.released" in timeline(work, item)]
    assert len(released) == report.released_count
    for item in released:
        found = work.get(item.id, org_id=ORG)
        assert (found.state, found.attempt_count, found.last_error) == (State.QUEUED, 0, None)
        assert found.record["not_before_at"] == clock.now() + 5 * MINUTE
        (told,) = (event for event in events(work, item) if event["name"] == "job.released")
        assert '"max_runtime"' in told["detail"]


def test_what_was_given_back_is_found_by_a_later_run(work: Holdfast, clock: FakeClock) -> None:
    @work.job("slow.work", queue="q:exports")
    def slow(job: Context, payload: object) -> None:
        clock.advance(seconds=241)

    enqueue(work, 3, "slow.work")
    for _ in range(3):
        perform(work, inline=False, concurrency=1)
        clock.advance(minutes=10)

    assert states(work) == {"completed": 3}


def test_a_stopped_run_releases_its_jobs_and_reports_it(work: Holdfast) -> None:
    @work.job("long.work", queue="q:exports")
    def long(job: Context, payload: object) -> None:
        run.drain()

    enqueue(work, 6, "long.work")
    run = BoundedRun(work, "nightly", trigger=SCHEDULE, inline=False, concurrency=1)

    report = run.perform()

    assert (report.outcome, report.succeeded_count) == ("stopped", 1)
    assert states(work) == {"completed": 1, "queued": 5}


@pytest.mark.parametrize("inline", [True, False])
def test_a_run_on_a_machine_whose_clock_is_wrong_takes_nothing_and_says_so(
    work: Holdfast, inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(work, 2)
    run = BoundedRun(work, "nightly", trigger=SCHEDULE, inline=inline)
    monkeypatch.setattr(worker_of(run), "_clock_drifts", lambda: True)

    report = run.perform()

    assert (report.outcome, report.claimed_count) == ("stopped", 0)
    assert states(work) == {"queued": 2}


# -- the seven settings


@pytest.mark.req("B-10")
def test_the_oldest_job_goes_first_whatever_its_priority(work: Holdfast, clock: FakeClock) -> None:
    order: list[int] = []
    work.job("seen.work", queue="q:exports")(lambda job, payload: order.append(payload["n"]))
    for n, priority in enumerate((Priority.LOW, Priority.CRITICAL, Priority.NORMAL)):
        work.enqueue("seen.work", {"n": n}, org_id=ORG, priority=priority)
        clock.advance(seconds=1)
    declare(work, max_jobs_per_run=2)

    perform(work)

    assert order == [0, 1]


def test_a_run_may_take_its_jobs_in_the_order_of_a_worker(work: Holdfast) -> None:
    work.enqueue_many("plain.work", [{"n": n} for n in range(5)], org_id=ORG)
    other = work.enqueue("plain.work", {"n": 9}, org_id=OTHER_ORG)
    declare(work, max_jobs_per_run=2, order="fair")

    report = perform(work, inline=False, concurrency=1)

    assert (report.claimed_count, report.settings["order"]) == (2, "fair")
    assert work.get(other.id, org_id=OTHER_ORG).state is State.COMPLETED


def test_a_run_may_take_some_job_types_only(work: Holdfast) -> None:
    work.job("more.work", queue="q:exports")(lambda job, payload: payload)
    enqueue(work, 3)
    enqueue(work, 2, "more.work")
    declare(work, job_types=("more.work",))

    assert pending_of(work, "nightly") == 2
    report = perform(work)

    assert (report.claimed_count, states(work)) == (2, {"completed": 2, "queued": 3})
    assert perform(work).outcome == "skipped"


def test_a_run_with_an_unknown_queue_or_job_type_is_refused(work: Holdfast) -> None:
    declare(work, queues=("q:typo",))
    with pytest.raises(UnknownQueue, match="q:typo"):
        perform(work)

    declare(work, job_types=("plain.wrok",))
    with pytest.raises(UnknownKind, match=r"plain\.wrok"):
        perform(work)

    assert work.runs.list() == []


def test_a_name_of_a_job_type_is_taken_by_the_letter(work: Holdfast) -> None:
    """An underscore is a letter, not a placeholder for one."""
    work.job("more.work", queue="q:exports")(lambda job, payload: payload)
    work.job("more_work", queue="q:exports")(lambda job, payload: payload)
    enqueue(work, 2, "more.work")
    enqueue(work, 3, "more_work")
    declare(work, job_types=("more.work", "other.work"))

    assert pending_of(work, "nightly") == 2
    assert perform(work).claimed_count == 2


@pytest.mark.parametrize(("respect", "taken"), [(True, 1), (False, 2)])
def test_a_deferred_job_waits_unless_the_run_includes_it(
    work: Holdfast, clock: FakeClock, respect: bool, taken: int
) -> None:
    work.enqueue("plain.work", {}, org_id=ORG)
    failing = iter([RateLimited()])

    @work.job("later.work", queue="q:exports", retry=RetryPolicy(steps=(timedelta(hours=1),)))
    def later(job: Context, payload: object) -> None:
        for error in failing:
            raise error

    work.enqueue("later.work", {}, org_id=ORG)
    work.worker(queues=["q:exports"]).run_once(limit=2)
    work.enqueue("plain.work", {"n": 2}, org_id=ORG)
    declare(work, respect_not_before_at=respect)

    assert pending_of(work, "nightly") == taken
    assert perform(work).claimed_count == taken


@pytest.mark.req("T-01")
def test_a_run_delivers_the_notifications_whose_time_has_come(
    work: Holdfast, clock: FakeClock
) -> None:
    work.job("mail.remind", category="notification")(lambda job, payload: payload)
    declare(work, queues=("q:notifications",))
    due = work.enqueue(
        "mail.remind", {}, org_id=ORG, scheduled_for=clock.now() + timedelta(minutes=5)
    )
    early = perform_run(work, "nightly", trigger=SCHEDULE)
    clock.advance(hours=2)
    late = perform_run(work, "nightly", trigger=SCHEDULE)

    assert (early.outcome, late.outcome) == (RunOutcome.SKIPPED, RunOutcome.DONE)
    assert work.get(due.id, org_id=ORG).state is State.COMPLETED


def test_the_claim_timeout_is_the_lease_of_the_runs_claims(
    work: Holdfast, clock: FakeClock
) -> None:
    leases: list[datetime] = []

    @work.job("look.work", queue="q:exports")
    def peek(job: Context, payload: object) -> None:
        (row,) = look(work.store, "SELECT lease_expires_at FROM holdfast.job")
        leases.append(read_instant(row["lease_expires_at"]))

    enqueue(work, 1, "look.work")
    declare(work, claim_timeout_seconds=1234)

    perform(work)

    assert leases == [clock.now() + timedelta(seconds=1234)]


@pytest.mark.req("B-08")
def test_every_setting_of_a_run_is_in_its_row(work: Holdfast) -> None:
    enqueue(work, 1)
    declare(
        work,
        profile="stage",
        max_jobs_per_run=7,
        max_runtime_seconds=8,
        claim_timeout_seconds=9,
        order="created_at_asc",
        eligible_statuses=("queued",),
        respect_not_before_at=True,
        retry_backoff_seconds=(10, 11),
    )

    report = work.runs.get(perform(work).run_id)

    assert (report.name, report.profile, report.max_jobs_per_run) == ("nightly", "stage", 7)
    assert report.settings == {
        "queues": ["q:exports", "q:planning"],
        "job_types": [],
        "max_jobs_per_run": 7,
        "max_runtime_seconds": 8,
        "claim_timeout_seconds": 9,
        "order": "created_at_asc",
        "eligible_statuses": ["queued"],
        "respect_not_before_at": True,
        "retry_backoff_seconds": [10, 11],
    }


def test_a_run_of_submitted_jobs_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="batch_submitted is left to batch collectors"):
        RunProfile(eligible_statuses=("queued", "batch_submitted"))


# -- retries


@pytest.mark.req("R-17")
def test_a_job_that_is_retried_by_the_run_follows_its_list_without_jitter(
    work: Holdfast, clock: FakeClock
) -> None:
    @work.job("by.run", queue="q:exports", retry=RetryPolicy.by_run(), max_attempts=9)
    def fail(job: Context, payload: object) -> None:
        raise RateLimited

    job = work.enqueue("by.run", {}, org_id=ORG)
    declare(work, retry_backoff_seconds=(600, 4000))
    delays = []
    for _ in range(4):
        perform(work)
        due = work.get(job.id, org_id=ORG).record["not_before_at"]
        delays.append((due - clock.now()).total_seconds())
        clock.advance(due - clock.now())

    assert delays == [600, 4000, 4000, 4000]


def test_in_a_plain_worker_the_list_of_the_profile_applies(
    work: Holdfast, clock: FakeClock
) -> None:
    @work.job("by.run", queue="q:exports", retry=RetryPolicy.by_run())
    def fail(job: Context, payload: object) -> None:
        raise RateLimited

    job = work.enqueue("by.run", {}, org_id=ORG)
    work.settings = replace(work.settings, profile="dev")

    work.worker(queues=["q:exports"]).run_once()

    due = work.get(job.id, org_id=ORG).record["not_before_at"]
    assert due - clock.now() == timedelta(seconds=120)


def test_other_policies_do_not_look_at_the_run(work: Holdfast, clock: FakeClock) -> None:
    @work.job("own.way", queue="q:exports", retry=RetryPolicy(steps=(timedelta(seconds=7),)))
    def fail(job: Context, payload: object) -> None:
        raise RateLimited

    job = work.enqueue("own.way", {}, org_id=ORG)

    perform(work)

    due = work.get(job.id, org_id=ORG).record["not_before_at"]
    assert due - clock.now() == timedelta(seconds=7)


@pytest.mark.req("B-04")
def test_a_job_whose_retry_falls_due_during_the_run_waits_for_the_next(
    work: Holdfast, clock: FakeClock
) -> None:
    @work.job("again.work", queue="q:exports", retry=RetryPolicy(steps=(timedelta(seconds=1),)))
    def fail(job: Context, payload: object) -> None:
        clock.advance(seconds=5)
        run_maintenance(work.store, work.settings, work.events)
        raise RateLimited

    enqueue(work, 3, "again.work")

    report = perform(work)

    assert (report.claimed_count, report.requeued_count) == (3, 3)
    assert {row["attempt_count"] for row in look(work.store, "SELECT * FROM holdfast.job")} == {1}


@pytest.mark.req("B-05")
@pytest.mark.req("B-07")
@pytest.mark.req("K-05")
def test_a_failing_provider_is_called_a_bounded_number_of_times(
    work: Holdfast, clock: FakeClock
) -> None:
    """Production in small: hourly runs, and a first retry no sooner than the next run."""
    calls: Counter[str] = Counter()

    @work.job("call.provider", queue="q:exports", retry=RetryPolicy.by_run(), max_attempts=5)
    def call(job: Context, payload: object) -> None:
        calls[job.id] += 1
        raise RateLimited

    enqueue(work, 45, "call.provider")
    declare(work, profile="prod", max_jobs_per_run=20)
    per_run = []
    for hour in range(1, 4):
        before = calls.total()
        report = perform(work)
        per_run.append(calls.total() - before)
        assert report.rate_limit_errors == per_run[-1]
        assert max(calls.values()) <= hour
        clock.advance(hours=1)

    assert per_run == [20, 20, 20]


# -- the run log


@pytest.mark.req("A-06")
def test_the_ledger_says_what_the_audit_says(work: Holdfast, clock: FakeClock) -> None:
    """One job of every outcome; the counts of the run are the events of its id."""

    def fate(job: Context, payload: dict[str, Any]) -> None:
        match payload["fate"]:
            case "rate":
                raise RateLimited
            case "capacity":
                raise UpstreamDown
            case "snooze":
                raise Snooze(3600)
            case "bug":
                raise ValueError
        clock.advance(seconds=1)

    work.job("fate.work", queue="q:exports", retry=RetryPolicy.by_run())(fate)
    fates = ["good"] * 4 + ["rate", "rate", "capacity", "snooze", "bug", "bug", "bug"]
    for number, word in enumerate(fates):
        work.enqueue(
            "fate.work",
            {"fate": word},
            org_id=ORG if number % 2 else OTHER_ORG,
        )
    plant(
        work,
        "UPDATE holdfast.job_envelope SET routing_decision = :decision",
        decision='{"provider": "openai", "model": "small"}',
    )
    enqueue(work, 1)
    told: list[Event] = []
    work.events.subscribe(told.append)

    report = perform(work)

    audit = by_run(work, report)
    assert report.claimed_count == audit["job.started"] == 12
    assert report.succeeded_count == audit["job.succeeded"] == 5
    assert report.failed_count == audit["job.deadlettered"] == 3
    assert report.requeued_count == audit["job.retried"] + audit["job.snoozed"] == 4
    assert (report.released_count, report.canceled_count, report.left_count) == (0, 0, 0)
    assert report.error_counts == {"DEFECT": 3, "RATE_LIMITED": 2, "UPSTREAM_DOWN": 1}
    assert (report.rate_limit_errors, report.capacity_errors) == (2, 1)
    assert report.model_counts == {"openai/small": 11}
    assert report.finished_at == clock.now() == report.started_at + timedelta(seconds=4)
    assert report == work.runs.get(report.run_id)
    (event,) = (event for event in told if isinstance(event, WorkerRunFinished))
    assert event == report.event


@pytest.mark.req("A-06")
def test_the_counts_are_right_with_many_threads(work: Holdfast) -> None:
    def fate(job: Context, payload: dict[str, int]) -> None:
        if payload["n"] % 3 == 0:
            raise RateLimited
        if payload["n"] % 7 == 0:
            raise ValueError

    work.job("fate.work", queue="q:exports", retry=RetryPolicy.by_run())(fate)
    enqueue(work, 60, "fate.work")
    declare(work, max_jobs_per_run=50)

    report = perform(work, inline=False, concurrency=6)

    audit = by_run(work, report)
    assert report.claimed_count == audit["job.started"] == 50
    assert report.succeeded_count == audit["job.succeeded"]
    assert report.failed_count == audit["job.deadlettered"]
    assert report.requeued_count == audit["job.retried"] == report.error_counts["RATE_LIMITED"]
    assert report.left_count == 0


def test_a_job_that_is_canceled_in_a_run_is_counted_as_such(work: Holdfast) -> None:
    @work.job("stop.work", queue="q:exports")
    def stop(job: Context, payload: object) -> None:
        work.cancel(job.id, org_id=ORG, reason="test")
        job.checkpoint(1)

    enqueue(work, 1, "stop.work")

    report = perform(work)

    assert (report.claimed_count, report.canceled_count) == (1, 1)


def test_a_pipeline_is_one_claim_however_many_stages_it_has(work: Holdfast) -> None:
    pipeline = work.pipeline("two.steps", queue="q:exports")
    pipeline.stage("one")(lambda job, payload: 1)
    pipeline.stage("two")(lambda job, payload: 2)
    enqueue(work, 2, "two.steps")

    report = perform(work)

    assert (report.claimed_count, report.succeeded_count, report.requeued_count) == (2, 2, 0)


def test_a_run_that_breaks_is_written_down_as_failed(
    work: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(work, 1)
    run = BoundedRun(work, "nightly", trigger=SCHEDULE)
    monkeypatch.setattr(worker_of(run), "run_once", lambda limit: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        run.perform()

    (report,) = work.runs.list()
    assert (report.outcome, report.claimed_count) == ("failed", 0)


def test_the_ledger_is_read_newest_first_and_page_by_page(work: Holdfast, clock: FakeClock) -> None:
    made = []
    for _ in range(3):
        made.append(perform(work).run_id)
        clock.advance(minutes=1)

    assert [report.run_id for report in work.runs.list(limit=2)] == made[:0:-1]
    assert [report.run_id for report in work.runs.list(before=made[1])] == made[:1]
    assert work.runs.list(name="other") == []
    with pytest.raises(RunNotFound):
        work.runs.get(ORG)


def test_runs_leave_the_ledger_after_their_retention(work: Holdfast, clock: FakeClock) -> None:
    perform(work)
    clock.advance(days=89)
    perform(work)
    clock.advance(days=2)

    assert run_maintenance(work.store, work.settings, work.events).outcomes["runs_pruned"] == 1
    assert len(work.runs.list()) == 1
    assert clean_run_log(work.store, retention=timedelta(days=90))[1] == 0


# -- a run that is killed


def test_a_run_that_dies_is_shown_as_unfinished_and_closed_as_lost_when_its_time_is_over(
    work: Holdfast, clock: FakeClock
) -> None:
    @work.job("deadly.work", queue="q:exports")
    def die(job: Context, payload: object) -> None:
        raise KilledHere

    jobs = enqueue(work, 3, "deadly.work")
    run = BoundedRun(work, "nightly", trigger=SCHEDULE)
    run._close = lambda *_: None  # type: ignore[method-assign]
    run._report = lambda: None  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(KilledHere):
        run.perform()
    told: list[Event] = []
    work.events.subscribe(told.append)

    (open_row,) = work.runs.list()
    assert (open_row.outcome, open_row.finished_at, open_row.claimed_count) == (None, None, None)
    # 240 s of run time, a wait of 600 s for the last jobs, and a margin of one minute.
    clock.advance(seconds=900)
    run_maintenance(work.store, work.settings, work.events)
    (still_open,) = work.runs.list()
    clock.advance(seconds=1)
    run_maintenance(work.store, work.settings, work.events)
    (lost,) = work.runs.list()

    assert still_open.outcome is None
    assert (lost.outcome, lost.claimed_count) == (RunOutcome.LOST, None)
    assert [event.outcome for event in told if isinstance(event, WorkerRunFinished)] == ["lost"]
    first = work.get(jobs[0].id, org_id=ORG)
    assert (first.state, first.attempt_count) == (State.QUEUED, 1)
    assert first.last_error == "stale_claim_requeued"


class KilledHere(BaseException):
    """Simulates a process that ends between a claim and its outcome."""


def test_a_run_recorded_as_lost_stays_lost_when_it_resumes(
    work: Holdfast, clock: FakeClock
) -> None:
    @work.job("frozen.work", queue="q:exports")
    def freeze(job: Context, payload: object) -> None:
        clock.advance(hours=1)
        run_maintenance(work.store, work.settings, work.events)

    enqueue(work, 1, "frozen.work")

    assert perform(work).outcome == "lost"


# -- pending work


@pytest.mark.req("B-15")
@pytest.mark.req("B-16")
def test_a_run_with_nothing_pending_is_skipped_and_says_so(work: Holdfast) -> None:
    told: list[Event] = []
    work.events.subscribe(told.append)

    report = perform_run(work, "nightly", trigger=SCHEDULE)

    assert (report.outcome, report.reason) == ("skipped", "no pending items")
    assert (report.claimed_count, report.succeeded_count) == (0, 0)
    assert work.runs.list() == [report]
    assert told == [report.event]


def test_pending_work_is_counted_no_further_than_a_run_may_take(work: Holdfast) -> None:
    enqueue(work, 40)
    enqueue(work, 40, "other.work")
    declare(work, max_jobs_per_run=60)

    assert pending_of(work, "nightly") == 60


def test_jobs_of_a_paused_queue_are_not_pending(work: Holdfast) -> None:
    enqueue(work, 2)
    enqueue(work, 3, "other.work")
    work.queues.pause("q:exports", reason="test", actor=SYSTEM)

    assert pending_of(work, "nightly") == 3
    assert perform(work).claimed_count == 3


def test_what_another_worker_holds_is_not_pending(work: Holdfast) -> None:
    enqueue(work, 3)
    claim_jobs(work.store, queue="q:exports", worker_id="w1", limit=2, lease_ms=60_000)

    assert pending_of(work, "nightly") == 1


def test_a_stale_claim_is_rescued_by_the_run_itself(work: Holdfast, clock: FakeClock) -> None:
    """If only runs are scheduled, no worker would rescue it."""
    enqueue(work, 1)
    claim_jobs(work.store, queue="q:exports", worker_id="dead", limit=1, lease_ms=1_000)
    clock.advance(seconds=2)

    assert perform(work).succeeded_count == 1


def test_a_tick_is_performed_once_however_many_ask_for_it(work: Holdfast, clock: FakeClock) -> None:
    enqueue(work, 40)
    tick = Trigger(TriggerKind.SCHEDULE, tick=clock.now())

    first = perform_run(work, "nightly", trigger=tick)
    second = perform_run(work, "nightly", trigger=tick)

    assert first == second
    assert states(work)["completed"] == 25


# -- who may start one


@pytest.mark.req("B-13")
def test_an_administrator_may_start_a_run_and_the_audit_says_who_and_why(work: Holdfast) -> None:
    enqueue(work, 2)

    report = work.runs.trigger(
        "nightly", actor="user:ada", role=Role.ADMIN, reason="provider is back"
    )

    assert (report.succeeded_count, report.trigger_kind) == (2, TriggerKind.MANUAL)
    assert (report.actor, report.reason) == (Actor(ActorType.USER, "ada"), "provider is back")
    assert actions(work) == [("run.triggered", "user", "ada")]


@pytest.mark.req("B-14")
@pytest.mark.parametrize("role", [None, Role.MEMBER, "member", "root"])
@pytest.mark.parametrize("actor", ["user:eve", "api_key:k1", "system:page"])
def test_other_roles_cannot_trigger_a_run_and_the_attempt_is_audited(
    work: Holdfast, actor: str, role: Role | str | None
) -> None:
    enqueue(work, 2)

    with pytest.raises(Forbidden, match="only an administrator may start a run"):
        work.runs.trigger("nightly", actor=actor, role=role, reason="please")

    kind, _, who = actor.partition(":")
    assert actions(work) == [("run.refused", kind, who)]
    assert states(work) == {"queued": 2}
    assert work.runs.list() == []


@pytest.mark.req("B-14")
def test_a_caller_that_is_bound_to_a_tenant_may_not_whatever_role_it_claims(
    work: Holdfast,
) -> None:
    enqueue(work, 2)
    tenant = work.for_org(ORG)

    with pytest.raises(Forbidden, match="bound to a tenant"):
        tenant.runs.trigger("nightly", actor="user:eve", role=Role.ADMIN, reason="please")
    with pytest.raises(Forbidden):
        tenant.runs.list()
    with pytest.raises(Forbidden):
        tenant.runs.get(ORG)

    assert actions(work) == [("run.refused", "user", "eve")]
    assert states(work) == {"queued": 2}


@pytest.mark.req("B-14")
def test_code_inside_a_job_may_not(work: Holdfast) -> None:
    caught: list[Exception] = []

    @work.job("cheeky.work", queue="q:exports")
    def cheeky(job: Context, payload: object) -> None:
        try:
            work.runs.trigger("nightly", actor="user:eve", role=Role.ADMIN, reason="x")
        except Forbidden as exc:
            caught.append(exc)

    enqueue(work, 1, "cheeky.work")
    perform(work)

    assert [str(exc) for exc in caught] == [
        "Run 'nightly' was not started: code that runs inside a job may not start runs."
    ]
    assert actions(work) == [("run.refused", "user", "eve")]


def test_a_run_is_not_started_without_a_reason_or_a_name_that_is_known(work: Holdfast) -> None:
    with pytest.raises(ConfigError, match="a reason is required"):
        work.runs.trigger("nightly", actor="user:ada", role=Role.ADMIN, reason="  ")
    with pytest.raises(UnknownRun):
        work.runs.trigger("nigtly", actor="user:ada", role=Role.ADMIN, reason="x")
    with pytest.raises(UnknownRun):
        pending_of(work, "nigtly")
