"""A dead letter has all facts; its recovery steps are required in their order."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast, State, UpstreamDown
from holdfast.document import decode
from holdfast.errors import Conflict, Gone, JobNotFound, NotFound, RuleBroken
from holdfast.event import Event, JobSettled
from holdfast.operate.dead_letter import CHECKLISTS, DeadLetter, DeadLetterKind, DeadLetterState
from holdfast.operate.dead_letter_input import DeadLetterFilter
from holdfast.operate.dead_letters import DeadLetters
from holdfast.operate.refusal import (
    InvalidAction,
    LetterEnded,
    LetterNotFound,
    StaleVersion,
    StepRefused,
)
from tests.operate.letters import Review, die_at_once, operator, prepare, refusals, replay, work
from tests.story import ORG, OTHER_ORG, PROJECT, by_hand, claim, events, look, timeline

NOBODY = "0198c0de-0000-7000-8000-0000000000ff"


@pytest.fixture
def review(hf: Holdfast) -> Review:
    return Review(hf)


# -- the dead letter


@pytest.mark.req("D-01", "D-02", "D-03", "D-06", "D-07", "D-08", "D-09")
def test_a_stage_that_fails_five_times_leaves_a_complete_dead_letter(
    hf: Holdfast, clock: FakeClock, review: Review
) -> None:
    began = clock.now()
    job = review.die(
        clock,
        UpstreamDown(status=503),
        project_id=PROJECT,
        request_id="req-9",
        correlation_id="corr-9",
    )

    assert review.ran == ["fetch", "think", *["tell"] * 5]
    assert hf.get(job.id, org_id=ORG).queue == "q:deadletter"
    letter = operator(hf).show(job.id).letter
    assert (letter.state, letter.version) == (DeadLetterState.OPEN, 1)
    assert (letter.error_class, letter.stage, letter.attempts) == ("UPSTREAM_DOWN", "tell", 5)
    assert letter.queue == "q:default"
    assert letter.first_failure_at == began
    assert began < letter.last_failure_at <= letter.created_at == letter.updated_at
    assert "UpstreamDown" in letter.last_stack
    assert "tests.operate.letters" in letter.last_stack
    facts = dict(letter.sanitized_context)
    assert len(facts.pop("payload_hash")) == 12
    assert facts.pop("worker_id")
    assert facts.pop("job_version").startswith("1:")
    assert facts == {
        "request_id": "req-9",
        "correlation_id": "corr-9",
        "stage": "tell",
        "attempts": 5,
        "max_attempts": 5,
        "status": 503,
        "upstream_code": 503,
    }


def test_what_a_handler_says_of_its_failure_never_hides_what_we_know(hf: Holdfast) -> None:
    (job,) = die_at_once(hf, Gone(stage="elsewhere", request_id="forged", attempts=99))

    facts = operator(hf).show(job.id).letter.sanitized_context
    assert (facts["stage"], facts["attempts"], facts["request_id"]) == ("run", 1, job.id)


@pytest.mark.req("D-10")
def test_ids_that_callers_chose_are_kept_only_if_they_look_like_ids(hf: Holdfast) -> None:
    (job,) = die_at_once(
        hf, Gone(), request_id="ann.example@mail.example", correlation_id="call Ann, 30 555 123 45"
    )

    facts = operator(hf).show(job.id).letter.sanitized_context
    assert "ann" not in str(facts).lower()
    assert "555" not in str(facts)


@pytest.mark.req("D-01", "D-04")
def test_a_permanent_failure_is_dead_lettered_at_once_and_reaches_subscribers(hf: Holdfast) -> None:
    told: list[Event] = []
    hf.events.subscribe(told.append)

    (job,) = die_at_once(hf, Gone())

    (settled,) = [event for event in told if isinstance(event, JobSettled)]
    assert (settled.about.job_id, settled.outcome, settled.error_class) == (job.id, "dead", "GONE")
    assert operator(hf).show(job.id).letter.attempts == 1


# -- the recovery steps


@pytest.mark.req("D-12", "D-13", "D-14", "D-15", "D-16", "D-17", "D-18")
def test_the_whole_way_leads_from_a_dead_letter_to_its_resolution(
    hf: Holdfast, clock: FakeClock, review: Review
) -> None:
    job = review.die(clock, UpstreamDown())
    letters = operator(hf)

    letters.triage(job.id, kind="transient")
    letters.remediate(job.id, done=["upstream_recovered", "capacity_verified"])
    letters.validate(job.id, evidence_ref="INC-7", is_safe_to_repeat=True)
    made = letters.replay(job.id, reason="the provider is back")
    review.ran.clear()
    review.faults.clear()
    work(hf, clock)
    letters.verify_replay(job.id)
    ended = letters.resolve(job.id, notes="An outage of two hours.")

    assert review.ran == ["tell"]
    again = hf.get(made.replay_job_id, org_id=ORG)
    assert (again.state, again.record["replay_of"], again.stage) == (
        State.COMPLETED,
        job.id,
        "tell",
    )
    assert again.payload == hf.get(job.id, org_id=ORG).payload
    assert again.record["idempotency_key"].endswith(":replay-1")
    assert review.seen[-1] == {
        "fetch": {"by": "fetch", "of": 1},
        "think": {"by": "think", "of": 1},
    }
    assert (ended.state, ended.version, ended.ending) == (
        DeadLetterState.RESOLVED,
        8,
        "An outage of two hours.",
    )
    (listed,) = letters.show(job.id).replays
    assert (listed.number, listed.replay_job_id, listed.outcome) == (1, again.id, "completed")
    assert (listed.failed_stage, listed.stage, listed.actor_id) == ("tell", "tell", "ann")
    assert timeline(hf, job)[-7:] == [
        "dead_letter.triaged",
        "dead_letter.remediated",
        "dead_letter.validated",
        "dead_letter.replay_requested",
        "dead_letter.replayed",
        "dead_letter.verified",
        "dead_letter.resolved",
    ]
    assert hf.get(job.id, org_id=ORG).state is State.FAILED
    assert letters.list().letters == ()
    assert [found.job_id for found in letters.list(with_ended=True).letters] == [job.id]


@pytest.mark.req("D-13")
def test_a_triage_puts_on_record_what_it_confirmed(
    hf: Holdfast, clock: FakeClock, review: Review
) -> None:
    job = review.die(clock, UpstreamDown())

    operator(hf).triage(job.id, kind="data")

    triaged = events(hf, job)[-1]
    assert (triaged["actor_type"], triaged["actor_id"]) == ("user", "ann")
    assert decode(triaged["detail"]) == {
        "kind": "data",
        "error_class": "UPSTREAM_DOWN",
        "stage": "tell",
        "attempts": 5,
        "max_attempts": 5,
        "role": "operator",
    }


def test_a_second_triage_starts_over(hf: Holdfast) -> None:
    (job,) = die_at_once(hf, Gone())
    letters = operator(hf)
    prepare(letters, job)

    letter = letters.triage(job.id, kind="defect")

    assert (letter.state, letter.kind) == (DeadLetterState.TRIAGED, DeadLetterKind.DEFECT)
    assert (letter.checklist, letter.evidence_ref, letter.is_safe_to_repeat) == (None, None, None)
    with pytest.raises(StepRefused, match="validated"):
        letters.replay(job.id, reason="as before")


@pytest.mark.req("D-14")
@pytest.mark.parametrize("kind", list(DeadLetterKind))
def test_each_kind_has_a_checklist_and_every_point_of_it_is_asked_for(
    hf: Holdfast, kind: DeadLetterKind
) -> None:
    (job,) = die_at_once(hf, Gone())
    letters = operator(hf)
    letters.triage(job.id, kind=kind)
    points = list(CHECKLISTS[kind])

    for missing in points:
        with pytest.raises(InvalidAction, match=missing):
            letters.remediate(job.id, done=[point for point in points if point != missing])
    with pytest.raises(InvalidAction, match="has only these checks"):
        letters.remediate(job.id, done=[*points, "prayed"])

    assert letters.remediate(job.id, done=points).checklist == dict.fromkeys(points, True)


STEPS: dict[str, Callable[[DeadLetters, str], Any]] = {
    "triage": lambda letters, job_id: letters.triage(job_id, kind="transient"),
    "remediate": lambda letters, job_id: letters.remediate(
        job_id, done=list(CHECKLISTS[DeadLetterKind.TRANSIENT])
    ),
    "validate": lambda letters, job_id: letters.validate(
        job_id, evidence_ref="INC-7", is_safe_to_repeat=True
    ),
    "replay": lambda letters, job_id: letters.replay(job_id, reason="mended"),
    "verify_replay": lambda letters, job_id: letters.verify_replay(job_id),
    "resolve": lambda letters, job_id: letters.resolve(job_id, notes="done"),
    "discard": lambda letters, job_id: letters.discard(job_id, reason="not worth it"),
    "fix_forward": lambda letters, job_id: letters.fix_forward(
        job_id, reason="done anew", reference="job 7"
    ),
}
WAY = ("triage", "remediate", "validate", "replay", "verify_replay", "resolve")


@pytest.mark.req("D-12", "D-15", "D-18")
def test_no_step_can_be_taken_before_the_one_it_needs(
    hf: Holdfast, clock: FakeClock, review: Review
) -> None:
    """Every step is tried in every state."""
    job = review.die(clock, UpstreamDown())
    letters = operator(hf)

    def refused(names: tuple[str, ...]) -> None:
        before = letters.show(job.id)
        for name in names:
            with pytest.raises(StepRefused, match=r"Next step|is running|completed"):
                STEPS[name](letters, job.id)
        assert letters.show(job.id) == before

    refused(("remediate", "validate", "replay", "verify_replay", "resolve"))
    STEPS["triage"](letters, job.id)
    refused(("validate", "replay", "verify_replay", "resolve"))
    STEPS["remediate"](letters, job.id)
    refused(("remediate", "replay", "verify_replay", "resolve"))
    STEPS["validate"](letters, job.id)
    refused(("remediate", "validate", "verify_replay", "resolve"))
    STEPS["replay"](letters, job.id)
    refused(tuple(STEPS))
    review.faults.clear()
    work(hf, clock)
    refused(("triage", "remediate", "validate", "replay", "resolve"))
    STEPS["verify_replay"](letters, job.id)
    refused(("triage", "remediate", "validate", "replay"))
    STEPS["resolve"](letters, job.id)
    for name in STEPS:
        with pytest.raises(LetterEnded, match="resolved"):
            STEPS[name](letters, job.id)
    assert len(refusals(hf)) == 5 + 4 + 4 + 4 + 8 + 5 + 4 + 8


@pytest.mark.req("D-05")
@pytest.mark.parametrize("end", ["discard", "fix_forward"])
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_dead_letter_can_be_discarded_from_every_state_but_a_running_replay(
    hf: Holdfast, end: str, after: int
) -> None:
    (job,) = die_at_once(hf, Gone())
    letters = operator(hf)
    for name in WAY[:after]:
        STEPS[name](letters, job.id)

    letter = STEPS[end](letters, job.id)

    assert letter.state.is_ended
    assert letter.ended_at is not None
    assert letter.fixed_by == ("job 7" if end == "fix_forward" else None)
    assert timeline(hf, job)[-1] == f"dead_letter.{letter.state}"


def test_a_note_can_be_added_at_any_time_and_never_changes(hf: Holdfast) -> None:
    (job,) = die_at_once(hf, Gone())
    letters = operator(hf)
    version = letters.show(job.id).letter.version
    letters.add_note(job.id, "Seen.\nTold the team.")
    letters.discard(job.id, reason="too old")
    letters.add_note(job.id, "Asked again.")

    view = letters.show(job.id)
    assert [note.body for note in view.notes] == ["Seen.\nTold the team.", "Asked again."]
    assert view.letter.version == version + 1
    for text in ("UPDATE holdfast.dead_letter_note SET body = 'x'",
                 "DELETE FROM holdfast.dead_letter_note"):  # fmt: skip
        with pytest.raises(RuleBroken):
            by_hand(hf.store, text)


# -- the plan


@pytest.mark.req("D-05")
def test_the_plan_offers_what_can_be_done_and_says_why_something_cannot(
    hf: Holdfast, clock: FakeClock, review: Review
) -> None:
    job = review.die(clock, UpstreamDown())
    letters = operator(hf)

    def plan() -> dict[str, tuple[bool, str]]:
        found = letters.show(job.id).plan
        return {offer.action: (offer.is_offered, offer.says) for offer in found.offers}

    assert list(plan()) == ["replay", "discard", "fix_forward"]
    assert plan()["replay"] == (True, "next step: triage: classify the failure")
    assert (plan()["discard"][0], plan()["fix_forward"][0]) == (True, True)
    replay(letters, job)
    assert {offered for offered, _ in plan().values()} == {False}
    assert "replay 1 is running" in plan()["discard"][1]
    review.faults.clear()
    work(hf, clock)
    assert plan()["replay"] == (
        False,
        "replay 1 completed; next step: verify: check the replay and its deliveries",
    )
    assert plan()["discard"][0]
    letters.discard(job.id, reason="x")
    assert plan()["fix_forward"] == (False, "it is discarded, which is final")


def test_the_next_step_of_the_plan_is_the_step_that_is_not_refused(hf: Holdfast) -> None:
    (job,) = die_at_once(hf, Gone())
    letters = operator(hf)

    for name in WAY[:4]:
        assert letters.show(job.id).plan.next_step.startswith(name)
        STEPS[name](letters, job.id)


# -- roles


@pytest.mark.req("T-04")
@pytest.mark.parametrize("name", STEPS)
def test_another_tenants_item_is_not_found_and_the_attempt_is_on_its_own_record(
    hf: Holdfast, name: str
) -> None:
    (job,) = die_at_once(hf, Gone())
    stranger = operator(hf, actor="user:eve", org_id=OTHER_ORG)

    with pytest.raises(NotFound):
        STEPS[name](stranger, job.id)
    with pytest.raises(NotFound):
        STEPS[name](stranger, NOBODY)

    assert [(row["org_id"], row["actor_id"]) for row in refusals(hf)] == [(OTHER_ORG, "eve")] * 2
    assert operator(hf).show(job.id).letter.version == 1
    with pytest.raises(JobNotFound):
        stranger.show(job.id)
    assert stranger.list().letters == ()


@pytest.mark.req("T-04")
@pytest.mark.parametrize("name", STEPS)
def test_a_member_looks_and_does_nothing(hf: Holdfast, name: str) -> None:
    (job,) = die_at_once(hf, Gone())
    member = operator(hf, actor="user:moe", role="member", org_id=ORG)

    with pytest.raises(Exception, match="the role member may not"):
        STEPS[name](member, job.id)

    assert member.show(job.id).letter.job_id == job.id
    (refused,) = refusals(hf)
    assert decode(refused["detail"])["why"] == "Forbidden"


# -- bad input


def test_a_stale_version_is_refused_and_changes_nothing(hf: Holdfast) -> None:
    (job,) = die_at_once(hf, Gone())
    letters = operator(hf)
    letters.triage(job.id, kind="data", version=1)

    with pytest.raises(StaleVersion, match="not at version 1, but at 2"):
        letters.discard(job.id, reason="seen an hour ago", version=1)

    assert letters.show(job.id).letter.state is DeadLetterState.TRIAGED
    assert decode(refusals(hf)[-1]["detail"])["why"] == "StaleVersion"


@pytest.mark.parametrize("job_id", [NOBODY, "no such thing", "", "\x1b[2J", "x" * 10_000])
def test_an_unknown_id_is_not_found(hf: Holdfast, job_id: str) -> None:
    with pytest.raises(NotFound) as refused:
        operator(hf).discard(job_id, reason="x")

    assert len(str(refused.value)) < 300


def test_a_job_that_did_not_die_has_no_dead_letter_and_a_replay_names_its_original(
    hf: Holdfast, clock: FakeClock, review: Review
) -> None:
    job = review.die(clock, UpstreamDown())
    fine = hf.enqueue("review.run", {}, org_id=ORG)
    letters = operator(hf)
    again = replay(letters, job)

    with pytest.raises(LetterNotFound, match="has no dead letter"):
        letters.show(fine.id)
    with pytest.raises(LetterNotFound, match=f"the dead letter of {job.id}"):
        letters.triage(again, kind="data")


@pytest.mark.req("D-15")
@pytest.mark.parametrize(
    ("evidence", "is_safe", "field"),
    [
        ("", True, "evidence_ref"),
        ("   ", True, "evidence_ref"),
        ("x" * 501, True, "evidence_ref"),
        ("INC-7\x1b[2J", True, "evidence_ref"),
        ("https://user:hunter2hunter2@host/x", True, "evidence_ref"),
        ("INC-7", False, "is_safe_to_repeat"),
        ("INC-7", None, "is_safe_to_repeat"),
        ("INC-7", "no", "is_safe_to_repeat"),
    ],
)
def test_nothing_is_replayed_without_evidence_and_a_clear_yes(
    hf: Holdfast, evidence: Any, is_safe: Any, field: str
) -> None:
    (job,) = die_at_once(hf, Gone())
    letters = operator(hf)
    letters.triage(job.id, kind="data")
    letters.remediate(job.id, done=["source_corrected"])

    with pytest.raises(InvalidAction, match=field):
        letters.validate(job.id, evidence_ref=evidence, is_safe_to_repeat=is_safe)

    assert letters.show(job.id).letter.state is DeadLetterState.REMEDIATED
    assert "hunter2" not in str(refusals(hf))


@pytest.mark.parametrize(
    "words", ["", "  \n", "x" * 10_000, "a\x00b", "\x1b]0;owned\x07", "\ud800"]
)
def test_words_that_cannot_be_kept_or_shown_are_refused(hf: Holdfast, words: str) -> None:
    (job,) = die_at_once(hf, Gone())
    letters = operator(hf)

    for act in (
        lambda: letters.discard(job.id, reason=words),
        lambda: letters.fix_forward(job.id, reason="x", reference=words),
        lambda: letters.add_note(job.id, words),
    ):
        with pytest.raises(InvalidAction):
            act()
    with pytest.raises(InvalidAction, match="one of transient, data"):
        letters.triage(job.id, kind=words)

    assert letters.show(job.id).letter.version == 1


# -- database constraints


@pytest.mark.req("D-12")
def test_the_database_refuses_every_edge_that_is_not_on_the_way(hf: Holdfast) -> None:
    """With any other columns that a manual change may write."""
    (job,) = die_at_once(hf, Gone())
    legal = {
        ("open", "triaged"),
        ("triaged", "remediated"),
        ("remediated", "validated"),
        ("remediated", "triaged"),
        ("validated", "replaying"),
        ("validated", "triaged"),
        ("replaying", "replayed"),
        ("replaying", "open"),
        ("replayed", "resolved"),
    }
    at = "open"
    for name in ("triaged", "remediated", "validated", "replaying", "replayed", "resolved"):
        for other in DeadLetterState:
            edge = (at, other.value)
            gives_up = other in ("discarded", "fixed_forward") and at != "replaying"
            if other != at and edge not in legal and not gives_up:
                with pytest.raises(RuleBroken):
                    move(hf, job.id, other)
        move(hf, job.id, DeadLetterState(name))
        at = name
    with pytest.raises(RuleBroken, match="dead_letter_ended"):
        by_hand(hf.store, "UPDATE holdfast.dead_letter SET version = version + 1")


def move(hf: Holdfast, job_id: str, to: DeadLetterState) -> None:
    """Write a state by hand, with all columns of that state."""
    gone_through = list(DeadLetterState).index(to)
    is_fixed = to is DeadLetterState.FIXED_FORWARD
    text = (
        "UPDATE holdfast.dead_letter SET version = version + 1, state = CAST(:state AS text),"
        " kind = CAST(:kind AS text), checklist = CAST(:list AS {json}),"
        " evidence_ref = CAST(:ref AS text), is_safe_to_repeat = CAST(:safe AS boolean),"
        " replay_count = replay_count + CAST(:replays AS integer),"
        " verified_at = CASE WHEN :verified = 1 THEN created_at END,"
        " ending = CAST(:ending AS text), fixed_by = CAST(:fixed AS text),"
        " ended_at = CASE WHEN CAST(:ending AS text) IS NOT NULL THEN created_at END"
        " WHERE job_id = :job_id"
    )
    by_hand(
        hf.store,
        text,
        job_id=job_id,
        state=to.value,
        kind="data" if gone_through > 0 else None,
        list=json.dumps({"source_corrected": True}) if gone_through > 1 else None,
        ref="INC-7" if gone_through > 2 else None,
        safe=True if gone_through > 2 else None,
        replays=1 if to is DeadLetterState.REPLAYING else 0,
        verified=1 if to in (DeadLetterState.RESOLVED, DeadLetterState.REPLAYED) else 0,
        ending="x" if to.is_ended else None,
        fixed="y" if is_fixed else None,
    )


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("state = 'triaged'", "dead_letter_steps_in_order"),
        ("kind = 'data'", "dead_letter_steps_in_order"),
        ("evidence_ref = 'x'", "dead_letter_steps_in_order"),
        ("state = 'resolved'", "dead_letter_ended_says_why|dead_letter_edge|steps_in_order"),
        ("ending = 'x'", "dead_letter_ended_says_why"),
        ("state = 'sleeping'", "dead_letter_state_known|dead_letter_edge"),
        ("kind = 'bad luck'", "dead_letter_kind_known|steps_in_order"),
        ("replay_count = 3", "dead_letter_replays_counted"),
        ("error_class = 'NONE'", "dead_letter_failure_stands"),
        ("last_stack = ''", "dead_letter_failure_stands"),
        ("job_type = 'other'", "dead_letter_write_once"),
        ("version = version", "dead_letter_version"),
        ("version = version + 2", "dead_letter_version"),
    ],
)
def test_the_database_keeps_an_item_whole(hf: Holdfast, change: str, rule: str) -> None:
    die_at_once(hf, Gone())
    if "version" not in change:
        change += ", version = version + 1"

    with pytest.raises(RuleBroken, match=rule):
        by_hand(hf.store, f"UPDATE holdfast.dead_letter SET {change}")
    with pytest.raises(RuleBroken, match="dead_letter_leaves_only_when_ended"):
        by_hand(hf.store, "DELETE FROM holdfast.dead_letter")


# -- lists


def test_a_list_is_paged_newest_first_and_each_item_is_in_it_once(
    hf: Holdfast, clock: FakeClock
) -> None:
    made = []
    for _ in range(7):
        made += die_at_once(hf, Gone(), count=2)
        clock.advance(seconds=1)
    letters = operator(hf)

    found: list[DeadLetter] = []
    before = None
    while True:
        page = letters.list(limit=3, before=before)
        found += page.letters
        if page.next is None:
            break
        before = page.next

    assert len(found) == len({letter.job_id for letter in found}) == len(made)
    order = [(letter.created_at, letter.job_id) for letter in found]
    assert order == sorted(order, reverse=True)


def test_a_list_is_narrowed_by_every_condition(hf: Holdfast, clock: FakeClock) -> None:
    (old,) = die_at_once(hf, Gone())
    clock.advance(hours=2)
    (new,) = die_at_once(hf, UpstreamDown(), job_type="order.pay", org_id=OTHER_ORG)
    letters = operator(hf)
    letters.triage(new.id, kind="auth_config")

    def ids(**wanted: Any) -> set[str]:
        return {letter.job_id for letter in letters.list(DeadLetterFilter(**wanted)).letters}

    assert ids() == {old.id, new.id}
    assert ids(org_id=ORG) == ids(job_type="mail.send") == ids(error_class="GONE") == {old.id}
    assert ids(state="open") == ids(older_than=timedelta(hours=1)) == {old.id}
    assert ids(kind="auth_config") == ids(state="triaged") == {new.id}
    assert ids(queue="q:default", stage="run") == {old.id, new.id}
    assert ids(queue="q:exports") == ids(stage="tell") == set()
    for bad in ({"kind": "odd"}, {"state": "odd"}, {"org_id": "x"}, {"stage": "\x1b"},
                {"job_type": ""}, {"older_than": timedelta(0)}):  # fmt: skip
        with pytest.raises(InvalidAction):
            letters.list(DeadLetterFilter(**bad))
    for before in ("x", "2026-01-05T09:00:00.000Z/x", f"yesterday/{old.id}"):
        with pytest.raises(InvalidAction, match="before"):
            letters.list(before=before)
    for limit in (0, 1001):
        with pytest.raises(InvalidAction, match="limit"):
            letters.list(limit=limit)


def test_every_refusal_is_a_conflict_or_bad_input_never_a_half_written_step(
    hf: Holdfast, clock: FakeClock, review: Review
) -> None:
    job = review.die(clock, UpstreamDown())
    letters = operator(hf)
    before = look(hf.store, "SELECT count(*) AS n FROM holdfast.job")[0]["n"]

    for name in WAY[1:]:
        with pytest.raises(Conflict):
            STEPS[name](letters, job.id)

    assert look(hf.store, "SELECT count(*) AS n FROM holdfast.job")[0]["n"] == before
    assert timeline(hf, job)[-1] == "job.deadlettered"
    assert claim(hf) == []
