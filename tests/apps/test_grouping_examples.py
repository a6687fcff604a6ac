"""The three grouping examples of the contract, lived through: submit, hand over, bring back.

A deployment whose routes name two prompt versions: weekly messages use v1, direct messages v2.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from holdfast import FakeClock
from holdfast_rewrite.prompt import instructions_for
from tests.apps.phrases import SAID
from tests.apps.town import Sent, Town, new_id, open_town
from tests.operate.sound import assert_sound

HOME = new_id(1, 1)
PEOPLE = [new_id(2, at) for at in range(1, 8)]


@pytest.fixture
def town(url: str, clock: FakeClock) -> Iterator[Town]:
    with open_town(url, clock) as found:
        (weekly, *_) = found.rewrites.routes._rows
        direct = replace(weekly, surfaces=("direct_message",), prompt_version="v2")
        found.rewrites.routes._rows = (weekly, direct)
        directory = found.directory
        directory.add_home(HOME)
        for user in PEOPLE:
            locale = "es-ES" if user == PEOPLE[-1] else "en-US"
            directory.add_member(HOME, user, role="housemate", locale=locale)
        yield found


def message(at: int, *, target: str = "en", surface: str = "weekly_feedback") -> Sent:
    recipient = PEOPLE[-1] if target == "es" else PEOPLE[0]
    text = f"{SAID['bins']['en']} (number {at})"
    return Sent(HOME, PEOPLE[at], recipient, "bins", "en", target, text, surface)


def records(town: Town, sent: list[Any]) -> list[Any]:
    found = town.records()
    return [found[answer.rewrite_request_id] for answer in sent]


EXAMPLES = {
    "A, all alike": ({}, True),
    "B, another target_locale": ({"target": "es"}, False),
    "C, another prompt_version": ({"surface": "direct_message"}, False),
}


@pytest.mark.req("P-07", "P-08", "P-09", "P-10", "B-19")
@pytest.mark.parametrize(("change", "is_batchable"), EXAMPLES.values(), ids=EXAMPLES.keys())
def test_the_examples_of_the_contract(
    town: Town, change: dict[str, str], is_batchable: bool
) -> None:
    sent = town.submit([message(1), message(2), message(3, **change)])

    town.run("rewrite_batch_submitter")
    handed_over = records(town, sent)
    town.clock.advance(minutes=30)
    town.run("rewrite_batch_collector")
    town.run("rewrite_orchestrator")

    keys = [record["batch_group_key"] for record in handed_over]
    batches = [record["batch_id"] for record in handed_over]
    assert {record["status"] for record in handed_over} == {"batch_submitted"}
    assert keys[0] == keys[1]
    assert batches[0] == batches[1]
    assert (keys[2] == keys[0], batches[2] == batches[0]) == (is_batchable, is_batchable)
    ended = records(town, sent)
    assert {record["status"] for record in ended} == {"completed"}
    assert_sound(town.hf)


@pytest.mark.req("P-10", "R-20", "R-21")
def test_each_version_is_asked_for_by_its_own_words_and_named_by_its_output(town: Town) -> None:
    weekly, direct = town.submit([message(1), message(2, surface="direct_message")])

    town.go_on()

    asked = {ask.instructions: ask for ask in town.model.asked}
    assert set(asked) == {instructions_for("v1", "en"), instructions_for("v2", "en")}
    outputs = town.outputs()
    assert outputs[weekly.rewrite_request_id]["prompt_version"] == "v1"
    assert outputs[direct.rewrite_request_id]["prompt_version"] == "v2"
    keys = [town.records()[one.rewrite_request_id]["batch_group_key"] for one in (weekly, direct)]
    assert [key.split("|")[2] for key in keys] == ["v1", "v2"]
    decision = json.loads(town.requests()[direct.rewrite_request_id]["routing_decision"])
    assert decision["prompt_version"] == "v2"


@pytest.mark.req("R-20", "R-21")
def test_a_job_keeps_its_version_when_the_route_moves_on_and_is_not_batched_with_the_new_one(
    town: Town,
) -> None:
    (old,) = town.submit([message(1)])
    town.rewrites.routes._rows = tuple(
        replace(row, prompt_version="v2") for row in town.rewrites.routes._rows
    )
    (new,) = town.submit([message(2)])

    town.run("rewrite_batch_submitter")

    first, second = records(town, [old, new])
    assert (first["prompt_version"], second["prompt_version"]) == ("v1", "v2")
    assert first["batch_id"] != second["batch_id"]
    assert first["batch_group_key"] != second["batch_group_key"]
