"""A batch that fails as a whole: suspect items are isolated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from holdfast import FakeClock, Holdfast
from holdfast_llm.provider.adapter import BatchPhase
from holdfast_llm.provider.reply import Failure, FailureKind
from holdfast_llm.settings import BatchSettings
from holdfast_simulator.simulator import Simulator
from tests.batch.house import House
from tests.batch.outgoing import Outgoing, set_out
from tests.batch.planted import Stage, set_stage
from tests.batch.scripted import Refuse, StoredBatch
from tests.story import OTHER_ORG, by_hand, timeline

JOBS = 12


@pytest.fixture
def sim(clock: FakeClock) -> Iterator[Simulator]:
    with Simulator(clock=clock) as made:
        yield made


@pytest.fixture
def stage(hf: Holdfast, clock: FakeClock) -> Stage:
    return set_stage(hf, clock)


@pytest.fixture
def out(hf: Holdfast, clock: FakeClock) -> Outgoing:
    return set_out(hf, clock)


def fail(batch: StoredBatch, *lines: int) -> None:
    """The provider fails the batch as a whole, and names these lines."""
    batch.phase, batch.status = BatchPhase.FAILED, "failed"
    batch.failure = Failure(FailureKind.NOT_RUN, "invalid_json_line")
    batch.named_lines = lines


@pytest.mark.req("P-13", "P-21", "P-22")
@pytest.mark.parametrize("attempts", [1, 5])
@pytest.mark.parametrize("numbered", [True, False], ids=["named", "unnamed"])
def test_one_bad_line_fails_alone_and_every_neighbour_has_its_answer(
    url: str, clock: FakeClock, sim: Simulator, numbered: bool, attempts: int
) -> None:
    with House(url, clock, sim) as house:
        house.enqueue(JOBS, max_attempts=attempts)
        bad = house.jobs[7].id
        word = house.canaries[bad]
        sim.faults.add("validation_failed", word=word, numbered=numbered, times=None)

        house.go_on()

        tally = house.tally()
        failed = {row["id"]: row["error_class"] for row in house.rows() if row["state"] == "failed"}
        assert failed == {bad: "PROMPT_REFUSED" if numbered else "BATCH_FAILED"}
        assert tally.states == Counter(completed=JOBS - 1, failed=1)
        assert (tally.paid_twice, tally.lost, tally.leaked, tally.wrong) == (0, 0, 0, {})
        if numbered:
            assert tally.charged == 1


@pytest.mark.req("P-21")
def test_a_line_that_is_called_wrong_is_asked_for_alone_before_it_is_believed(
    stage: Stage,
) -> None:
    planted = stage.plant("one", "two", "three")
    fail(planted.at_provider, 2)

    stage.collect()

    found = [stage.job(job) for job in planted.jobs]
    assert [(str(job.state), job.attempt_count) for job in found] == [("queued", 0)] * 3
    assert [timeline(stage.hf, job)[-1] for job in planted.jobs] == ["job.released"] * 3
    assert [row["error_code"] for row in stage.items(planted)] == [
        "other_line",
        "named_line",
        "other_line",
    ]


def test_a_line_that_is_called_wrong_and_was_alone_is_wrong(stage: Stage) -> None:
    planted = stage.plant("one")
    fail(planted.at_provider, 1)

    stage.collect()

    job = stage.job(planted.jobs[0])
    assert (str(job.state), job.error_class) == ("failed", "PROMPT_REFUSED")
    assert "invalid_json_line" in str(job.record["last_error"])


@pytest.mark.parametrize("line", [0, 4])
def test_a_missing_line_names_no_item(stage: Stage, line: int) -> None:
    planted = stage.plant("one", "two", "three")
    fail(planted.at_provider, line)

    stage.collect()

    assert [stage.job(job).attempt_count for job in planted.jobs] == [1, 1, 1]


def test_lines_are_counted_as_they_were_sent(stage: Stage) -> None:
    planted = stage.plant("one", "two", "three", "four")
    # An item that left the batch before it was sent has no line.
    by_hand(
        stage.store,
        "UPDATE holdfast.batch_item SET submitted_at = NULL, state = 'released', is_open = 0,"
        " recorded_at = created_at WHERE batch_item_index = 1",
    )
    fail(planted.at_provider, 2)

    stage.collect()

    codes = [row["error_code"] for row in stage.items(planted)]
    assert codes == ["other_line", None, "named_line", "other_line"]


def test_the_lines_of_a_batch_of_several_groups_are_those_that_were_sent(
    url: str, clock: FakeClock, sim: Simulator
) -> None:
    with House(url, clock, sim, settings={"batch": BatchSettings(merge_groups=True)}) as house:
        for number in range(6):
            decision = {"target_locale": ("nl", "de", "fr")[number % 3]}
            house.enqueue(1, routing_decision=decision)
        bad = house.jobs[3].id
        sim.faults.add("validation_failed", word=house.canaries[bad], times=None)

        house.go_on()

        failed = {row["id"]: row["error_class"] for row in house.rows() if row["state"] == "failed"}
        assert failed == {bad: "PROMPT_REFUSED"}
        assert house.tally().charged == 1


@pytest.mark.req("P-21", "R-18")
def test_a_refused_create_sends_its_jobs_again_in_smaller_batches(out: Outgoing) -> None:
    jobs = out.enqueue(*(f"text {number}" for number in range(9)))
    sizes = []
    for _ in range(2):
        for _ in range(9):
            out.provider.script("create", Refuse(FailureKind.INVALID, "too_large", 413))
        out.submit()
        out.later(hours=3)
        sizes.append(sorted(row["items"] for row in out.batches))
        out.provider._steps.clear()
    out.submit()

    assert sizes == [[9], [3, 3, 3, 9]]
    assert [len(texts) for texts in out.sent_texts()] == [1] * 9
    assert out.states(jobs) == Counter(batch_submitted=9)


def test_an_item_that_was_not_alone_does_not_end_with_its_batch(out: Outgoing) -> None:
    jobs = out.enqueue("one", "two", max_attempts=1)
    out.provider.script("create", Refuse(FailureKind.INVALID, "too_large", 413))

    out.submit()

    assert [out.job(job).attempt_count for job in jobs] == [0, 0]
    assert [row["error_class"] for row in out.items] == ["BATCH_FAILED"] * 2


def test_suspect_items_are_batched_separately(out: Outgoing) -> None:
    out.enqueue("one", "two")
    out.provider.script("create", Refuse(FailureKind.INVALID, "too_large", 413))
    out.submit()
    out.later(hours=3)
    out.enqueue("three", "four", org_id=OTHER_ORG)

    out.submit()

    assert sorted(out.sent_texts()) == [["one"], ["three", "four"], ["two"]]


def test_a_provider_that_fails_for_want_of_room_makes_no_batch_smaller(out: Outgoing) -> None:
    out.enqueue("one", "two")
    out.provider.script("create", Refuse(FailureKind.CAPACITY, "token_limit_exceeded", 400))
    out.submit()
    out.later(hours=3)

    out.submit()

    assert out.sent_texts() == [["one", "two"]]
