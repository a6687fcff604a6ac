"""Shares: queues take turns by weight, and an unused share is not saved."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engine.fairness import PIECES, QueueShares

WEIGHTS = {"q:critical": 8, "q:default": 4, "q:maintenance": 1}


def serve(
    shares: QueueShares, wanted: int, waiting: list[str], weights: dict[str, int]
) -> Counter[str]:
    """One claim of a worker from queues that all have many jobs."""
    got: Counter[str] = Counter()
    for queue, share in shares.split(wanted, waiting, weights):
        shares.spend(queue, share, weights)
        got[queue] += share
    return got


@pytest.mark.req("Q-23")
@pytest.mark.parametrize("wanted", [1, 3, 10, 500])
def test_busy_queues_share_by_weight_whatever_the_size_of_a_take(wanted: int) -> None:
    shares, got = QueueShares(), Counter[str]()

    while sum(got.values()) < 13_000:
        got += serve(shares, wanted, list(WEIGHTS), WEIGHTS)

    whole = sum(got.values())
    for queue, weight in WEIGHTS.items():
        # Off by no more than one or two jobs of a claim.
        assert abs(got[queue] - whole * weight / 13) <= max(2, 2 * wanted / PIECES + 2)


@pytest.mark.req("Q-23")
def test_the_lightest_queue_is_served_in_every_round_of_single_jobs() -> None:
    shares = QueueShares()
    taken = [next(iter(serve(shares, 1, list(WEIGHTS), WEIGHTS))) for _ in range(130)]

    waits = [at for at, queue in enumerate(taken) if queue == "q:maintenance"]

    assert len(waits) == 10
    assert max(after - before for before, after in itertools.pairwise(waits)) <= 14


@pytest.mark.parametrize("idle", [1, 50, 5_000])
def test_a_queue_that_was_empty_has_saved_nothing_up(idle: int) -> None:
    weights = {"a": 1, "b": 1}
    shares = QueueShares()
    serve(shares, 10, ["a", "b"], weights)
    for _ in range(idle):
        serve(shares, 10, ["a"], weights)

    back = sum((serve(shares, 10, ["a", "b"], weights) for _ in range(10)), Counter[str]())

    assert abs(back["a"] - back["b"]) <= 2


def test_a_queue_that_is_empty_for_a_moment_is_not_let_off_what_it_had() -> None:
    # It has one job every second time, and would be first among equals by its name.
    weights = {"a trickle": 1, "flood": 1, "another flood": 1}
    shares, got = QueueShares(), Counter[str]()
    for turn in range(900):
        waiting = list(weights)[0 if turn % 2 else 1 :]
        got += serve(shares, 1, waiting, weights)

    assert got["a trickle"] <= 900 / 3 + 2


def test_a_queue_that_gave_less_than_its_share_leaves_the_rest_to_the_others() -> None:
    weights = {"short": 1, "long": 1}
    shares = QueueShares()
    asked = dict(shares.split(10, ["short", "long"], weights))
    shares.spend("short", 1, weights)
    shares.spend("long", asked["long"], weights)

    rest = shares.split(10 - 1 - asked["long"], ["long"], weights)

    assert rest == [("long", 10 - 1 - asked["long"])]


@pytest.mark.req("Q-23")
def test_fifty_queues_are_all_served_and_a_take_asks_few_of_them() -> None:
    weights = {f"q:{number}": 1 for number in range(50)}
    shares, got, asked = QueueShares(), Counter[str](), []

    for _ in range(50):
        took = serve(shares, 500, list(weights), weights)
        asked.append(len(took))
        got += took

    assert set(got) == set(weights)
    assert max(got.values()) - min(got.values()) <= 2 * 500 / PIECES
    assert max(asked) <= PIECES + 1


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 100), min_size=1),
    st.lists(st.tuples(st.integers(1, 600), st.sets(st.sampled_from("abcdef")))),
)
@settings(deadline=None)
def test_a_split_gives_all_that_is_wanted_to_queues_that_wait(
    weights: dict[str, int], takes: list[tuple[int, set[str]]]
) -> None:
    shares = QueueShares()
    for wanted, names in takes:
        waiting = sorted(names & weights.keys())
        split = shares.split(wanted, waiting, weights)
        for queue, share in split:
            assert share > 0
            shares.spend(queue, share, weights)

        assert sum(share for _, share in split) == (wanted if waiting else 0)
        assert {queue for queue, _ in split} <= set(waiting)


@given(st.lists(st.sets(st.sampled_from("abcd"), min_size=1), min_size=1, max_size=300))
@settings(deadline=None)
def test_no_queue_that_waits_is_passed_over_for_longer_than_the_weights_say(
    looks: list[set[str]],
) -> None:
    # A has weight 1 and always waits; the others come and go at random.
    weights = {"a": 1, "b": 8, "c": 4, "d": 2}
    shares, passed = QueueShares(), 0
    for names in looks:
        (queue,) = serve(shares, 1, sorted(names | {"a"}), weights)
        passed = 0 if queue == "a" else passed + 1
        assert passed <= 8 + 4 + 2 + 3
