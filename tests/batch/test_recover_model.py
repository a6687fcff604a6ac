"""Recovery with random lost requests, lost replies, late creates, kills and freezes.

Each seed is a different test of a few hours, with far more faults than in production. Every seed
has the same invariants: no item is paid twice, and none is lost.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from datetime import timedelta

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.engine.maintenance import rescue_jobs
from holdfast_llm.batch.maintenance import SQL as MAINTENANCE
from holdfast_llm.provider.reply import FailureKind
from tests.batch.outgoing import Died, Outgoing, set_out
from tests.batch.scripted import Lose, Refuse, Step
from tests.failpoints import BatchPoint as Point

SEEDS = range(10)


def fault(rng: random.Random) -> Step | None:
    """The outcome of one create: a quarter each is lost or has no answer, some are late."""
    drawn = rng.random()
    if drawn < 0.25:
        return Lose()
    if drawn < 0.5:
        return Lose(accepted=True)
    if drawn < 0.62:
        return Lose(later=timedelta(minutes=rng.uniform(0, 67)))
    if drawn < 0.7:
        return Refuse(rng.choice((FailureKind.CAPACITY, FailureKind.TRANSIENT)))
    return None


class Chance:
    """Decides at every failpoint whether the worker is killed or frozen there."""

    def __init__(self, out: Outgoing, rng: random.Random) -> None:
        self.out = out
        self.rng = rng

    def __call__(self, point: Point) -> None:
        drawn = self.rng.random()
        if drawn < 0.12:
            raise Died(point)
        if drawn < 0.18:
            self.out.later(minutes=self.rng.uniform(0, 40))
            if self.rng.random() < 0.7:
                self.run(self.rng)

    def run(self, rng: random.Random) -> None:
        """Another worker, while this one is frozen. It may be killed, too."""
        rescue_jobs(self.out.hf.store, limit=100, find=MAINTENANCE.find_stale)
        lane = Chance(self.out, rng) if rng.random() < 0.3 else None
        with suppress(Died):
            self.out.submit(owner=f"other-{rng.random()}", dies_at=lane, max_runtime_seconds=86_400)


def tell(out: Outgoing, seed: int) -> None:
    rng = random.Random(seed)
    out.provider.list_lag = timedelta(seconds=rng.uniform(0, 60))
    texts = [f"text {number}" for number in range(rng.randint(1, 12))]
    out.enqueue(*texts)
    for _ in range(rng.randint(2, 12)):
        for operation in ("create", "upload", "scan", "delete_file"):
            step = fault(rng) if operation == "create" else None
            if operation != "create" and rng.random() < 0.1:
                step = Lose(accepted=rng.random() < 0.5)
            if step is not None:
                out.provider.script(operation, step)
        chance = Chance(out, rng)
        chance.run(rng)
        with suppress(Died):
            out.submit(owner=f"run-{rng.random()}", dies_at=chance, max_runtime_seconds=86_400)
        out.later(minutes=rng.uniform(0.1, 25))
        if rng.random() < 0.3:
            out.provider.complete()
    out.provider._steps.clear()
    out.settle_down(minutes=10, rounds=200)
    out.later(hours=2)
    out.submit(owner="last")
    out.provider.complete()

    assert out.provider.double_paid() == {}
    ended = Counter(row["state"] for row in out.jobs)
    assert ended.total() == len(texts)
    quarantined = [row for row in out.batches if row["state"] == "quarantined"]
    if not quarantined:
        # A job without attempts left is failed; every other one was executed.
        assert set(ended) <= {"batch_submitted", "failed"}
        assert len(out.provider.paid) == ended["batch_submitted"]


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_nothing_is_paid_twice_and_nothing_is_lost(
    hf: Holdfast, clock: FakeClock, seed: int
) -> None:
    tell(set_out(hf, clock), seed)
