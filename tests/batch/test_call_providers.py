"""Direct calls through every adapter, over HTTP, against the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast_llm import ExecutionMode, Item, Reply, Request, Route
from holdfast_llm.settings import ProviderSettings
from holdfast_simulator import Simulator
from tests.operate.sound import assert_sound
from tests.story import ORG, look, make_holdfast

SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
ADAPTERS = {
    "openai_responses": "openai",
    "openai_chat": "openai",
    "gemini_generate": "gemini",
    "anthropic_messages": "anthropic",
    "mistral_chat": "mistral",
}


class Shout:
    """Returns a text in capitals."""

    def request(self, item: Item) -> Request:
        return Request((item.payload["text"],), "Shout.", schema=SCHEMA)

    def accept(self, item: Item, reply: Reply) -> Any:
        return {"said": reply.data["text"], "model": reply.model}


@pytest.fixture
def sim(clock: FakeClock) -> Iterator[Simulator]:
    with Simulator(clock=clock) as running:
        yield running
        assert running.journal.defects == []


def app(
    sim: Simulator, url: str, clock: FakeClock, kind: str, monkeypatch: pytest.MonkeyPatch
) -> Holdfast:
    name = ADAPTERS[kind]
    monkeypatch.setenv("SIMULATED_KEY", "a-key-of-no-account")
    server = ProviderSettings(
        base_url=sim.url(name), credential_env="SIMULATED_KEY", allow_private=True
    )
    hf = make_holdfast(url, clock, providers={name: server})
    route = Route(name, kind, "model-1", execution_mode=ExecutionMode.ASYNC)
    hf.batch("text.shout", route=route, max_attempts=2)(Shout)
    return hf


@pytest.mark.req("B-18")
@pytest.mark.parametrize("kind", ADAPTERS)
def test_a_call_of_its_own_goes_through_the_adapter_that_the_route_names(
    sim: Simulator, url: str, clock: FakeClock, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf = app(sim, url, clock, kind, monkeypatch)
    jobs = [hf.enqueue("text.shout", {"text": f"text {n}"}, org_id=ORG) for n in range(3)]

    assert hf.worker().run_once().outcomes == {"completed": 3}

    for job in jobs:
        assert isinstance(hf.get(job.id, org_id=ORG).result["said"], str)
    rows = look(hf.store, "SELECT kind, input_tokens, output_tokens FROM holdfast.provider_call")
    assert [row["kind"] for row in rows] == ["actual"] * 3
    assert all(row["input_tokens"] > 0 and row["output_tokens"] > 0 for row in rows)
    assert sim.ledger.double_paid() == {}
    assert_sound(hf)
    hf.close()
