"""The conformance kit for providers on the pager's chat server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from holdfast_pager.provider import PagerChat

from holdfast_llm.testing import ProviderConformance, ProviderFault
from holdfast_simulator import Simulator


class TestPagerChat(ProviderConformance):
    bad_addresses = ("https://llm.elsewhere.example/v1",)

    @pytest.fixture(autouse=True)
    def _simulator(self) -> Iterator[None]:
        with Simulator() as self.sim:
            yield

    def make_adapter(self) -> PagerChat:
        return PagerChat()

    def base_url(self) -> str:
        return self.sim.url("openai")

    def play(self, fault: ProviderFault, on: str | None = None) -> None:
        self.sim.faults.add(fault, op=on)

    def count_batches(self) -> int:
        return len(self.sim.state.batches)

    def start_batches(self) -> None:
        self.sim.clock.advance(seconds=10)

    def finish_batches(self) -> None:
        self.sim.clock.advance(hours=25)

    def error_document(self, message: str) -> Any:
        return {"error": {"message": message, "type": "invalid_request_error", "code": "bad"}}

    def now(self) -> datetime:
        return self.sim.clock.now()
