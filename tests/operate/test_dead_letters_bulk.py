"""Bulk actions on dead letters: a dry run first, a required reason, and own tenants only."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Enqueued, FakeClock, Holdfast, State, UpstreamDown
from holdfast.document import decode
from holdfast.engine.job import SYSTEM, Completed
from holdfast.engine.settle import settle
from holdfast.errors import Forbidden, Gone
from holdfast.operate import bulk
from holdfast.operate.dead_letter import DeadLetterState
from holdfast.operate.dead_letter_input import DeadLetterFilter
from holdfast.operate.dead_letters import DeadLetters
from holdfast.operate.refusal import InvalidAction, NothingMatches
from holdfast.store import Statement, Tx
from tests.operate.letters import Review, die_at_once, operator, prepare, refusals, replay
from tests.outbox.planted import plant_delivery
from tests.story import ORG, OTHER_ORG, by_hand, claim, events, look

MAIL = DeadLetterFilter(job_type="mail.send")


def states(hf: Holdfast) -> dict[str, int]:
    rows = look(hf.store, "SELECT state, count(*) AS n FROM holdfast.dead_letter GROUP BY state")
    return {row["state"]: row["n"] for row in rows}


def validate_all(letters: DeadLetters, jobs: list[Enqueued]) -> None:
    for job in jobs:
        prepare(letters, job)


@pytest.fixture
def admin(hf: Holdfast) -> DeadLetters:
    return operator(hf, role="admin")


def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    hf: Holdfast, admin: DeadLetters
) -> None:
    ready, open_ones = die_at_once(hf, Gone(), count=3), die_at_once(hf, Gone(), count=2)
    validate_all(admin, ready)
    before = (states(hf), look(hf.store, "SELECT count(*) AS n FROM holdfast.job_event"))

    answer = admin.replay_all(MAIL, reason="mended", is_dry_run=True)

    assert (answer.matched, answer.ready, answer.done) == (5, 3, 0)
    assert [(out.why, out.letters) for out in answer.left_out] == [("open, not validated", 2)]
    named = {item["job_id"]: item["why"] for item in answer.named}
    assert named == {
        **{job.id: None for job in ready},
        **{job.id: "open, not validated" for job in open_ones},
    }
    assert (states(hf), look(hf.store, "SELECT count(*) AS n FROM holdfast.job_event")) == before


@pytest.mark.req("D-12")
def test_a_bulk_replays_what_was_validated_and_names_what_was_not(
    hf: Holdfast, admin: DeadLetters
) -> None:
    ready, left = die_at_once(hf, Gone(), count=3), die_at_once(hf, Gone(), count=2)
    others = die_at_once(hf, Gone(), job_type="order.pay")
    validate_all(admin, [*ready, *others])

    answer = admin.replay_all(MAIL, reason="mended")

    assert (answer.matched, answer.ready, answer.done, answer.stopped) == (5, 3, 3, None)
    assert {item["job_id"] for item in answer.named if item["why"]} == {job.id for job in left}
    made = {item["job_id"]: item["replay_job_id"] for item in answer.named if not item["why"]}
    assert made.keys() == {job.id for job in ready}
    for job_id, replay_id in made.items():
        found = hf.get(replay_id, org_id=ORG)
        assert (found.state, found.record["replay_of"]) == (State.QUEUED, job_id)
    assert states(hf) == {"replaying": 3, "open": 2, "validated": 1}
    detail = decode(events(hf, ready[0])[-1]["detail"])
    assert (detail["reason"], detail["filter"]) == ("mended", "job_type='mail.send'")
    settle(hf.store, [(job, Completed("1")) for job in claim(hf, limit=9)], actor=SYSTEM)
    assert states(hf) == {"replayed": 3, "open": 2, "validated": 1}


def test_a_bulk_leaves_out_what_is_never_replayed(hf: Holdfast, admin: DeadLetters) -> None:
    jobs = die_at_once(hf, Gone(), job_type="complaint_rewrite", count=2)
    validate_all(admin, jobs)

    answer = admin.replay_all(DeadLetterFilter(error_class="GONE"), reason="mended")

    assert (answer.matched, answer.ready, answer.done) == (2, 0, 0)
    assert "rewrite_request_id" in answer.left_out[0].why
    assert states(hf) == {"validated": 2}


def test_a_bulk_discards_all_but_what_is_being_replayed(hf: Holdfast, admin: DeadLetters) -> None:
    jobs = die_at_once(hf, Gone(), count=4)
    admin.triage(jobs[0].id, kind="data")
    replay(admin, jobs[1])

    answer = admin.discard_all(MAIL, reason="the customer left")

    assert (answer.matched, answer.ready, answer.done) == (4, 3, 3)
    assert [(out.why, out.letters) for out in answer.left_out] == [("a replay is running", 1)]
    assert states(hf) == {"discarded": 3, "replaying": 1}
    assert admin.show(jobs[0].id).letter.ending == "the customer left"
    assert [event["name"] for event in events(hf, jobs[0])][-1] == "dead_letter.discarded"


def test_a_bulk_is_narrowed_by_the_same_conditions_as_a_list(
    hf: Holdfast, clock: FakeClock, admin: DeadLetters
) -> None:
    (old,) = die_at_once(hf, Gone())
    clock.advance(hours=3)
    die_at_once(hf, UpstreamDown(), job_type="order.pay", org_id=OTHER_ORG)

    def matched(**wanted: Any) -> int:
        asked = DeadLetterFilter(**wanted)
        return admin.discard_all(asked, reason="x", is_dry_run=True).matched

    assert matched(queue="q:default") == matched(stage="run") == matched(state="open") == 2
    assert matched(error_class="GONE") == matched(older_than=timedelta(hours=2)) == 1
    assert matched(org_id=OTHER_ORG) == matched(job_type="order.pay") == 1
    assert admin.discard_all(DeadLetterFilter(older_than=timedelta(hours=2)), reason="x").done == 1
    assert admin.show(old.id).letter.state is DeadLetterState.DISCARDED
    assert states(hf) == {"discarded": 1, "open": 1}


# -- refusals


@pytest.mark.parametrize("name", ["replay_all", "discard_all"])
def test_a_filter_that_matches_nothing_says_so(hf: Holdfast, admin: DeadLetters, name: str) -> None:
    (job,) = die_at_once(hf, Gone())
    admin.discard(job.id, reason="x")

    for wanted in (MAIL, DeadLetterFilter(queue="q:nowhere"), DeadLetterFilter(stage="'; --")):
        with pytest.raises(NothingMatches, match="No dead letter fits"):
            getattr(admin, name)(wanted, reason="x")

    assert [decode(row["detail"])["why"] for row in refusals(hf)] == ["NothingMatches"] * 3


@pytest.mark.parametrize("name", ["replay_all", "discard_all"])
def test_everything_is_meant_only_with_the_right_number(
    hf: Holdfast, admin: DeadLetters, name: str
) -> None:
    validate_all(admin, die_at_once(hf, Gone(), count=3))
    act = getattr(admin, name)

    with pytest.raises(InvalidAction, match="would match everything"):
        act(DeadLetterFilter(), reason="x")
    with pytest.raises(InvalidAction, match="matches 3 dead letters"):
        act(DeadLetterFilter(), reason="x", everything=True)
    with pytest.raises(InvalidAction, match="matches 3 dead letters"):
        act(DeadLetterFilter(), reason="x", everything=True, confirm=2)
    assert states(hf) == {"validated": 3}

    assert act(DeadLetterFilter(), reason="x", everything=True, is_dry_run=True).ready == 3
    assert act(DeadLetterFilter(), reason="x", everything=True, confirm=3).done == 3


@pytest.mark.parametrize(
    ("wanted", "options"),
    [
        (MAIL, {"reason": ""}),
        (MAIL, {"reason": "\x1b[2J"}),
        (MAIL, {"reason": "x", "limit": 0}),
        (MAIL, {"reason": "x", "limit": 10_001}),
        (DeadLetterFilter(state="resolved"), {"reason": "x"}),
        (DeadLetterFilter(kind="odd"), {"reason": "x"}),
        (DeadLetterFilter(older_than=timedelta(0)), {"reason": "x"}),
        (DeadLetterFilter(org_id="ours"), {"reason": "x"}),
    ],
)
def test_a_bulk_that_is_asked_for_wrongly_does_nothing(
    hf: Holdfast, admin: DeadLetters, wanted: DeadLetterFilter, options: dict[str, Any]
) -> None:
    die_at_once(hf, Gone())

    with pytest.raises(InvalidAction):
        admin.discard_all(wanted, **options)

    assert states(hf) == {"open": 1}
    assert len(refusals(hf)) == 1


@pytest.mark.req("T-04")
def test_only_an_admin_acts_on_several_tenants_and_no_role_on_a_foreign_one(hf: Holdfast) -> None:
    die_at_once(hf, Gone(), count=2)
    die_at_once(hf, Gone(), count=3, org_id=OTHER_ORG)

    with pytest.raises(Forbidden, match="admin"):
        operator(hf).discard_all(MAIL, reason="x")
    with pytest.raises(Forbidden):
        operator(hf, role="member", org_id=ORG).discard_all(MAIL, reason="x")
    ours = operator(hf, org_id=ORG)
    with pytest.raises(NothingMatches):
        ours.discard_all(DeadLetterFilter(org_id=OTHER_ORG), reason="x")
    assert states(hf) == {"open": 5}
    assert ours.discard_all(MAIL, reason="x").done == 2
    assert operator(hf).discard_all(DeadLetterFilter(org_id=OTHER_ORG), reason="x").done == 3


# -- limits


@pytest.mark.parametrize("name", ["replay_all", "discard_all"])
def test_a_bulk_action_is_bounded_and_continues_where_it_stopped(
    hf: Holdfast, admin: DeadLetters, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PAGE", 2)
    validate_all(admin, die_at_once(hf, Gone(), count=7))
    act = getattr(admin, name)

    done = [act(MAIL, reason="x", limit=5).done for _ in range(2)]

    assert done == [5, 2]
    assert sum(states(hf).values()) == 7
    assert "validated" not in states(hf)


def test_items_that_are_not_eligible_do_not_block_others(
    hf: Holdfast, admin: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest ones fill the first pages and are excluded."""
    monkeypatch.setattr(bulk, "PAGE", 2)
    ready = die_at_once(hf, Gone(), count=3)
    validate_all(admin, ready)
    validate_all(admin, die_at_once(hf, Gone(), job_type="complaint_rewrite", count=5))

    answer = admin.replay_all(DeadLetterFilter(error_class="GONE"), reason="x")

    assert (answer.matched, answer.ready, answer.done) == (8, 3, 3)


def test_a_queue_that_fills_up_stops_a_bulk_between_two_pages(
    hf: Holdfast, admin: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PAGE", 2)
    validate_all(admin, die_at_once(hf, Gone(), count=6))
    by_hand(hf.store, "UPDATE holdfast.queue SET max_depth = 4 WHERE name = 'q:default'")

    answer = admin.replay_all(MAIL, reason="x")

    assert (answer.ready, answer.done) == (6, 4)
    assert answer.stopped is not None
    assert "full" in answer.stopped
    assert states(hf) == {"replaying": 4, "validated": 2}


@pytest.mark.parametrize("name", ["replay_all", "discard_all"])
def test_a_page_takes_as_many_statements_for_many_items_as_for_two(
    hf: Holdfast, admin: DeadLetters, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    review = Review(hf, attempts=1)
    review.faults = {"tell": Gone()}
    few = hf.enqueue_many("review.run", [{} for _ in range(2)], org_id=ORG)
    hf.worker().run_once()
    ran: list[str] = []
    run = Tx._execute

    def counted(tx: Tx, statement: Statement, params: dict[str, Any]) -> Any:
        ran.append(statement.name)
        return run(tx, statement, params)

    def statements() -> list[str]:
        monkeypatch.setattr(Tx, "_execute", counted)
        ran.clear()
        getattr(admin, name)(DeadLetterFilter(job_type="review.run", state="validated"), reason="x")
        monkeypatch.undo()
        return list(ran)

    validate_all(admin, few)
    of_few = statements()
    many = hf.enqueue_many("review.run", [{} for _ in range(10)], org_id=ORG)
    hf.worker().run_once()
    validate_all(admin, [job for job in many if hf.get(job.id, org_id=ORG).state is State.FAILED])

    assert statements() == of_few
    assert len(of_few) < 12


# -- recovery


def test_one_recovery_takes_an_outage_through_the_whole_workflow(
    hf: Holdfast, admin: DeadLetters, clock: FakeClock
) -> None:
    jobs = die_at_once(hf, UpstreamDown(status=503), count=120)
    seen: list[tuple[int, int]] = []

    def note(done: int, ready: int) -> None:
        seen.append((done, ready))

    first = admin.recover(MAIL, reason="the provider is back", on_progress=note)
    assert (first.matched, first.ready, first.done, first.replayed) == (120, 120, 120, 120)
    assert seen == [(50, 120), (100, 120), (120, 120)]
    assert states(hf) == {"replaying": 120}
    plain_handler_works(hf)
    hf.worker().run_once(limit=120)
    second = admin.recover(MAIL, reason="the provider is back")

    assert (second.done, second.replayed) == (120, 0)
    assert states(hf) == {"resolved": 120}
    told = [(event["name"], decode(event["detail"] or "{}")) for event in events(hf, jobs[0])]
    steps = [
        (name, detail["reason"], detail["filter"]) for name, detail in told if "filter" in detail
    ]
    assert [name.partition(".")[2] for name, _, _ in steps] == [
        "triaged", "remediated", "validated", "replay_requested", "verified", "resolved",
    ]  # fmt: skip
    assert {(reason, condition) for _, reason, condition in steps} == {
        ("the provider is back", "job_type='mail.send'")
    }


def plain_handler_works(hf: Holdfast) -> None:
    """From now on the jobs of these tests complete."""
    handlers = hf.registry.handlers
    repaired = Holdfast("sqlite:")
    repaired.job("mail.send")(lambda job, payload: None)
    handlers["mail.send"] = repaired.registry.handlers["mail.send"]
    repaired.close()


def test_a_recovery_leaves_out_what_needs_a_decision(hf: Holdfast, admin: DeadLetters) -> None:
    die_at_once(hf, Gone(), count=2)
    die_at_once(hf, UpstreamDown(), job_type="order.pay")

    refused = admin.recover(MAIL, reason="mended")
    assert (refused.ready, refused.done) == (0, 0)
    (left,) = refused.left_out
    assert left.letters == 2
    assert "GONE is not a transient failure" in left.why
    decided = admin.recover(MAIL, reason="mended", kind="data", evidence_ref="INC-9")

    assert decided.done == 2
    assert states(hf) == {"replaying": 2, "open": 1}
    (letter, *_) = admin.list(MAIL)
    assert (letter.kind, letter.evidence_ref) == ("data", "INC-9")
    assert letter.checklist == {"source_corrected": True}


def test_a_recovery_never_replays_a_job_type_that_refuses_it(
    hf: Holdfast, admin: DeadLetters
) -> None:
    die_at_once(hf, UpstreamDown(), job_type="complaint_rewrite")

    answer = admin.recover(DeadLetterFilter(error_class="UPSTREAM_DOWN"), reason="mended")

    assert (answer.ready, answer.done, len(answer.left_out)) == (0, 0, 1)
    assert states(hf) == {"open": 1}


def test_some_steps_are_taken_for_many(hf: Holdfast, admin: DeadLetters) -> None:
    die_at_once(hf, UpstreamDown(), count=3)

    triaged = admin.recover(MAIL, reason="seen", steps=["triage"], kind="transient")
    assert (triaged.action, triaged.done) == ("triage", 3)
    half = admin.recover(MAIL, reason="seen", steps=["remediate"], done=["upstream_recovered"])
    assert [out.why for out in half.left_out] == [
        "of kind transient; not confirmed: capacity_verified"
    ]
    early = admin.recover(MAIL, reason="seen", steps=["validate"])
    assert [out.why for out in early.left_out] == ["triaged, not remediated"]
    assert admin.recover(MAIL, reason="seen", steps=["remediate"]).done == 3
    assert admin.recover(MAIL, reason="seen", steps=["validate"], evidence_ref="INC-1").done == 3
    assert states(hf) == {"validated": 3}
    with pytest.raises(InvalidAction, match="steps"):
        admin.recover(MAIL, reason="seen", steps=["bury"])


def test_a_filter_takes_what_failed_since(
    hf: Holdfast, admin: DeadLetters, clock: FakeClock
) -> None:
    die_at_once(hf, UpstreamDown(), count=2)
    clock.advance(hours=3)
    die_at_once(hf, UpstreamDown())

    recent = DeadLetterFilter(since=clock.now() - timedelta(hours=1))

    assert len(admin.list(recent)) == 1
    assert admin.recover(recent, reason="back").done == 1
    with pytest.raises(InvalidAction, match="since"):
        admin.list(DeadLetterFilter(since=clock.now().replace(tzinfo=None)))


def test_a_replay_with_unsent_deliveries_is_not_resolved(hf: Holdfast, admin: DeadLetters) -> None:
    (job,) = die_at_once(hf, UpstreamDown())
    admin.recover(MAIL, reason="back")
    plain_handler_works(hf)
    hf.worker().run_once()
    plant_delivery(hf, "held", job_id=job.id)

    answer = admin.recover(MAIL, reason="back")

    assert [out.why for out in answer.left_out] == [
        "its replay completed, but deliveries are not sent"
    ]
    assert states(hf) == {"replayed": 1}


def test_a_bulk_stops_at_its_limit_and_says_so(hf: Holdfast, admin: DeadLetters) -> None:
    die_at_once(hf, UpstreamDown(), count=3)

    answer = admin.recover(MAIL, reason="back", limit=2)

    assert (answer.ready, answer.done) == (3, 2)
    assert answer.stopped == "The limit of 2 was reached. Repeat it for the rest."
