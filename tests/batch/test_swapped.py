"""A provider swaps the answers of two items of one batch, under valid custom ids.

No tenant gets an answer of another tenant. If the schema of the request allows an echo, no answer
goes to another item of the same tenant either.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import FakeClock
from holdfast_llm import Request
from holdfast_simulator.simulator import Simulator
from tests.batch.house import ADAPTERS, SCHEMA, House, Shorten
from tests.batch.test_faults import TABLE, judge
from tests.story import ORG, look

pytestmark = [pytest.mark.timeout(120), pytest.mark.req("P-14", "P-16")]

# A root that may be one of several objects has no place for an echo.
CHOICE = {"anyOf": [SCHEMA, {"type": "object", "properties": {"no": {"type": "string"}}}]}


@pytest.fixture
def sim(clock: FakeClock) -> Iterator[Simulator]:
    with Simulator(clock=clock, seed=0) as made:
        yield made


def crossed(house: House) -> list[str]:
    """Jobs whose result holds a word of another tenant's job."""
    owners = {canary: job_id for job_id, canary in house.canaries.items()}
    orgs = {row["id"]: row["org_id"] for row in house.rows()}
    found = []
    for row in house.rows():
        said = json.dumps(row["result"]) if row["result"] is not None else ""
        found += [
            row["id"]
            for canary, owner in owners.items()
            if canary in said and orgs[owner] != row["org_id"]
        ]
    return found


def tenants_of_batches(house: House) -> list[int]:
    text = (
        "SELECT batch_id, count(DISTINCT org_id) AS tenants FROM holdfast.batch_item"
        " GROUP BY batch_id ORDER BY batch_id"
    )
    return [row["tenants"] for row in look(house.hf.store, text)]


@pytest.mark.parametrize("provider", list(ADAPTERS))
def test_swapped_answers_of_two_tenants_reach_no_job(
    url: str, clock: FakeClock, sim: Simulator, provider: str
) -> None:
    with House(url, clock, sim, provider) as house:
        house.enqueue(2)
        sim.faults.add("cross_wired")

        house.go_on()

        tally = house.tally()
        judge(house, f"swapped answers, {provider}", tally)
        assert tenants_of_batches(house) == [2]
        assert tally.states["completed"] == 0
        assert {"cross_wired", "quarantined"} <= set(house.alerts)


@pytest.mark.parametrize("provider", list(ADAPTERS) if TABLE else ["openai", "gemini"])
def test_swapped_answers_of_one_tenant_are_noticed_as_well(
    url: str, clock: FakeClock, sim: Simulator, provider: str
) -> None:
    with House(url, clock, sim, provider) as house:
        house.enqueue(2, orgs=(ORG,))
        sim.faults.add("cross_wired")

        house.go_on()

        judge(house, f"swapped answers of one tenant, {provider}", tally := house.tally())
        assert tally.states["completed"] == 0
        assert {"cross_wired", "quarantined"} <= set(house.alerts)


@pytest.mark.parametrize(
    ("provider", "schema"),
    [
        pytest.param(provider, schema, id=f"{provider}-{'choice' if schema else 'text'}")
        for number, provider in enumerate(["openai", "azure", "anthropic", "mistral"])
        for schema in ([None, CHOICE] if TABLE else [(None, CHOICE)[number % 2]])
    ],
)
def test_answers_that_cannot_carry_an_echo_share_no_batch_with_another_tenant(
    url: str,
    clock: FakeClock,
    sim: Simulator,
    monkeypatch: pytest.MonkeyPatch,
    provider: str,
    schema: dict[str, Any] | None,
) -> None:
    monkeypatch.setattr(
        Shorten, "request", lambda _, item: Request((item.payload["text"],), schema=schema)
    )
    monkeypatch.setattr(Shorten, "accept", lambda _, item, reply: {"text": reply.text})
    with House(url, clock, sim, provider) as house:
        house.enqueue(6)
        sim.faults.add("cross_wired", times=2)

        house.go_on()

        assert tenants_of_batches(house) == [1, 1]
        assert house.tally().states["completed"] == 6
        assert crossed(house) == []


def test_an_account_that_asks_for_no_echo_gets_a_batch_for_each_tenant(
    url: str, clock: FakeClock, sim: Simulator
) -> None:
    with House(url, clock, sim, "openai", {"wants_echo": False}) as house:
        house.enqueue(6)

        house.go_on()

        assert tenants_of_batches(house) == [1, 1]
        assert house.tally().states["completed"] == 6
