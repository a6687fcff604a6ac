"""A process is killed after each statement of a review, from submission to erasure."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from holdfast.engine.maintenance import rescue_jobs
from holdfast_review.enums import ReviewProgress
from tests.apps.test_crash import Died, crash_everywhere, dying_after
from tests.apps_review.bench import ANN, BEN, Bench
from tests.operate.sound import assert_sound
from tests.story import ORG, look


def count(bench: Bench, table: str) -> int:
    (row,) = look(bench.hf.store, f"SELECT count(*) AS n FROM holdfast.{table}")
    return int(row["n"])


@pytest.mark.req("I-18")
def test_a_submission_that_dies_anywhere_is_there_whole_or_not_at_all(bench: Bench) -> None:
    seen: list[tuple[int, ...]] = []
    tables = ("review", "review_recipient", "job")

    crash_everywhere(
        lambda: bench.submit(to=[ANN, BEN]),
        lambda: seen.append(tuple(count(bench, table) for table in tables)),
    )

    assert set(seen) == {(0, 0, 0), (1, 2, 1)}
    bench.work_out()
    assert sorted(bench.channel.accepted.values()) == [1, 1]
    assert_sound(bench.hf)


@pytest.mark.req("I-18", "N-08", "S-06")
def test_a_worker_that_dies_after_any_statement_leaves_what_the_next_one_resolves(
    bench: Bench,
) -> None:
    asked: list[Any] = []
    for number in itertools.count(1):
        asked.append(bench.submit(1, f"k{number}", changelist=f"cl-{number}", to=[ANN, BEN]))
        try:
            with dying_after(number):
                bench.work()
        except Died:
            # The next worker waits until the leases of the job and of its deliveries have expired.
            bench.clock.advance(minutes=10)
            rescue_jobs(bench.hf.store, limit=10)
            bench.work_out()
            continue
        break

    bench.work_out()
    assert {bench.again(one).word for one in asked} == {ReviewProgress.SUCCEEDED}
    assert set(bench.channel.accepted.values()) == {1}
    assert len(bench.channel.accepted) == 2 * len(asked) > 40
    assert_sound(bench.hf)


def test_an_erasure_that_dies_anywhere_is_finished_by_the_next_one(bench: Bench) -> None:
    bench.succeed(to=[ANN, BEN])
    bench.submit(2, "k2", rerun=True, to=[ANN, BEN])

    crash_everywhere(lambda: bench.reviews.erase("cl-1", org_id=ORG, reason="asked for"))
    bench.work_out()

    for table in ("finding", "review_recipient", "delivery"):
        assert count(bench, table) == 0
    assert len(bench.channel.accepted) == 2
    assert_sound(bench.hf)
