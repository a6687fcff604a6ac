"""A line of an ended batch is missing or garbled, and the provider counts its answer.

A counted answer is charged. Whatever the final state of the batch, the item is neither sent again
nor dead-lettered: it is held, and read at no cost when the provider returns its line.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import FakeClock
from holdfast_simulator.models import Pace
from holdfast_simulator.simulator import Simulator
from tests.batch.house import ADAPTERS, House
from tests.batch.test_faults import JOBS, TABLE, judge

pytestmark = pytest.mark.timeout(120)

DAMAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "missing": ("missing_line", {"items": (0,)}),
    "garbled": ("odd_lines", {"variant": "malformed", "item": 0}),
}


@dataclass(frozen=True)
class End:
    """The end of the batch at the provider, and the number of items answered by then."""

    fault: str | None
    answered: int = JOBS


ENDS = {
    "completed": End(None),
    "expired": End("expired_partial", JOBS // 2),
    "canceled": End("canceled_partial", JOBS // 2),
}


@pytest.fixture
def sim(clock: FakeClock) -> Any:
    with Simulator(clock=clock, seed=0) as made:
        yield made


EVERY = list(itertools.product(DAMAGES, ENDS, ADAPTERS))
# Every provider with each damage and with two ends, and every damage with each end.
SOME = [
    *(("missing", end, name) for end, name in zip(itertools.cycle(ENDS), ADAPTERS, strict=False)),
    ("garbled", "expired", "openai"),
    ("garbled", "completed", "azure"),
    ("garbled", "expired", "gemini"),
    ("garbled", "canceled", "anthropic"),
    ("garbled", "completed", "mistral"),
]


@pytest.mark.req("P-19", "P-21", "P-22")
@pytest.mark.parametrize(("damage", "end", "provider"), EVERY if TABLE else SOME)
def test_a_counted_answer_without_a_readable_line_is_held_and_paid_once(
    url: str, clock: FakeClock, sim: Simulator, damage: str, end: str, provider: str
) -> None:
    with House(url, clock, sim, provider) as house:
        sim.state.pace = Pace(running=60)
        house.enqueue(JOBS)
        fault, options = DAMAGES[damage]
        sim.faults.add(fault, **options)
        ended = ENDS[end]
        if ended.fault is not None:
            sim.faults.add(ended.fault, share=0.5)

        house.go_on()

        tally = house.tally()
        # By custom id: the items that the provider has charged, each at most once.
        assert len(sim.ledger.charges) == len({one.custom_id for one in sim.ledger.charges})
        judge(house, f"{damage} line, {end}, {provider}", tally)
        assert tally.errors == {}
        assert tally.held >= 1
        assert tally.states["completed"] + tally.held == JOBS
        assert house.alerts["missing_result"] == 1
        assert house.alerts["quarantined"] == 1
        # An expired batch of Gemini has no result file, and so no garbled line.
        shows_file = (end, provider) != ("expired", "gemini")
        assert house.alerts["malformed_line"] == (damage == "garbled" and shows_file)
