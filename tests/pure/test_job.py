"""States, transitions, ranks, and the one pair of values that only increases."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast import Actor, ActorType, FakeClock, Holdfast, Settings, State
from holdfast.engine.job import (
    SYSTEM,
    TRANSITIONS,
    Advanced,
    Canceled,
    Claimed,
    Completed,
    Dead,
    Fault,
    KeyStatus,
    Outcome,
    Released,
    Retry,
    Snoozed,
    key_status,
)
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.settle import settle
from holdfast.errors import InvalidArgument, RuleBroken, StoreBusy
from tests.store.hand import claim_by_hand, end_attempt, move
from tests.story import ORG, claim, look, make_holdfast

WORDS = ["queued", "processing", "batch_submitted", "completed", "failed", "canceled"]
FORWARD = {
    ("queued", "processing"),
    ("processing", "batch_submitted"),
    ("processing", "completed"),
    ("processing", "failed"),
    ("batch_submitted", "completed"),
    ("batch_submitted", "failed"),
    ("queued", "canceled"),
    ("processing", "canceled"),
    ("batch_submitted", "canceled"),
}
BACK = {("processing", "queued"), ("batch_submitted", "queued")}


@pytest.mark.req("J-01")
def test_there_are_six_states_and_no_others() -> None:
    assert [state.value for state in State] == WORDS


@pytest.mark.req("J-08", "J-09", "J-11")
def test_the_edges_are_those_of_the_contract() -> None:
    edges = {(old.value, new.value) for old, news in TRANSITIONS.items() for new in news}

    assert edges == FORWARD | BACK
    assert ("queued", "completed") not in edges


@pytest.mark.req("J-01", "J-08", "J-09", "J-11")
def test_the_database_knows_exactly_the_same_edges(url: str, clock: FakeClock) -> None:
    with make_holdfast(url, clock) as hf:
        hf.job("some.work")(lambda job, payload: None)
        for old in State:
            for new in State:
                if old is new:
                    continue
                refused = edge_is_refused(hf, old, new)
                assert refused == (new not in TRANSITIONS[old]), f"{old} to {new}"


def edge_is_refused(hf: Holdfast, old: State, new: State) -> bool:
    """Bring a job to *old* by legal steps, then try the transition by hand."""
    job_id = job_in(hf, old)
    try:
        move(hf.store, job_id, old, new)
    except (RuleBroken, StoreBusy):
        # PostgreSQL reports a job that moved as busy: another worker may have moved it.
        return True
    return False


def job_in(hf: Holdfast, state: State, *, attempts: int = 0) -> str:
    job = hf.enqueue("some.work", {}, org_id=ORG)
    if attempts:
        claim_by_hand(hf.store, job.id)
        end_attempt(hf.store, job.id, attempt_count=attempts)
    if state in (State.PROCESSING, State.BATCH_SUBMITTED, State.COMPLETED, State.FAILED):
        move(hf.store, job.id, State.QUEUED, State.PROCESSING)
    if state not in (State.QUEUED, State.PROCESSING):
        move(hf.store, job.id, State.PROCESSING, state)
    return job.id


@pytest.mark.req("J-10")
@pytest.mark.parametrize(
    ("word", "state"),
    [("running", State.PROCESSING), ("succeeded", State.COMPLETED), *[(s.value, s) for s in State]],
)
def test_legacy_words_are_understood_on_read(word: str, state: State) -> None:
    assert State.read(word) is state


@pytest.mark.req("J-10")
def test_legacy_words_are_never_written() -> None:
    assert not {"running", "succeeded"} & {state.value for state in State}


def test_any_other_word_is_not_a_state() -> None:
    with pytest.raises(ValueError):
        State.read("asleep")


@pytest.mark.req("J-06")
def test_only_the_three_ends_are_terminal_and_nothing_leads_out_of_them() -> None:
    ends = {state for state in State if state.is_terminal}

    assert ends == {State.COMPLETED, State.FAILED, State.CANCELED}
    assert all(not TRANSITIONS[state] for state in ends)


KEY_WORDS = {
    (State.QUEUED, 0): KeyStatus.PENDING,
    (State.QUEUED, 1): KeyStatus.FAILED,
    (State.PROCESSING, 0): KeyStatus.RUNNING,
    (State.PROCESSING, 1): KeyStatus.RUNNING,
    (State.BATCH_SUBMITTED, 0): KeyStatus.RUNNING,
    (State.BATCH_SUBMITTED, 1): KeyStatus.RUNNING,
    (State.COMPLETED, 0): KeyStatus.SUCCEEDED,
    (State.COMPLETED, 1): KeyStatus.SUCCEEDED,
    (State.FAILED, 0): KeyStatus.DEAD,
    (State.FAILED, 1): KeyStatus.DEAD,
    (State.CANCELED, 0): KeyStatus.FAILED,
    (State.CANCELED, 1): KeyStatus.FAILED,
}


@pytest.mark.req("I-07")
def test_a_key_has_one_word_for_each_state_of_its_job() -> None:
    assert [status.value for status in KeyStatus] == [
        "pending", "running", "succeeded", "failed", "dead",
    ]  # fmt: skip
    for (state, attempts), word in KEY_WORDS.items():
        assert key_status(state, attempts) is word


@pytest.mark.req("I-07")
def test_the_database_says_the_same_word_for_each_state(url: str, clock: FakeClock) -> None:
    with make_holdfast(url, clock) as hf:
        hf.job("some.work")(lambda job, payload: None)
        for (state, attempts), word in KEY_WORDS.items():
            job_id = job_in(hf, state, attempts=attempts)
            (row,) = look(
                hf.store,
                "SELECT status FROM holdfast.idempotency_key WHERE job_id = :id",
                id=job_id,
            )
            assert row["status"] == word, f"{state} after {attempts}"


@pytest.mark.req("J-36")
@pytest.mark.parametrize(
    ("text", "actor"),
    [
        ("user:42", Actor(ActorType.USER, "42")),
        ("system:cron", Actor(ActorType.SYSTEM, "cron")),
        ("api_key:k:1", Actor(ActorType.API_KEY, "k:1")),
    ],
)
def test_an_actor_is_read_from_text(text: str, actor: Actor) -> None:
    assert Actor.read(text) == actor


@pytest.mark.req("J-36")
@pytest.mark.parametrize("text", ["42", "robot:7", "User:7", "user:", ":7", "", "user:a\nb"])
def test_text_that_names_none_of_the_three_types_is_no_actor(text: str) -> None:
    with pytest.raises(InvalidArgument, match="actor"):
        Actor.read(text)


FAULT = Fault("TRANSIENT", "TRANSIENT", True)
OUTCOMES: list[Outcome] = [
    Completed("1"), Advanced("1", "second", 3), Retry(FAULT, 1_000), Dead(FAULT), Snoozed(1_000),
    Released("drain"), Canceled(),
]  # fmt: skip


class WayOfAJob(RuleBasedStateMachine):
    """Any operations in any order, by correct, late and repeated workers alike."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.hf = Holdfast(
            settings=Settings(db="sqlite:///:memory:"), clock=self.clock, rng=random.Random(1)
        )
        self.hf.job("some.work", max_attempts=3)(lambda job, payload: None)
        self.ids: list[str] = []
        self.claims: list[Claimed] = []
        self.last: dict[str, tuple[tuple[int, int], Any]] = {}

    def teardown(self) -> None:
        self.hf.close()

    @rule(key=st.sampled_from("abc"))
    def enqueue(self, key: str) -> None:
        self.ids.append(self.hf.enqueue("some.work", {}, org_id=ORG, idempotency_key=key).id)

    @rule(limit=st.integers(1, 3))
    def claim(self, limit: int) -> None:
        self.claims += claim(self.hf, limit=limit)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES))
    def settle(self, data: st.DataObject, outcome: Outcome) -> None:
        job = data.draw(st.sampled_from(self.claims))
        if isinstance(outcome, Retry) and job.attempt >= job.max_attempts:
            outcome = Dead(outcome.fault)
        if isinstance(outcome, Advanced) and job.stage == outcome.next_stage:
            outcome = Completed("1")
        (settled,) = settle(self.hf.store, [(job, outcome)], actor=SYSTEM)
        if settled.next_claim is not None:
            self.claims.append(settled.next_claim)

    @rule(seconds=st.sampled_from([1, 30, 61]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds=seconds)

    @rule()
    def rescue(self) -> None:
        rescue_jobs(self.hf.store, limit=10)

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.hf.cancel(data.draw(st.sampled_from(self.ids)), org_id=ORG)

    @invariant()
    def the_pair_of_closed_claims_and_rank_only_grows(self) -> None:
        for row in look(self.hf.store, "SELECT * FROM holdfast.job"):
            state = State(row["state"])
            open_claims = 1 if state in (State.PROCESSING, State.BATCH_SUBMITTED) else 0
            pair = (row["lease_token"] - open_claims, state.rank)
            before, row_before = self.last.get(row["id"], ((-1, -1), None))
            assert pair >= before
            if row_before is not None and State(row_before["state"]).is_terminal:
                unchanged = {k: v for k, v in row.items() if k != "key_last_seen_at"}
                assert unchanged == {k: v for k, v in row_before.items() if k != "key_last_seen_at"}
            elif row_before is not None and row_before["state"] != row["state"]:
                assert pair > before
            self.last[row["id"]] = (pair, row)

    @invariant()
    def every_claim_and_every_end_is_on_record_once(self) -> None:
        names: dict[str, list[str]] = {}
        for event in look(self.hf.store, "SELECT job_id, name FROM holdfast.job_event ORDER BY id"):
            names.setdefault(event["job_id"], []).append(event["name"])
        for row in look(self.hf.store, "SELECT * FROM holdfast.job"):
            said = names[row["id"]]
            ends = [n for n in said if n in ("job.succeeded", "job.deadlettered", "job.canceled")]
            assert said.count("job.enqueued") == 1
            assert said.count("job.started") == row["lease_token"]
            assert len(ends) == (1 if State(row["state"]).is_terminal else 0)
            assert row["attempt_count"] <= row["max_attempts"]


WayOfAJob.TestCase.settings = settings(max_examples=15, stateful_step_count=30, deadline=None)


@pytest.mark.req("J-09", "I-14", "A-07")
class TestTheWayOfAJob(WayOfAJob.TestCase):
    """(closed claims, rank) only increases, an end is final, and the audit records every step."""
