"""An application with batch processing for the command line, with a scripted provider."""

from __future__ import annotations

from typing import Any

from holdfast import FakeClock, Holdfast, Settings
from holdfast_llm import Item, Reply, Request, Route
from tests.batch.scripted import ScriptedAccounts, ScriptedProvider

clock = FakeClock()
hf = Holdfast(settings=Settings(db="sqlite:"), clock=clock)


@hf.batch("text.shout", route=Route("openai", "openai_chat", "model-1"), max_attempts=2)
class Shout:
    """Returns a text in capitals."""

    def request(self, item: Item) -> Request:
        return Request((item.payload["text"],), "Shout.")

    def accept(self, item: Item, reply: Reply) -> Any:
        return {"said": reply.text}


def begin() -> ScriptedProvider:
    """A provider without any batches."""
    provider = ScriptedProvider(clock)
    hf.batch.accounts = ScriptedAccounts(provider)
    return provider
