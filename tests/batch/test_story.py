"""Eighty jobs of three tenants in four language pairs, with every kind of fault at once.

One batch expires half-way, one has only an error file, and a tenth of the items each fails in one
of five ways. At the end every job is in its required state, the attempts are right, and the costs
match the provider's bill.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from holdfast import FakeClock
from holdfast.event import ModelUsed
from holdfast_llm.batch.cost import By, sum_costs
from holdfast_simulator.prompt import Finish, ItemError, Prompt, Said, respond
from holdfast_simulator.simulator import Simulator
from tests.batch.house import START, House
from tests.story import ORG, OTHER_ORG, look

THIRD_ORG = "0198c0de-0000-7000-8000-00000000000c"
ORGS = (ORG, OTHER_ORG, THIRD_ORG)
PAIRS = (("en", "de"), ("en", "es"), ("fr", "de"), ("de", "it"))
EACH = 20
JOBS = EACH * len(PAIRS)
# The batches in the order in which they are created.
EXPIRING, FAILING = 2, 3

# The answer by the last digit of a job's number.
TRANSIENT, INVALID, REFUSED, TRUNCATED, GARBLED = 1, 2, 3, 4, 5
DEAD = {
    INVALID: "PROMPT_REFUSED",
    REFUSED: "POLICY_REJECTED",
    TRUNCATED: "OUTPUT_TRUNCATED",
    GARBLED: "OUTPUT_INVALID",
}
INPUT_PICO, OUTPUT_PICO = 1_000_000, 4_000_000


@dataclass
class Model:
    """A model that fails for every tenth item, and only once where a retry can succeed."""

    asked: Counter[int] = field(default_factory=Counter)

    def __call__(self, prompt: Prompt) -> Said:
        found = re.search(r"about number (\d+)", prompt.text)
        assert found is not None
        number = int(found[1])
        self.asked[number] += 1
        good = respond(prompt)
        match number % 10:
            case 1 if self.asked[number] == 1:
                return Said(error=ItemError(500, "server_error"))
            case 2:
                return Said(error=ItemError(400, "invalid_value"))
            case 3:
                return Said(good.text, finish=Finish.REFUSED)
            case 4:
                return Said(good.text[: len(good.text) // 2], finish=Finish.LENGTH)
            case 5:
                return Said('{"text": "no end')
            case _:
                return good


@pytest.fixture
def house(url: str, clock: FakeClock) -> Iterator[House]:
    with (
        Simulator(clock=clock, responder=Model()) as sim,
        House(url, clock, sim) as made,
    ):
        yield made


def run_story(house: House) -> None:
    for source, target in PAIRS:
        decision = {"source_locale": source, "target_locale": target}
        house.enqueue(EACH, orgs=ORGS, routing_decision=decision)
    # Batches are created in the order of their oldest jobs.
    house.workers = house.workers[:1]
    house.sim.faults.add("expired_partial", nth=EXPIRING + 1, share=0.5)
    house.sim.faults.add("error_file_only", nth=FAILING + 1)
    house.go_on()


def expected_attempts(number: int) -> int:
    """The number of attempts of a job, by the requirement for each failure."""
    pair, place = divmod(number, EACH)
    kind = number % 10
    attempts = 0
    asked = 0
    if pair == EXPIRING and place >= EACH // 2:
        attempts += 1  # It expired before it ran: retried, and counted as an attempt.
    if pair == FAILING:
        attempts += 1  # Its item failed with 500 though the model had answered.
        asked += 1
    if kind in DEAD:
        return attempts + 1
    if kind == TRANSIENT and asked == 0:
        attempts += 1
    return attempts


@pytest.mark.timeout(180)
@pytest.mark.req("P-01", "P-12", "P-13", "P-18", "P-21", "B-19", "R-13", "R-14")
@pytest.mark.req("P-05", "P-08", "P-11", "P-14", "P-17", "P-23", "R-20", "R-21")
def test_every_job_ends_where_its_row_says_by_its_route_and_for_what_is_billed(
    house: House,
) -> None:
    run_story(house)

    check_ends(house)
    check_routes(house)
    check_bill(house)


def check_ends(house: House) -> None:
    """Every job ends in its state, with its error and its attempts."""
    tally = house.tally()
    assert (tally.paid_twice, tally.lost, tally.leaked, tally.held) == (0, 0, 0, 0)
    assert tally.wrong == {}
    assert tally.states == {"completed": JOBS - 4 * JOBS // 10, "failed": 4 * JOBS // 10}
    assert tally.errors == dict.fromkeys(DEAD.values(), JOBS // 10)
    rows = {row["id"]: row for row in house.rows()}
    told = {
        number: (rows[job.id]["attempt_count"], rows[job.id]["error_class"])
        for number, job in enumerate(house.jobs)
        if rows[job.id]["state"] == "failed"
    }
    assert told == {
        number: (expected_attempts(number), DEAD[number % 10])
        for number in range(JOBS)
        if number % 10 in DEAD
    }
    charged = [rows[job.id]["attempt_count"] for job in house.jobs]
    assert charged == [expected_attempts(number) for number in range(JOBS)]


def check_routes(house: House) -> None:
    """Every item went to the provider that its job was routed to."""
    batches = house.batches()
    first = batches[: len(PAIRS)]
    assert [batch["items"] for batch in first] == [EACH] * len(PAIRS)
    assert all(batch["state"] == "collected" for batch in batches)
    assert all(batch["files_deleted_at"] is not None for batch in batches)
    assert house.sim.state.files == {}
    # Each batch is of one language pair, and of all tenants.
    for batch in batches:
        items = _items(house, batch["id"])
        assert [item["batch_item_index"] for item in items] == list(range(batch["items"]))
        assert {item["group_key"] for item in items} == {batch["group_key"]}
    assert {item["org_id"] for item in _items(house, first[0]["id"])} == set(ORGS)
    # Each item has the time of its own answer: the provider ran them one after the other.
    answered = [item["finished_at"] for item in _items(house, first[0]["id"])]
    assert len(set(answered)) > EACH // 2
    # A job always names its first batch.
    names = {batch["id"]: batch["provider_batch_id"] for batch in batches}
    went: dict[str, list[str]] = {}
    asked: dict[str, set[str]] = {}
    for batch in batches:
        for item in _items(house, batch["id"]):
            went.setdefault(item["job_id"], []).append(names[batch["id"]])
            asked.setdefault(item["job_id"], set()).add(item["group_key"])
    for row in house.rows():
        assert row["provider_batch_id"] == went[row["id"]][0]
    assert max(len(batches) for batches in went.values()) == 3
    # Every retry has the same provider, model, versions, lane and languages.
    assert {len(groups) for groups in asked.values()} == {1}


def _items(house: House, batch_id: str) -> list[dict[str, Any]]:
    text = "SELECT * FROM holdfast.batch_item WHERE batch_id = :id ORDER BY batch_item_index"
    return [dict(row) for row in look(house.hf.store, text, id=batch_id)]


def check_bill(house: House) -> None:
    """The ledger matches the provider's bill."""
    charges = house.sim.ledger.charges
    bill = sum(
        charge.input_tokens * INPUT_PICO + charge.output_tokens * OUTPUT_PICO for charge in charges
    )
    calls = look(house.hf.store, "SELECT * FROM holdfast.provider_call")
    paid = [call for call in calls if call["kind"] == "actual"]
    assert sum(call["cost_pico"] for call in calls) == bill > 0
    assert len(paid) == len(charges)
    assert {call["kind"] for call in calls} == {"actual", "free"}
    told = [event for event in house.told if isinstance(event, ModelUsed)]
    assert sum(event.cost_pico for event in told) == bill
    assert sum(event.calls for event in told) == len(calls)
    # Direct calls would have cost twice as much, by the prices of this test.
    assert sum(call["direct_pico"] for call in calls) == 2 * bill
    since, until = START - timedelta(days=1), START + timedelta(days=10)
    by_pair = house.hf.store.read(
        lambda tx: sum_costs(tx, [By.LANGUAGE_PAIR, By.ORG], since, until)
    )
    assert sum(spent.cost_pico for spent in by_pair) == bill
    assert {spent.group["language-pair"] for spent in by_pair} == {
        f"{source} → {target}" for source, target in PAIRS
    }
    assert {spent.group["org"] for spent in by_pair} == set(ORGS)
    # A useless answer is charged; a failed or expired item is not.
    rows = {row["id"]: row for row in house.rows()}
    paid_for = {call["job_id"] for call in paid}
    useless = {"POLICY_REJECTED", "OUTPUT_TRUNCATED", "OUTPUT_INVALID"}
    for row in rows.values():
        wants = row["state"] == "completed" or row["error_class"] in useless
        assert (row["id"] in paid_for) == wants
