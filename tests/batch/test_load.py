"""Load: texts of the application's own tables reach the request and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.engine.bounded_run import perform_run
from holdfast.engine.run_log import Trigger, TriggerKind
from holdfast.store import Tx
from holdfast_llm import Item, Reply, Request, Route
from tests.batch.scripted import ScriptedAccounts, ScriptedProvider
from tests.story import ORG, look

CRON = Trigger(TriggerKind.CRON)


class Shelf:
    """Returns a stored text by its name, and counts the reads."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.looks: list[int] = []

    def load(self, tx: Tx, items: Sequence[Item]) -> Mapping[str, str]:
        self.looks.append(len(items))
        if any(item.payload["name"] == "cursed" for item in items):
            raise RuntimeError("do not touch")
        return {item.job_id: self.texts[item.payload["name"]] for item in items}

    def request(self, item: Item) -> Request:
        return Request((item.loaded,), "Say it.")

    def accept(self, item: Item, reply: Reply) -> Any:
        return {"length": len(item.loaded), "said": reply.text}


@pytest.fixture
def provider(clock: FakeClock) -> ScriptedProvider:
    return ScriptedProvider(clock)


@pytest.fixture
def shelf(hf: Holdfast, provider: ScriptedProvider) -> Shelf:
    found = Shelf()
    hf.batch.accounts = ScriptedAccounts(provider)
    hf.batch("shelf.say", route=Route("openai", "scripted", "model-1"))(found)
    return found


def enqueue(hf: Holdfast, shelf: Shelf, names: Sequence[str], **decision: Any) -> None:
    shelf.texts |= {name: f"what lies under {name}" for name in names}
    hf.enqueue_many(
        "shelf.say", [{"name": name} for name in names], org_id=ORG, routing_decision=decision
    )


def states(hf: Holdfast) -> Counter[str]:
    return Counter(row["state"] for row in look(hf.store, "SELECT state FROM holdfast.job"))


def work(hf: Holdfast, provider: ScriptedProvider) -> None:
    perform_run(hf, "batch_submitter", trigger=CRON)
    provider.complete()
    provider.clock.advance(minutes=30)
    perform_run(hf, "batch_collector", trigger=CRON)


@pytest.mark.req("J-25")
def test_a_batch_is_made_of_loaded_texts_with_one_look_for_each_pass_over_it(
    hf: Holdfast, shelf: Shelf, provider: ScriptedProvider
) -> None:
    enqueue(hf, shelf, [f"name {number}" for number in range(20)])

    work(hf, provider)

    assert states(hf) == {"completed": 20}
    # Planned, measured, sent, and checked with their answers.
    assert shelf.looks == [20] * 4
    assert "what lies under" not in str(look(hf.store, "SELECT payload FROM holdfast.job"))


def test_a_call_of_its_own_is_made_of_a_loaded_text(hf: Holdfast, shelf: Shelf) -> None:
    enqueue(hf, shelf, ["one"], execution_mode="async")

    hf.worker().run_once()

    assert states(hf) == {"completed": 1}
    assert shelf.looks == [1]


def test_a_job_that_cannot_be_loaded_is_alone_with_it(
    hf: Holdfast, shelf: Shelf, provider: ScriptedProvider
) -> None:
    enqueue(hf, shelf, ["one", "two", "cursed", "three", "four"])

    work(hf, provider)

    assert states(hf) == {"completed": 4, "failed": 1}
    (letter,) = look(hf.store, "SELECT error_class FROM holdfast.dead_letter")
    assert letter["error_class"] == "DEFECT"
