"""Money from end to end: the ledger and the provider's bill, a budget, and a spent budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from holdfast import FakeClock
from holdfast.clock import read_instant
from holdfast_llm.batch.circuit import find_open_circuits
from holdfast_llm.batch.cost import By, sum_costs
from holdfast_llm.batch.price import PICO
from holdfast_llm.settings import BudgetSettings
from holdfast_simulator.simulator import Simulator
from tests.batch.house import COLLECTOR, SUBMITTER, House, run
from tests.story import ORG, OTHER_ORG, look


@pytest.fixture
def sim(clock: FakeClock) -> Iterator[Simulator]:
    with Simulator(clock=clock) as sim:
        yield sim


@pytest.fixture
def house(url: str, clock: FakeClock, sim: Simulator) -> Iterator[House]:
    with House(url, clock, sim) as house:
        yield house


def states(house: House) -> Counter[tuple[str, int]]:
    return Counter((row["state"], row["attempt_count"]) for row in house.rows())


def creates(sim: Simulator) -> int:
    return len(sim.journal.find(op="create"))


def test_the_ledger_says_what_the_providers_bill_says(house: House, sim: Simulator) -> None:
    house.enqueue(12)
    house.go_on()

    rows = look(house.hf.store, "SELECT * FROM holdfast.provider_call")
    tokens = (
        sum(row["input_tokens"] + row["cache_read_tokens"] for row in rows),
        sum(row["output_tokens"] for row in rows),
    )
    charged = sim.ledger.total()
    assert len(rows) == 12
    assert tokens == charged
    # A dollar for a million input tokens and four for a million output tokens; a direct call costs
    # twice as much.
    bill = (charged[0] + 4 * charged[1]) * PICO // 10**6
    (told,) = house.hf.store.read(
        lambda tx: sum_costs(
            tx, [By.LANGUAGE_PAIR], house.clock.now() - timedelta(days=9), house.clock.now()
        )
    )
    assert told.group == {"language-pair": "en → de"}
    assert (told.cost_pico, told.direct_pico, told.compared) == (bill, 2 * bill, 12)


def test_what_was_billed_for_nothing_is_in_the_ledger_too(house: House, sim: Simulator) -> None:
    sim.faults.add("odd_answers", variant="incomplete", count=2)
    house.enqueue(4)
    house.go_on()

    rows = look(house.hf.store, "SELECT * FROM holdfast.provider_call")
    assert Counter(row["state"] for row in house.rows()) == {"completed": 2, "failed": 2}
    assert sum(row["output_tokens"] for row in rows) == sim.ledger.total()[1]


def test_an_answer_without_token_counts_costs_at_most_its_maximum(
    house: House, sim: Simulator
) -> None:
    sim.faults.add("odd_usage", variant="missing", count=1)
    house.enqueue(3)
    house.go_on()

    rows = look(house.hf.store, "SELECT * FROM holdfast.provider_call")
    (unknown,) = (row for row in rows if row["kind"] == "unknown")
    assert states(house) == {("completed", 0): 3}
    assert (bool(unknown["is_priced"]), unknown["cost_pico"]) == (False, None)
    # Up to 800 output tokens, at four dollars for a million.
    assert unknown["at_most_pico"] > 800 * 4 * 10**6


def room_for(jobs: int) -> dict[str, Any]:
    """A budget that fits this many jobs at their maximum cost."""
    # Our estimate of the longest text is less than 150 tokens, and an answer has at most 800.
    usd = Decimal(jobs) * (Decimal(150) + 4 * 800) / 10**6
    return {"budgets": {ORG: BudgetSettings(usd_per_day=usd)}}


@pytest.fixture
def budgeted(url: str, clock: FakeClock, sim: Simulator) -> Iterator[House]:
    with House(url, clock, sim, settings=room_for(3)) as house:
        yield house


def test_a_budget_holds_jobs_instead_of_overspending(budgeted: House, sim: Simulator) -> None:
    house = budgeted
    house.enqueue(5, orgs=(ORG,))
    house.enqueue(4, orgs=(OTHER_ORG,))

    house.both(SUBMITTER)

    by_tenant = Counter((str(row["org_id"]), row["state"]) for row in house.rows())
    assert by_tenant == {
        (ORG, "batch_submitted"): 3,
        (ORG, "queued"): 2,
        (OTHER_ORG, "batch_submitted"): 4,
    }
    waiting = [row for row in house.rows() if row["state"] == "queued"]
    assert {row["attempt_count"] for row in waiting} == {0}
    later = house.clock.now() + timedelta(minutes=15)
    assert {read_instant(row["not_before_at"]) for row in waiting} == {later}
    assert house.alerts["budget_held"]

    # The items in flight cost less than their maximum.
    house.go_on()
    assert states(house) == {("completed", 0): 9}
    assert sim.ledger.double_paid() == {}


@pytest.mark.req("B-05")
def test_an_account_without_credit_stops_submission_and_no_job_pays_for_it(
    house: House, sim: Simulator
) -> None:
    broke = sim.faults.add("quota_exhausted", times=None)
    house.enqueue(6)

    run(house.hf, SUBMITTER)

    assert states(house) == {("queued", 0): 6}
    assert len(house.hf.store.read(find_open_circuits)) == 1
    assert house.alerts["circuit_opened"] == 1
    asked = creates(sim)

    house.clock.advance(minutes=1)
    house.both(SUBMITTER)
    assert creates(sim) == asked, "an open circuit is asked nothing"

    sim.faults.remove(broke)
    house.clock.advance(minutes=10)
    house.both(SUBMITTER)
    assert house.hf.store.read(find_open_circuits) == set()
    house.clock.advance(minutes=30)
    run(house.hf, COLLECTOR)
    house.go_on()
    assert states(house) == {("completed", 0): 6}
    assert house.alerts["circuit_opened"] == 1
