"""The complaint rewrite from end to end: sixty messages, five homes, six languages, one provider.

The provider is the simulator, over HTTP, on the same fake clock as everything else. What it was
asked, what it was paid for and where anybody's words went is looked at in the end.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import generate_latest

from holdfast import FakeClock
from holdfast.store import Row
from holdfast_llm.batch.cost import By, sum_costs
from holdfast_rewrite.model import RewriteRequest
from holdfast_rewrite.prompt import prompt_for
from holdfast_simulator.prompt import Finish, Said
from tests.apps.phrases import KIND, LANGUAGES, SAID
from tests.apps.town import Sent, Town, new_id, open_town, sixty
from tests.operate.sound import report_of, violations
from tests.story import look, seal_all

# Where words may lie, and nowhere else.
ORIGINALS = {("rewrite_message", "original_text"), ("rewrite_request", "rewrite_request")}
REWRITTEN = {("rewrite_output", "rewritten_text")}


@pytest.fixture
def town(url: str, clock: FakeClock) -> Iterator[Town]:
    with open_town(url, clock) as found:
        yield found


# What ask for; J-16 has the rest, of which some are empty once a job has ended.
AUDITED = (
    "rewrite_request_id",
    "job_id",
    "home_id",
    "sender_user_id",
    "recipient_user_id",
    "recipient_snapshot_id",
    "recipient_preference_snapshot_id",
    "source_locale",
    "target_locale",
    "lane",
    "provider",
    "model",
    "prompt_version",
    "policy_version",
    "execution_mode",
    "batch_group_key",
    "batch_id",
    "batch_item_index",
    "attempt_count",
    "attempts",
    "status",
    "classifier_version",
    "detected_language",
    "language_confidence",
    "received_at",
    "queued_at",
    "classified_at",
    "context_built_at",
    "routed_at",
    "enqueued_at",
    "started_at",
    "rewrite_completed_at",
    "sender_reveal_at",
    "lexicon_version",
    "eval_result",
    "routing_decision",
    "updated_at",
    "created_at",
    "max_attempts",
)
DECIDED = {
    "provider",
    "adapter_kind",
    "model",
    "prompt_version",
    "policy_version",
    "execution_mode",
    "supports_translation",
    "cache_eligible",
    "max_retries",
}


@pytest.mark.req("A-01")
@pytest.mark.req("A-02")
@pytest.mark.req("A-03")
@pytest.mark.req("A-04")
@pytest.mark.req("E-01")
@pytest.mark.req("J-18")
@pytest.mark.req("J-21")
@pytest.mark.req("J-22")
@pytest.mark.req("J-34")
@pytest.mark.req("L-01")
@pytest.mark.req("P-03")
@pytest.mark.req("P-16")
@pytest.mark.req("V-06")
@pytest.mark.req("L-10")
@pytest.mark.req("L-11")
@pytest.mark.req("L-12")
@pytest.mark.req("O-07")
@pytest.mark.req("O-08")
@pytest.mark.req("O-09")
@pytest.mark.req("X-01")
@pytest.mark.req("X-02")
@pytest.mark.req("X-04")
def test_sixty_messages_become_sixty_kind_ones_and_no_word_gets_where_it_may_not(
    town: Town,
) -> None:
    messages = sixty()
    town.settle(messages)
    answers = town.submit(messages)
    before = town.requests()
    town.run("rewrite_orchestrator")
    change_everything(town, messages)

    town.go_on()

    sent = dict(zip((answer.rewrite_request_id for answer in answers), messages, strict=True))
    assert Counter(answer.status for answer in answers) == {"queued": 60}
    assert_in_the_right_language(town, sent)
    assert_as_submitted(town, before, sent)
    assert_on_record(town, sent)
    assert_costs(town, messages)
    assert_nothing_spilled(town, sent)
    assert_revealed_after_a_day(town, sent)
    seal_all(town.hf.store)
    assert violations(report_of(town.hf, canaries=[one.text for one in messages])) == {}


def change_everything(town: Town, messages: list[Sent]) -> None:
    """Change answers, languages and members after the submission."""
    directory = town.directory
    for one in messages:
        directory.answer(one.home, one.recipient, "communication_directness", "direct")
        directory.change_locale(one.home, one.recipient, "nl")
    for home in dict.fromkeys(one.home for one in messages):
        directory.add_member(home, new_id(9, 1), role="owner", locale="en")
    directory.leave(messages[0].home, messages[0].recipient)


def assert_in_the_right_language(town: Town, sent: dict[str, Sent]) -> None:
    outputs = town.outputs()
    assert len(outputs) == 60
    for request_id, one in sent.items():
        output = outputs[request_id]
        assert output["recipient_user_id"] == one.recipient
        assert output["output_language"] == output["target_locale"] == one.target
        assert output["rewritten_text"] == KIND[one.quarrel][one.target]
        assert json.loads(output["eval_result"])["lexicon_pass"] is True
        assert output["lexicon_version"].startswith(one.target)
    lanes = Counter(row["lane"] for row in town.requests().values())
    assert lanes == {"same_language": 30, "cross_language": 30}
    assert {one.target for one in sent.values()} == set(LANGUAGES)


def assert_as_submitted(town: Town, before: dict[str, Row], sent: dict[str, Sent]) -> None:
    """Requests, prompts and delivery are those of the moment of submission."""
    after = town.requests()
    for request_id in sent:
        for name in ("request_hash", "context_pack", "routing_decision", "recipient_snapshot_id"):
            assert after[request_id][name] == before[request_id][name]
    prompts = {
        prompt_for(RewriteRequest.read(json.loads(row["rewrite_request"])), "v1").inputs[0]
        for row in before.values()
    }
    assert {ask.inputs[0] for ask in town.model.asked} == prompts
    assert len(town.model.asked) == 60
    newcomer = new_id(9, 1)
    for home in dict.fromkeys(one.home for one in sent.values()):
        assert town.rewrites.list_received(home_id=home, user_id=newcomer) == []
    for request_id, one in sent.items():
        found = town.rewrites.list_received(home_id=one.home, user_id=one.recipient)
        assert [each.rewrite_request_id for each in found] == [request_id]


def assert_on_record(town: Town, sent: dict[str, Sent]) -> None:
    records = town.records()
    assert len(records) == 60
    groups = {(row["batch_id"], row["batch_group_key"]) for row in records.values()}
    assert len(groups) == len({row["batch_id"] for row in records.values()})
    for request_id, one in sent.items():
        record = records[request_id]
        decision = json.loads(record["routing_decision"])
        assert set(decision) >= DECIDED
        assert SAID[one.quarrel][one.source] not in record["routing_decision"]
        assert [name for name in AUDITED if record[name] is None] == []
        assert json.loads(record["language_pair"]) == {"from": one.source, "to": one.target}
        assert (record["status"], record["detected_language"]) == ("completed", one.source)
        if record["execution_mode"] == "batch":
            assert record["provider_batch_id"] is not None
            assert record["submitted_at"] is not None
        shown = town.rewrites.operate(actor="user:op", role="operator", org_id=one.home).show(
            request_id
        )
        assert [event["name"] for event in shown["events"]] == [
            "rewrite_received",
            "rewrite_queued",
            "rewrite_classified",
            "rewrite_context_built",
            "rewrite_routed",
            "rewrite_enqueued",
            "rewrite_completed",
        ]
    modes = Counter(record["execution_mode"] for record in records.values())
    assert modes == {"batch": 48, "async": 12}


def assert_costs(town: Town, messages: list[Sent]) -> None:
    now = town.clock.now()
    spent = town.hf.store.read(
        lambda tx: sum_costs(
            tx, [By.LANGUAGE_PAIR], now - timedelta(days=1), now + timedelta(days=1)
        )
    )
    pairs = Counter(f"{one.source} → {one.target}" for one in messages)
    assert {one.group["language-pair"]: one.calls for one in spent} == pairs
    assert all(one.cost_pico > 0 and one.unpriced == 0 for one in spent)
    assert town.sim.ledger.double_paid() == {}
    assert town.sim.leaks.found == []


def assert_nothing_spilled(town: Town, sent: dict[str, Sent]) -> None:
    columns = town.columns
    told = town.said.getvalue() + generate_latest(town.metrics.registry).decode()
    assert "rewrite" in told
    for one in sent.values():
        canary = one.text[-13:-1]
        places = {place for place, text in columns.items() if canary in text}
        assert places == ORIGINALS
        assert canary not in told
        assert SAID[one.quarrel][one.source] not in told
    for quarrel in KIND.values():
        for words in quarrel.values():
            assert town.spilled(words, REWRITTEN) == set()


def assert_revealed_after_a_day(town: Town, sent: dict[str, Sent]) -> None:
    def seen() -> set[str | None]:
        return {
            town.rewrites.find_sent(one, home_id=who.home, user_id=who.sender).rewritten_text
            for one, who in sent.items()
        }

    early = seen()
    town.clock.advance(days=1)
    town.run("rewrite_orchestrator")
    assert early == {None}
    assert None not in seen()
    assert {row["step"] for row in town.requests().values()} == {"revealed"}


# -- a provider that answers badly

CLOCK_TIME = "Could you please take the bins out at 7:45 pm? It would really help me."
RUDE = "Could you take the fucking bins out tonight? It would really help me."

BAD: dict[str, tuple[str, Callable[[], Any]]] = {
    "in the wrong language": ("WRONG_LANGUAGE", lambda: _said(KIND["bins"]["de"], "de")),
    "under a false flag": ("WRONG_LANGUAGE", lambda: _said(KIND["bins"]["de"], "en")),
    "with profanity": ("OUTPUT_REJECTED", lambda: _said(RUDE)),
    "with an invented time": ("OUTPUT_REJECTED", lambda: _said(CLOCK_TIME)),
    "with too many words": ("OUTPUT_INVALID", lambda: _said("Please, the bins. " * 40)),
    "with a refusal": ("POLICY_REJECTED", lambda: Said(finish=Finish.REFUSED)),
}


def _message(at: int, quarrel: str, surface: str = "weekly_feedback", people: int = 4) -> Sent:
    """One of a few messages in English between two neighbours."""
    text = f"{SAID[quarrel]['en']} (canary-{at:04d})"
    sender, recipient = new_id(2, at), new_id(2, (at + 1) % people)
    return Sent(new_id(1, 0), sender, recipient, quarrel, "en", "en", text, surface)


def _said(text: str, language: str = "en") -> dict[str, str]:
    return {"rewritten_text": text, "output_language": language}


@pytest.mark.req("E-04")
@pytest.mark.req("R-14")
@pytest.mark.req("V-05")
@pytest.mark.req("P-24")
@pytest.mark.req("X-05")
@pytest.mark.parametrize("mode", ["weekly_feedback", "direct_message"], ids=["batch", "async"])
def test_bad_answers_become_no_output_and_are_not_asked_for_again(town: Town, mode: str) -> None:
    messages = [_message(at, "bins", mode, len(BAD)) for at in range(len(BAD))]
    town.settle(messages)
    answers = town.submit(messages)
    given = [make for _, make in BAD.values()]
    town.model.wrong = lambda message: given[int(message[-5:-1])]()

    for _ in range(3):
        town.go_on()
        town.clock.advance(hours=3)

    records = town.records()
    failed = [records[answer.rewrite_request_id] for answer in answers]
    assert [row["failure_code"] for row in failed] == [code for code, _ in BAD.values()]
    assert {row["status"] for row in failed} == {"failed"}
    assert {row["attempt_count"] for row in failed} == {1}
    assert town.outputs() == {}
    assert len(town.model.asked) == len(BAD)
    for words in (CLOCK_TIME, RUDE, KIND["bins"]["de"], KIND["music"]["en"]):
        assert town.spilled(words, set()) == set()
    for one, answer in zip(messages, answers, strict=True):
        seen = town.rewrites.find_sent(
            answer.rewrite_request_id, home_id=one.home, user_id=one.sender
        )
        assert (seen.status, seen.has_failed, seen.rewritten_text) == ("failed", True, None)
    assert violations(report_of(town.hf)) == {}


@pytest.mark.parametrize("mode", ["weekly_feedback", "direct_message"], ids=["batch", "async"])
def test_another_items_text_is_held_for_a_person(town: Town, mode: str) -> None:
    messages = [_message(at, "bins", mode, 2) for at in range(2)]
    town.settle(messages)
    (answer,) = town.submit(messages[:1])
    town.model.wrong = lambda _: _said(KIND["music"]["en"])
    for _ in range(3):
        town.go_on()

    assert town.outputs() == {}
    assert town.requests()[answer.rewrite_request_id]["step"] == "held"
    assert violations(report_of(town.hf)) == {}


@pytest.mark.req("J-33")
def test_after_a_failure_the_same_words_are_another_message_with_another_id(town: Town) -> None:
    messages = [_message(at, "bins") for at in range(4)]
    town.settle(messages)
    town.model.wrong = lambda _: _said(RUDE)
    failed = town.submit(messages[:1])
    town.go_on()
    town.model.wrong = None

    again = town.submit(messages[:1])
    town.go_on()

    assert failed[0].rewrite_request_id != again[0].rewrite_request_id
    requests = town.requests()
    assert [requests[one.rewrite_request_id]["status"] for one in (*failed, *again)] == [
        "failed",
        "completed",
    ]
    assert set(town.outputs()) == {again[0].rewrite_request_id}


@pytest.mark.req("I-15")
@pytest.mark.req("P-14")
@pytest.mark.req("X-04")
def test_swapped_answers_are_discarded(town: Town) -> None:
    messages = [_message(at, ("bins", "music")[at % 2]) for at in range(4)]
    town.settle(messages)
    town.sim.faults.add("cross_wired")
    answers = town.submit(messages)

    town.go_on()

    outputs = town.outputs()
    assert len(outputs) <= 2
    for answer, one in zip(answers, messages, strict=True):
        output = outputs.get(answer.rewrite_request_id)
        assert output is None or output["rewritten_text"] == KIND[one.quarrel]["en"]
    (batch,) = look(town.hf.store, "SELECT state FROM holdfast.provider_batch")
    assert batch["state"] == "quarantined"
