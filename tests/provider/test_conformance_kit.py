"""The conformance kit for providers, run on the built-in adapters and on broken ones."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from _pytest.outcomes import Failed

from holdfast_llm.provider.http_client import HttpAdapter
from holdfast_llm.provider.reply import ProviderUnsure
from holdfast_llm.testing import ProviderConformance, ProviderFault
from holdfast_simulator import Simulator
from tests.provider.broken import BROKEN
from tests.provider.test_http_client import ENVELOPES
from tests.provider.test_round_trip import ALL


class OnSimulator(ProviderConformance):
    """The server is the simulator; the test configures the adapter."""

    adapter: HttpAdapter

    @pytest.fixture(autouse=True)
    def _simulator(self) -> Iterator[None]:
        with Simulator() as self.sim:
            yield

    def make_adapter(self) -> HttpAdapter:
        return self.adapter

    def base_url(self) -> str:
        provider = self.adapter.kind.partition("_")[0]
        return self.sim.url(provider) + ("/openai" if provider == "azure" else "")

    def play(self, fault: ProviderFault, on: str | None = None) -> None:
        self.sim.faults.add(fault, op=on)

    def count_batches(self) -> int:
        return len(self.sim.state.batches)

    def start_batches(self) -> None:
        self.sim.clock.advance(seconds=10)

    def finish_batches(self) -> None:
        self.sim.clock.advance(hours=49)

    def error_document(self, message: str) -> Any:
        document = ENVELOPES[self.adapter.kind]
        if "message" in document:
            return {**document, "message": message}
        return {**document, "error": {**document["error"], "message": message}}

    def now(self) -> datetime:
        return self.sim.clock.now()

    def billed_tokens(self) -> tuple[int, int]:
        return self.sim.ledger.total()


class TestBuiltIn(OnSimulator):
    @pytest.fixture(autouse=True, params=sorted(ALL))
    def _adapter(self, request: pytest.FixtureRequest) -> None:
        self.adapter = ALL[request.param]
        if self.adapter.kind.startswith("azure"):
            # Batches do not expire at this provider.
            self.faults = frozenset(ProviderFault) - {ProviderFault.EXPIRE}


class Elsewhere(OnSimulator):
    """The settings of the kind must refuse this address."""

    bad_addresses = ("https://elsewhere.example/v1",)


@pytest.mark.parametrize(
    ("adapter", "test", "given"), BROKEN, ids=lambda value: type(value).__name__
)
def test_a_broken_adapter_fails(adapter: HttpAdapter, test: str, given: tuple[Any, ...]) -> None:
    kit = Elsewhere()
    kit.adapter = adapter
    with Simulator() as kit.sim, pytest.raises((AssertionError, Failed, ProviderUnsure)):
        getattr(kit, test)(*given)


def test_every_test_of_the_kit_has_an_adapter_that_fails_it() -> None:
    tests = {name for name in dir(ProviderConformance) if name.startswith("test_")}

    assert tests == {test for _, test, _ in BROKEN}
