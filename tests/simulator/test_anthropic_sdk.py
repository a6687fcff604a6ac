"""Anthropic's own client, unmodified, against the simulator."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from holdfast_simulator import Finish, ItemError, Pace, Prompt, Said, Simulator
from holdfast_simulator.anthropic_words import read_requests
from holdfast_simulator.blob import PIECE, Blob
from holdfast_simulator.exchange import Refused

if TYPE_CHECKING:
    import anthropic

MODEL = "claude-sonnet-5"


@pytest.fixture(scope="module", autouse=True)
def _sdk() -> None:
    """Import the client when its tests begin: every test process collects this file."""
    global anthropic
    import anthropic


@pytest.fixture
def client(sim: Simulator) -> Iterator[anthropic.Anthropic]:
    with connect(sim) as connected:
        yield connected


def connect(sim: Simulator, **options: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(
        base_url=sim.url("anthropic"), **{"api_key": "any", "max_retries": 0, **options}
    )


def requests(*names: str, **params: Any) -> list[Any]:
    return [
        {
            "custom_id": name,
            "params": {
                "model": MODEL,
                "max_tokens": 100,
                "messages": [{"role": "user", "content": f"text of {name}"}],
                **params,
            },
        }
        for name in names
    ]


def results(client: anthropic.Anthropic, batch_id: str) -> dict[str, Any]:
    return {line.custom_id: line.result for line in client.messages.batches.results(batch_id)}


def text_of(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


# -- a batch


def test_a_batch_is_created_run_read_and_deleted(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    batches = client.messages.batches
    made = batches.create(requests=requests("a", "b", "c"))

    assert made.id.startswith("msgbatch_")
    assert made.processing_status == "in_progress"
    assert made.request_counts.processing == 3
    assert made.expires_at - made.created_at == timedelta(hours=24)
    assert (made.ended_at, made.results_url, made.cancel_initiated_at) == (None, None, None)

    sim.clock.advance(minutes=2)
    ended = batches.retrieve(made.id)
    found = results(client, made.id)

    assert ended.processing_status == "ended"
    assert ended.ended_at is not None
    assert ended.request_counts.to_dict() == {
        "processing": 0,
        "succeeded": 3,
        "errored": 0,
        "canceled": 0,
        "expired": 0,
    }
    assert {name: text_of(result.message) for name, result in found.items()} == {
        name: f"Answer to: text of {name}" for name in "abc"
    }
    assert {result.message.usage.service_tier for result in found.values()} == {"batch"}
    assert len(sim.ledger.charges) == 3

    assert batches.delete(made.id).type == "message_batch_deleted"
    with pytest.raises(anthropic.NotFoundError):
        batches.retrieve(made.id)


def test_a_running_batch_says_when_to_look_again(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    made = client.messages.batches.create(requests=requests("a"))
    running = client.messages.batches.with_raw_response.retrieve(made.id)
    sim.clock.advance(minutes=2)
    ended = client.messages.batches.with_raw_response.retrieve(made.id)

    assert running.headers["retry-after"] == "10"
    assert "retry-after" not in ended.headers
    assert running.headers["request-id"] != ended.headers["request-id"]


def test_results_are_not_there_before_the_end(client: anthropic.Anthropic) -> None:
    made = client.messages.batches.create(requests=requests("a"))

    with pytest.raises(anthropic.AnthropicError, match="No `results_url`"):
        client.messages.batches.results(made.id)
    with pytest.raises(anthropic.BadRequestError, match="still processing"):
        client.messages.batches.delete(made.id)


def test_a_canceled_batch_keeps_what_it_did_and_names_what_it_did_not(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    made = client.messages.batches.create(requests=requests("a", "b", "c", "d"))
    sim.clock.advance(seconds=35)
    canceling = client.messages.batches.cancel(made.id)
    sim.clock.advance(seconds=30)
    ended = client.messages.batches.retrieve(made.id)
    kinds = {name: result.type for name, result in results(client, made.id).items()}

    assert canceling.processing_status == "canceling"
    assert canceling.request_counts.processing == 4
    assert ended.processing_status == "ended"
    assert ended.cancel_initiated_at is not None
    assert kinds == {"a": "succeeded", "b": "succeeded", "c": "canceled", "d": "canceled"}
    assert (ended.request_counts.succeeded, ended.request_counts.canceled) == (2, 2)
    with pytest.raises(anthropic.BadRequestError, match="has ended"):
        client.messages.batches.cancel(made.id)


def test_what_is_not_done_after_a_day_is_expired() -> None:
    slow = Pace(running=48 * 3600)
    with Simulator(pace=slow) as sim, connect(sim) as client:
        made = client.messages.batches.create(requests=requests("a", "b", "c", "d"))
        sim.clock.advance(hours=24)
        ended = client.messages.batches.retrieve(made.id)
        kinds = {name: result.type for name, result in results(client, made.id).items()}

    assert ended.processing_status == "ended"
    assert ended.request_counts.expired == 3
    assert kinds == {"a": "succeeded", "b": "expired", "c": "expired", "d": "expired"}


def test_results_are_archived_after_29_days(sim: Simulator, client: anthropic.Anthropic) -> None:
    made = client.messages.batches.create(requests=requests("a"))
    sim.clock.advance(days=28)
    assert client.messages.batches.retrieve(made.id).results_url is not None

    sim.clock.advance(days=1)
    archived = client.messages.batches.retrieve(made.id)

    assert archived.archived_at is not None
    assert archived.results_url is None


# -- invalid requests, and when the error appears


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (requests("a", "b", "a"), "unique"),
        (requests("a b"), "pattern"),
        (requests("a" * 65), "pattern"),
        ([{"custom_id": "a"}], "params"),
        ([], "1 to 100000"),
    ],
)
def test_a_create_looks_at_names_only(
    sim: Simulator, client: anthropic.Anthropic, wrong: list[Any], says: str
) -> None:
    with pytest.raises(anthropic.BadRequestError, match=says) as refused:
        client.messages.batches.create(requests=wrong)

    assert refused.value.type == "invalid_request_error"
    assert sim.state.batches == {}


def test_bad_parameters_show_only_in_the_results(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    bad = [
        *requests("none", max_tokens=0),
        *requests("strange", response_format={"type": "json"}),
        *requests("silent", messages=[]),
        *requests("good"),
    ]
    made = client.messages.batches.create(requests=bad)
    sim.clock.advance(minutes=2)
    ended = client.messages.batches.retrieve(made.id)
    found = results(client, made.id)

    assert (ended.request_counts.succeeded, ended.request_counts.errored) == (1, 3)
    assert {name for name, result in found.items() if result.type == "errored"} == {
        "none",
        "strange",
        "silent",
    }
    assert found["strange"].error.error.type == "invalid_request_error"
    assert "response_format" in found["strange"].error.error.message
    assert [charge.custom_id for charge in sim.ledger.charges] == ["good"]


def test_bad_parameters_that_were_never_run_are_canceled_like_the_rest(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    bad = requests("early", "late", max_tokens=0)
    made = client.messages.batches.create(requests=bad)
    sim.clock.advance(seconds=40)
    client.messages.batches.cancel(made.id)
    sim.clock.advance(minutes=1)
    kinds = {name: result.type for name, result in results(client, made.id).items()}

    assert kinds == {"early": "errored", "late": "canceled"}


def test_an_empty_purse_looks_like_a_bad_request() -> None:
    def broke(prompt: Prompt) -> Said:
        message = "Your credit balance is too low to access the Anthropic API."
        return Said(error=ItemError(400, "invalid_request_error", message))

    with Simulator(responder=broke) as sim, connect(sim) as client:
        made = client.messages.batches.create(requests=requests("a"))
        sim.clock.advance(minutes=2)
        error = results(client, made.id)["a"].error.error

    assert error.type == "invalid_request_error"
    assert error.message.startswith("Your credit balance is too low")
    assert sim.ledger.charges == []


def test_a_batch_cannot_fail_but_all_of_its_items_can(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.faults.add("token_limit_async")
    made = client.messages.batches.create(requests=requests("a", "b"))
    sim.clock.advance(minutes=2)
    ended = client.messages.batches.retrieve(made.id)
    found = results(client, made.id)

    assert ended.processing_status == "ended"
    assert ended.request_counts.errored == 2
    assert {result.error.error.type for result in found.values()} == {"rate_limit_error"}


@pytest.mark.parametrize(
    ("fault", "kind", "word"),
    [
        ("rate_limited", "RateLimitError", "rate_limit_error"),
        ("quota_exhausted", "RateLimitError", "rate_limit_error"),
        ("slow_down", "RateLimitError", "rate_limit_error"),
        ("key_rotated", "AuthenticationError", "authentication_error"),
        ("forbidden", "PermissionDeniedError", "permission_error"),
        ("conflict", "ConflictError", "conflict_error"),
        ("too_large", "APIStatusError", "request_too_large"),
        ("overloaded", "APIStatusError", "overloaded_error"),
        ("overloaded_529", "APIStatusError", "overloaded_error"),
        ("accept_then_500", "InternalServerError", "api_error"),
    ],
)
def test_refusals_have_the_provider_s_envelope(
    sim: Simulator,
    client: anthropic.Anthropic,
    fault: str,
    kind: str,
    word: str,
) -> None:
    sim.faults.add(fault)
    with pytest.raises(getattr(anthropic, kind)) as refused:
        client.messages.batches.create(requests=requests("a"))

    assert refused.value.type == word
    assert refused.value.request_id is not None
    assert bool(sim.state.batches) == (fault == "accept_then_500")


def test_only_a_detail_distinguishes_a_spend_limit_from_a_rate_limit(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    sim.faults.add("quota_exhausted")
    with pytest.raises(anthropic.RateLimitError) as spent:
        client.messages.batches.create(requests=requests("a"))
    sim.faults.add("rate_limited", seconds=7)
    with pytest.raises(anthropic.RateLimitError) as fast:
        client.messages.batches.create(requests=requests("a"))

    assert spent.value.details is not None
    assert spent.value.details.error_code == "enforced_spend_limit_reached"
    assert "retry-after" not in spent.value.response.headers
    assert fast.value.response.headers["retry-after"] == "7"


# -- listings


def test_a_listing_is_newest_first_and_in_pages(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    made = []
    for number in range(5):
        made.append(client.messages.batches.create(requests=requests(f"item-{number}")).id)
        sim.clock.advance(seconds=1)
    newest_first = made[::-1]
    first = client.messages.batches.list(limit=2)
    before = client.messages.batches.list(limit=2, before_id=newest_first[4])

    assert [batch.id for batch in client.messages.batches.list(limit=2)] == newest_first
    assert [batch.id for batch in first.data] == newest_first[:2]
    assert (first.has_more, first.last_id) == (True, newest_first[1])
    assert [batch.id for batch in before.data] == newest_first[2:4]
    assert len(sim.journal.find(op="list")) == 1 + 1 + 3


def test_nothing_of_ours_is_in_a_listing(sim: Simulator, client: anthropic.Anthropic) -> None:
    client.messages.batches.create(requests=requests("hf1_our-own-name"))
    sim.faults.add("foreign_batches", count=2, items=1)
    listed = client.messages.batches.list()

    assert len(listed.data) == 3
    assert "hf1" not in listed.to_json()


def test_another_key_sees_nothing_of_it(sim: Simulator, client: anthropic.Anthropic) -> None:
    made = client.messages.batches.create(requests=requests("a"))
    with connect(sim, api_key="another") as other:
        assert other.messages.batches.list().data == []
        with pytest.raises(anthropic.NotFoundError):
            other.messages.batches.retrieve(made.id)


# -- the client's own requests


def test_the_client_pays_three_times_unless_its_retries_are_off(sim: Simulator) -> None:
    sim.faults.add("accept_then_reset", times=None)
    with connect(sim, max_retries=2) as eager, pytest.raises(anthropic.APIConnectionError):
        eager.messages.batches.create(requests=requests("a"))

    assert len(sim.state.batches) == 3
    sim.clock.advance(minutes=2)
    assert set(sim.ledger.double_paid()) == {"a"}


def test_the_asynchronous_client_works_too(sim: Simulator) -> None:
    async def story() -> str:
        url = sim.url("anthropic")
        async with anthropic.AsyncAnthropic(base_url=url, api_key="any", max_retries=0) as client:
            made = await client.messages.batches.create(requests=requests("a"))
            sim.clock.advance(minutes=2)
            async for line in await client.messages.batches.results(made.id):
                assert line.result.type == "succeeded"
                return text_of(line.result.message)
        return ""

    assert asyncio.run(story()) == "Answer to: text of a"


@pytest.mark.parametrize("version", ["2023-06-01", "2026-10-21"])
@pytest.mark.parametrize("key", [{"x-api-key": "any"}, {"authorization": "Bearer any"}])
def test_both_ways_to_send_a_key_and_both_versions_are_taken(
    sim: Simulator, version: str, key: dict[str, str]
) -> None:
    headers = {"anthropic-version": version, **key}
    found = httpx2.get(f"{sim.url('anthropic')}/v1/messages/batches", headers=headers)

    assert found.status_code == 200
    assert found.json() == {"data": [], "has_more": False, "first_id": None, "last_id": None}


def test_no_version_and_no_key_are_refused(sim: Simulator) -> None:
    url = f"{sim.url('anthropic')}/v1/messages/batches"
    no_version = httpx2.get(url, headers={"x-api-key": "any"})
    no_key = httpx2.get(url, headers={"anthropic-version": "2023-06-01"})

    assert (no_version.status_code, no_key.status_code) == (400, 401)
    assert no_version.json()["error"]["type"] == "invalid_request_error"
    assert no_key.json()["type"] == "error"


# -- direct calls


def test_a_direct_call_is_answered_and_billed(sim: Simulator, client: anthropic.Anthropic) -> None:
    message = client.messages.create(
        model=MODEL,
        max_tokens=50,
        system="Be brief.",
        messages=[{"role": "user", "content": "Hello"}],
    )
    counted = client.messages.count_tokens(
        model=MODEL, system="Be brief.", messages=[{"role": "user", "content": "Hello"}]
    )

    assert text_of(message) == "Answer to: Hello"
    assert (message.stop_reason, message.usage.service_tier) == ("end_turn", "standard")
    assert counted.input_tokens == message.usage.input_tokens
    (charge,) = sim.ledger.charges
    assert (charge.custom_id, charge.output_tokens) == (None, message.usage.output_tokens)


def test_a_schema_is_answered_with_an_object_of_it(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    schema = {
        "type": "object",
        "properties": {"reply": {"type": "string"}, "rid": {"type": "string"}},
        "required": ["reply", "rid"],
        "additionalProperties": False,
    }
    message = client.messages.create(
        model=MODEL,
        max_tokens=50,
        messages=[{"role": "user", "content": 'Hello. Set "rid" in your answer to "x1".'}],
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )

    assert '"rid": "x1"' in text_of(message)


def test_a_bad_direct_call_is_refused_at_once(sim: Simulator, client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        client.messages.create(
            model=MODEL, max_tokens=0, messages=[{"role": "user", "content": "Hello"}]
        )

    assert sim.ledger.charges == []


@pytest.mark.parametrize(
    ("finish", "stop_reason", "kinds"),
    [
        (Finish.LENGTH, "max_tokens", ["text"]),
        (Finish.REFUSED, "refusal", []),
        (Finish.FAILED, "pause_turn", []),
        (Finish.REASONING_ONLY, "end_turn", ["thinking"]),
        (Finish.SEVERAL, "end_turn", ["text", "text"]),
    ],
)
def test_an_answer_may_be_no_answer(finish: Finish, stop_reason: str, kinds: list[str]) -> None:
    with Simulator(responder=lambda _: Said("Well", finish)) as sim, connect(sim) as client:
        message = client.messages.create(
            model=MODEL, max_tokens=50, messages=[{"role": "user", "content": "Hello"}]
        )

    assert message.stop_reason == stop_reason
    assert [block.type for block in message.content] == kinds


def test_cached_input_is_counted_beside_input_and_thinking_inside_output() -> None:
    said = Said("Well", input_tokens=100, cached_tokens=80, output_tokens=30, reasoning_tokens=20)
    with Simulator(responder=lambda _: said) as sim, connect(sim) as client:
        usage = client.messages.create(
            model=MODEL, max_tokens=50, messages=[{"role": "user", "content": "Hello"}]
        ).usage

    assert (usage.input_tokens, usage.cache_read_input_tokens) == (20, 80)
    assert usage.output_tokens == 30
    assert usage.output_tokens_details is not None
    assert usage.output_tokens_details.thinking_tokens == 20


# -- large bodies


def test_a_create_of_many_pieces_is_read_request_by_request(
    sim: Simulator, client: anthropic.Anthropic
) -> None:
    names = [f"item-{number}" for number in range(2000)]
    # Three bytes a character, so that pieces end inside of characters.
    made = client.messages.batches.create(requests=requests(*names, system="€" * 99))
    sim.clock.advance(minutes=2)

    assert sim.journal.find(op="create")[0].size > 3 * PIECE
    assert set(results(client, made.id)) == set(names)


@pytest.mark.parametrize("body", ['{"requests": [{"a": 1}, {"b"', "{}", "["])
def test_a_body_that_is_none_is_refused(body: str) -> None:
    with pytest.raises(Refused):
        list(read_requests(Blob(body.encode() + b" ")))
