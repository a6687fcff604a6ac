"""A replay is another job that begins at the failed stage; there is one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from holdfast import Context, FakeClock, Holdfast, NetworkTimeout, State, UpstreamDown
from holdfast.document import decode
from holdfast.engine.job import SYSTEM, Canceled, Completed, Dead, Fault, Outcome
from holdfast.engine.retention import prune_jobs
from holdfast.engine.settle import settle
from holdfast.errors import AuthDenied, Conflict, Gone, QueueFull, RuleBroken
from holdfast.event import DeadLetterEscalated, Event, JobEnqueued
from holdfast.operate import dead_letters
from holdfast.operate import replay as making
from holdfast.operate.dead_letter import DeadLetterState
from holdfast.operate.dead_letters import DeadLetters
from holdfast.operate.refusal import NeverReplayed, StaleVersion, StepRefused
from holdfast.store import Statement, Tx
from tests.engine.faulty import Died, FaultyStore, through
from tests.operate.letters import (
    STAGES,
    Review,
    die_at_once,
    operator,
    prepare,
    refusals,
    replay,
    work,
)
from tests.rows import copy_of_envelope
from tests.story import ORG, PROJECT, by_hand, claim, events, look, make_holdfast, timeline


@pytest.fixture
def review(hf: Holdfast) -> Review:
    return Review(hf)


def replays_of(hf: Holdfast, job_id: str) -> list[dict[str, Any]]:
    rows = look(
        hf.store, "SELECT id, stage FROM holdfast.job WHERE replay_of = :id ORDER BY id", id=job_id
    )
    return [dict(row) for row in rows]


# -- the job of a replay


@pytest.mark.req("D-16")
def test_a_replay_is_asked_for_with_all_that_the_original_was(
    hf: Holdfast, clock: FakeClock, review: Review
) -> None:
    job = review.die(
        clock,
        UpstreamDown(),
        project_id=PROJECT,
        actor="user:42",
        request_id="req-9",
        correlation_id="corr-9",
        priority="high",
        limit_key="provider:x",
        idempotency_key="order-7",
    )
    told: list[Event] = []
    hf.events.subscribe(told.append)

    again = hf.get(replay(operator(hf), job), org_id=ORG).record

    first = hf.get(job.id, org_id=ORG).record
    for name in (
        *("org_id", "project_id", "job_type", "category", "actor_type", "actor_id", "request_id"),
        *("correlation_id", "payload", "payload_hash", "priority", "limit_key", "origin_queue"),
        *("pipeline_version", "max_attempts", "routing_decision", "traceparent"),
    ):
        assert again[name] == first[name], name
    assert again["idempotency_key"] == first["idempotency_key"] + ":replay-1"
    assert (again["queue"], again["state"]) == ("q:default", State.QUEUED)
    assert (again["stage"], again["attempt_count"]) == ("tell", 0)
    assert [event.about.job_id for event in told if isinstance(event, JobEnqueued)] == [again["id"]]


@pytest.mark.req("D-17")
def test_a_replay_has_a_fresh_budget_for_the_stages_it_runs(
    hf: Holdfast, clock: FakeClock, review: Review
) -> None:
    job = review.die(clock, UpstreamDown())
    letters = operator(hf)
    replay(letters, job)
    review.ran.clear()

    work(hf, clock)

    assert review.ran == ["tell"] * 5
    letter = letters.show(job.id).letter
    assert (letter.state, letter.replay_count, letter.attempts) == (DeadLetterState.OPEN, 1, 5)


@pytest.mark.req("D-17")
def test_a_full_restart_begins_at_the_first_stage_and_takes_nothing_over(
    hf: Holdfast, clock: FakeClock, review: Review
) -> None:
    job = review.die(clock, UpstreamDown())
    letters = operator(hf)

    again = replay(letters, job, full_restart=True)

    review.ran.clear()
    review.seen.clear()
    review.faults.clear()
    work(hf, clock)
    assert review.ran == list(STAGES)
    assert review.seen[0] == {}
    assert hf.get(again, org_id=ORG).state is State.COMPLETED
    (listed,) = letters.show(job.id).replays
    assert (listed.full_restart, listed.failed_stage, listed.stage) == (True, "tell", "fetch")


@pytest.mark.req("D-17")
def test_a_replay_that_gets_further_is_repeated_from_where_it_failed(
    hf: Holdfast, clock: FakeClock, review: Review
) -> None:
    """The second replay reuses the stages of the first one, not only those of the original."""
    review.faults = {"think": Gone()}
    job = hf.enqueue("review.run", {"n": 1}, org_id=ORG)
    work(hf, clock)
    letters = operator(hf)
    review.faults = {"tell": UpstreamDown()}
    first = replay(letters, job)
    work(hf, clock)
    letter = letters.show(job.id).letter
    assert (letter.stage, letter.error_class, letter.state) == ("tell", "UPSTREAM_DOWN", "open")
    assert letter.failed_replay_id == first
    assert letter.first_failure_at < letter.last_failure_at

    review.faults.clear()
    review.ran.clear()
    second = replay(letters, job)
    work(hf, clock)

    assert review.ran == ["tell"]
    assert review.seen[-1].keys() == {"fetch", "think"}
    assert hf.get(second, org_id=ORG).record["idempotency_key"].endswith(":replay-2")
    assert [found.outcome for found in letters.show(job.id).replays] == ["failed", "completed"]
    rows = look(hf.store, "SELECT count(*) AS n FROM holdfast.dead_letter")
    assert rows == [{"n": 1}]


def test_a_replay_carries_the_unit_of_its_original_which_stays_the_one_job_of_it(
    hf: Holdfast, clock: FakeClock, review: Review
) -> None:
    job = review.die(clock, UpstreamDown(), unit_key="invoice-7")
    letters = operator(hf)
    first = replay(letters, job)
    hf.cancel(first, org_id=ORG)
    second = replay(letters, job)
    review.faults.clear()
    work(hf, clock)

    units = [hf.get(found, org_id=ORG).record["unit_key"] for found in (first, second)]
    assert units == ["invoice-7"] * 2
    assert hf.enqueue("review.run", {"n": 1}, org_id=ORG, unit_key="invoice-7").id == job.id
    assert hf.get(first, org_id=ORG).state is State.CANCELED
    with pytest.raises(RuleBroken, match=r"job_once_per_unit|unit_key"):
        by_hand(hf.store, copy_of_envelope(COPIED), id=job.id, copy_id=STRAY)


STRAY = "0198c0de-0000-7000-8000-0000000000cc"
COPIED = {
    "id": "CAST(:copy_id AS {uuid})",
    "turn": "NULL",
    "idempotency_key": "job_type || ':' || CAST(org_id AS text) || '::x'",
}


def test_a_replay_of_an_export_may_deliver_what_its_original_stored(
    hf: Holdfast, clock: FakeClock
) -> None:
    is_broken = [True]
    export = hf.pipeline("report.export", category="export")

    @export.stage("make", max_attempts=1)
    def make(job: Context, payload: Any) -> Any:
        return {"file": job.artifacts.put(b"a,b\n", name="out.csv").ref}

    @export.stage("deliver", max_attempts=1)
    def deliver(job: Context, payload: Any) -> Any:
        if is_broken.pop() if is_broken else False:
            raise Gone
        return job.outputs["make"]

    job = hf.enqueue("report.export", {}, org_id=ORG)
    hf.worker().run_once()
    letters = operator(hf)
    again = replay(letters, job)
    hf.worker().run_once()

    assert hf.get(again, org_id=ORG).state is State.COMPLETED
    assert letters.show(job.id).letter.state is DeadLetterState.REPLAYED


# -- the end of a replay


@pytest.mark.req("D-19")
def test_failing_the_same_way_for_good_puts_the_item_back_and_escalates_it(
    hf: Holdfast, clock: FakeClock
) -> None:
    (job,) = die_at_once(hf, AuthDenied(status=403))
    letters = operator(hf)
    told: list[Event] = []
    hf.events.subscribe(told.append)
    clock.advance(hours=1)

    again = replay(letters, job)
    hf.worker().run_once()

    letter = letters.show(job.id).letter
    assert (letter.state, letter.replay_count) == (DeadLetterState.OPEN, 1)
    assert letter.escalated_at == letter.last_failure_at == clock.now()
    assert (letter.kind, letter.checklist, letter.evidence_ref) == (None, None, None)
    assert timeline(hf, job)[-2:] == ["dead_letter.reopened", "dead_letter.escalated"]
    assert decode(events(hf, job)[-1]["detail"]) == {
        "replay": 1,
        "replay_job_id": again,
        "error_class": "AUTH_DENIED",
    }
    (event,) = [event for event in told if isinstance(event, DeadLetterEscalated)]
    assert (event.about.job_id, event.letter_id, event.replays) == (again, job.id, 1)
    assert (event.error_class, event.stage) == ("AUTH_DENIED", "run")
    says = {offer.action: offer.says for offer in letters.show(job.id).plan.offers}
    assert "fix the cause first" in says["replay"]
    with pytest.raises(StepRefused, match="validated"):
        letters.replay(job.id, reason="once more")


@pytest.mark.req("D-19")
@pytest.mark.parametrize(
    ("first", "second"),
    [(Gone(), AuthDenied()), (NetworkTimeout(), NetworkTimeout()), (UpstreamDown(), Gone())],
    ids=["another class", "a class that may be tried again", "another class that is final"],
)
def test_failing_another_way_or_for_a_while_puts_the_item_back_without_escalating(
    hf: Holdfast, clock: FakeClock, first: BaseException, second: BaseException
) -> None:
    faults = [first, second]

    @hf.job("mail.send", max_attempts=1)
    def send(job: Context, payload: Any) -> None:
        raise faults.pop(0)

    job = hf.enqueue("mail.send", {}, org_id=ORG)
    hf.worker().run_once()
    letters = operator(hf)
    clock.advance(hours=1)
    replay(letters, job)
    hf.worker().run_once()

    letter = letters.show(job.id).letter
    assert (letter.state, letter.escalated_at) == (DeadLetterState.OPEN, None)
    assert letter.error_class == type(second).error_class  # type: ignore[attr-defined]
    assert timeline(hf, job)[-1] == "dead_letter.reopened"


def test_a_failed_replay_has_no_dead_letter_of_its_own(
    hf: Holdfast, clock: FakeClock, review: Review
) -> None:
    job = review.die(clock, UpstreamDown())
    again = replay(operator(hf), job)
    work(hf, clock)

    assert hf.get(again, org_id=ORG).state is State.FAILED
    assert hf.get(again, org_id=ORG).queue == "q:deadletter"
    rows = look(hf.store, "SELECT job_id FROM holdfast.dead_letter")
    assert [row["job_id"] for row in rows] == [job.id]


def test_a_job_that_only_says_it_is_a_replay_has_a_dead_letter_of_its_own(hf: Holdfast) -> None:
    """A hand-made replay, for example: the failed stage must be found."""
    (job,) = die_at_once(hf, Gone())
    text = copy_of_envelope({**COPIED, "replay_of": "id"})
    by_hand(hf.store, text, id=job.id, copy_id=STRAY)
    hf.worker().run_once()

    found = {row["job_id"] for row in look(hf.store, "SELECT job_id FROM holdfast.dead_letter")}
    assert found == {job.id, STRAY}


@pytest.mark.parametrize("is_running", [False, True], ids=["waiting", "running"])
def test_a_canceled_replay_puts_the_item_back(
    hf: Holdfast, clock: FakeClock, review: Review, is_running: bool
) -> None:
    job = review.die(clock, UpstreamDown())
    letters = operator(hf)
    again = replay(letters, job)
    held = claim(hf) if is_running else []
    hf.cancel(again, org_id=ORG, actor="user:bob")
    settle(hf.store, [(job, Canceled()) for job in held], actor=SYSTEM)

    assert hf.get(again, org_id=ORG).state is State.CANCELED
    letter = letters.show(job.id).letter
    assert (letter.state, letter.kind, letter.escalated_at) == (DeadLetterState.OPEN, None, None)
    assert (letter.error_class, letter.stage) == ("UPSTREAM_DOWN", "tell")
    assert letters.show(job.id).replays[0].outcome == "canceled"
    assert timeline(hf, job)[-1] == "dead_letter.reopened"
    assert letters.triage(job.id, kind="transient").state is DeadLetterState.TRIAGED


# -- jobs that cannot be replayed


@pytest.mark.req("D-05")
def test_a_complaint_rewrite_is_never_replayed(hf: Holdfast) -> None:
    (job,) = die_at_once(hf, Gone(), job_type="complaint_rewrite")
    letters = operator(hf)
    offers = {offer.action: offer for offer in letters.show(job.id).plan.offers}
    assert [offers[name].is_offered for name in ("replay", "discard", "fix_forward")] == [
        False,
        True,
        True,
    ]
    assert "new rewrite_request_id" in offers["replay"].says
    prepare(letters, job)

    with pytest.raises(NeverReplayed, match="rewrite_request_id"):
        letters.replay(job.id, reason="please")
    with pytest.raises(NeverReplayed):
        letters.replay(job.id, reason="please", full_restart=True)
    with pytest.raises(RuleBroken, match="dead_letter_never_replayed"):
        by_hand(
            hf.store,
            "UPDATE holdfast.dead_letter SET state = 'replaying', version = version + 1,"
            " replay_count = 1",
        )

    assert replays_of(hf, job.id) == []
    assert decode(refusals(hf)[-1]["detail"])["why"] == "NeverReplayed"
    assert letters.fix_forward(job.id, reason="asked anew", reference="rr-8").fixed_by == "rr-8"


def test_a_category_may_refuse_replays_also_where_its_application_is_not_known(
    hf: Holdfast, url: str, clock: FakeClock
) -> None:
    hf.category("once", replay_refusal="a payment is made once; ask the bank")
    (job,) = die_at_once(hf, Gone(), job_type="bank.pay", category="once")
    with make_holdfast(url, clock) as elsewhere:
        letters = operator(elsewhere)
        prepare(letters, job)

        with pytest.raises(NeverReplayed, match="ask the bank"):
            letters.replay(job.id, reason="please")
        (offer, *_) = letters.show(job.id).plan.offers
        assert (offer.is_offered, offer.says) == (False, "a payment is made once; ask the bank")


def test_a_replay_that_would_die_at_once_because_the_pipeline_changed_is_refused(
    hf: Holdfast, url: str, clock: FakeClock, review: Review
) -> None:
    job = review.die(clock, UpstreamDown())
    prepare(operator(hf), job)
    with make_holdfast(url, clock) as later:
        Review(later, version="2")
        with pytest.raises(StepRefused, match="full restart"):
            operator(later).replay(job.id, reason="x")
    with make_holdfast(url, clock) as later:
        pipeline = later.pipeline("review.run", version="2", accepts=["1:0"])
        pipeline.stage("all")(lambda job, payload: None)
        with pytest.raises(StepRefused, match="no longer has the stage 'tell'"):
            operator(later).replay(job.id, reason="x")
        (offer, *_) = operator(later).show(job.id).plan.offers
        assert offer.is_offered
        assert "full restart" in offer.says
        again = operator(later).replay(job.id, reason="x", full_restart=True)
        later.worker().run_once()
        assert later.get(again.replay_job_id, org_id=ORG).state is State.COMPLETED


def test_a_full_restart_needs_the_application_that_knows_the_first_stage(
    hf: Holdfast, url: str, clock: FakeClock, review: Review
) -> None:
    job = review.die(clock, UpstreamDown())
    prepare(operator(hf), job)
    with make_holdfast(url, clock) as elsewhere:
        with pytest.raises(StepRefused, match="--app"):
            operator(elsewhere).replay(job.id, reason="x", full_restart=True)
        made = operator(elsewhere).replay(job.id, reason="x")

    review.faults.clear()
    work(hf, clock)
    assert hf.get(made.replay_job_id, org_id=ORG).state is State.COMPLETED


def test_a_full_queue_takes_no_replay_and_the_item_stays_as_it_is(hf: Holdfast) -> None:
    (job,) = die_at_once(hf, Gone())
    letters = operator(hf)
    prepare(letters, job)
    by_hand(hf.store, "UPDATE holdfast.queue SET max_depth = 1 WHERE name = 'q:default'")
    hf.enqueue("mail.send", {}, org_id=ORG)

    with pytest.raises(QueueFull):
        letters.replay(job.id, reason="x")

    assert letters.show(job.id).letter.state is DeadLetterState.VALIDATED
    assert letters.show(job.id).replays == ()


# -- concurrency and crashes


def test_two_operators_who_replay_at_once_make_one_replay(
    hf: Holdfast, url: str, clock: FakeClock, review: Review, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read the dead letter before either writes; SQLite has one writer at a time."""
    job = review.die(clock, UpstreamDown())
    prepare(operator(hf), job)
    both = [make_holdfast(url, clock) for _ in range(2)]
    both_read = threading.Barrier(2 if url.startswith("postgres") else 1)
    make = making.make_replays

    def make_together(tx: Tx, *given: Any, **options: Any) -> Any:
        both_read.wait(timeout=60)
        return make(tx, *given, **options)

    monkeypatch.setattr(dead_letters, "make_replays", make_together)
    answers: list[object] = []

    def ask(letters: DeadLetters) -> None:
        try:
            answers.append(letters.replay(job.id, reason="now").replay_job_id)
        except Conflict as exc:
            answers.append(type(exc))

    _at_once([partial(ask, operator(one)) for one in both])
    for one in both:
        one.close()

    (made,) = replays_of(hf, job.id)
    assert made["id"] in answers
    (refused,) = [answer for answer in answers if answer != made["id"]]
    assert refused is (StaleVersion if url.startswith("postgres") else StepRefused)
    view = operator(hf).show(job.id)
    assert (view.letter.state, view.letter.replay_count) == (DeadLetterState.REPLAYING, 1)
    assert len(view.replays) == 1


def _at_once(work: Sequence[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)


def test_a_replay_that_dies_before_its_commit_has_not_happened(
    hf: Holdfast, clock: FakeClock, review: Review
) -> None:
    job = review.die(clock, UpstreamDown())
    prepare(operator(hf), job)
    before = operator(hf).show(job.id)

    with through(hf, FaultyStore(hf.store).die_before_commit()), pytest.raises(Died):
        operator(hf).replay(job.id, reason="x")

    assert operator(hf).show(job.id) == before
    assert replays_of(hf, job.id) == []
    assert operator(hf).replay(job.id, reason="x").number == 1


def test_a_replay_whose_answer_was_lost_is_there_and_is_not_made_again(
    hf: Holdfast, clock: FakeClock, review: Review
) -> None:
    job = review.die(clock, UpstreamDown())
    prepare(operator(hf), job)

    with through(hf, FaultyStore(hf.store).die_after_commit()), pytest.raises(Died):
        operator(hf).replay(job.id, reason="x")
    with pytest.raises(StepRefused, match="wait for replay 1"):
        operator(hf).replay(job.id, reason="x")

    (made,) = replays_of(hf, job.id)
    review.faults.clear()
    work(hf, clock)
    assert hf.get(made["id"], org_id=ORG).state is State.COMPLETED
    assert operator(hf).show(job.id).letter.state is DeadLetterState.REPLAYED


@pytest.mark.parametrize("is_committed", [False, True], ids=["before", "after"])
def test_a_worker_that_dies_while_it_settles_a_replay_leaves_item_and_job_together(
    hf: Holdfast, clock: FakeClock, review: Review, is_committed: bool
) -> None:
    """The job, its dead letter and the list of replays change in one transaction or not at all."""
    job = review.die(clock, UpstreamDown())
    again = replay(operator(hf), job)
    review.faults.clear()
    worker = hf.worker()
    (held,) = worker._claim(1)
    (outcome,) = worker._run_inline([held])
    faulty = FaultyStore(hf.store)
    _ = faulty.die_after_commit() if is_committed else faulty.die_before_commit()
    with pytest.raises(Died):
        settle(faulty, [(held, outcome)], actor=SYSTEM)

    state = hf.get(again, org_id=ORG).state
    view = operator(hf).show(job.id)
    assert (state, view.letter.state, view.replays[0].outcome) == (
        (State.COMPLETED, DeadLetterState.REPLAYED, "completed")
        if is_committed
        else (State.PROCESSING, DeadLetterState.REPLAYING, None)
    )
    # A commit whose answer was lost is repeated, and changes nothing.
    (settled,) = settle(hf.store, [(held, outcome)], actor=SYSTEM)
    assert settled.lease_held
    after = operator(hf).show(job.id)
    assert (after.letter.state, after.letter.version) == (DeadLetterState.REPLAYED, 6)


# -- retention of dead letters


def test_a_dead_letter_is_kept_until_it_has_ended_and_then_as_long_as_other_jobs(
    hf: Holdfast, clock: FakeClock, review: Review
) -> None:
    job = review.die(clock, UpstreamDown())
    letters = operator(hf)
    again = replay(letters, job)
    work(hf, clock)
    rules = hf.settings.retention
    clock.advance(days=4000)
    assert prune_jobs(hf.store, rules, limit=100) == 0
    letters.add_note(job.id, "Found after years.")
    letters.discard(job.id, reason="too old")

    clock.advance(days=rules.keep_days)
    assert prune_jobs(hf.store, rules, limit=100) == 1, "the failed replay is past its time"
    clock.advance(seconds=1)
    assert prune_jobs(hf.store, rules, limit=100) == 1

    for table in ("job", "dead_letter", "dead_letter_replay", "dead_letter_note", "job_stage"):
        assert look(hf.store, f"SELECT count(*) AS n FROM holdfast.{table}") == [{"n": 0}], table
    assert timeline(hf, job)[-2:] == ["dead_letter.discarded", "job.pruned"]
    assert again


def test_settling_many_replays_takes_a_fixed_number_of_statements(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = die_at_once(hf, Gone(), count=20)
    letters = operator(hf)
    for job in jobs:
        replay(letters, job)
    held = claim(hf, limit=20)
    fault = Fault("GONE", "GONE stage=run attempt=1", False)
    ends: list[Outcome] = [Completed("1"), Dead(fault)]
    group = [(job, ends[at % 2]) for at, job in enumerate(held)]
    ran: list[str] = []
    run = Tx._ready

    def counted(tx: Tx, statement: Statement, params: dict[str, Any]) -> Any:
        ran.append(statement.name)
        return run(tx, statement, params)

    monkeypatch.setattr(Tx, "_ready", counted)
    settled = settle(hf.store, group, actor=SYSTEM)
    monkeypatch.undo()

    assert ran == [
        "insert_outcomes",
        "end_replays",
        "end_replaying",
        "insert_events",
        "insert_dead_letter_events",
    ]
    states = look(
        hf.store, "SELECT state, count(*) AS n FROM holdfast.dead_letter GROUP BY state ORDER BY 1"
    )
    assert [(row["state"], row["n"]) for row in states] == [("open", 10), ("replayed", 10)]
    assert sum(item.escalated is not None for item in settled) == 10
