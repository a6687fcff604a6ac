"""The official OpenAI client, unmodified, against the simulator."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from holdfast_simulator import Simulator
from tests.simulator.plain import SCHEMA, chat_lines, read_lines

if TYPE_CHECKING:
    import openai
    from openai import AzureOpenAI, OpenAI

RESPONSES = "/v1/responses"
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module", autouse=True)
def _sdk() -> None:
    """Import the client when its tests begin: every test process collects this file."""
    global openai, AzureOpenAI, OpenAI
    import openai
    from openai import AzureOpenAI, OpenAI


@pytest.fixture
def client(sim: Simulator) -> Iterator[OpenAI]:
    with OpenAI(base_url=sim.url("openai"), api_key="sk-test", max_retries=0) as found:
        yield found


def response_line(custom_id: str, text: str, echo: str) -> bytes:
    ask = f'Set "rid" in your answer to "{echo}".'
    parts = [{"type": "input_text", "text": text}, {"type": "input_text", "text": ask}]
    form = {"type": "json_schema", "name": "reply", "strict": True, "schema": SCHEMA}
    body = {
        "model": "gpt-5.2",
        "store": False,
        "instructions": "Be kind.",
        "input": [{"role": "user", "content": parts}],
        "text": {"format": form},
    }
    line = {"custom_id": custom_id, "method": "POST", "url": RESPONSES, "body": body}
    return json.dumps(line).encode() + b"\n"


def test_a_batch_of_responses_goes_its_whole_way(sim: Simulator, client: OpenAI) -> None:
    content = response_line("a", "First", "r1") + response_line("b", "Second", "r2")
    expiry = {"anchor": "created_at", "seconds": 3600}
    file = client.files.create(
        file=("hf-key-1.jsonl", io.BytesIO(content)), purpose="batch", expires_after=expiry
    )
    batch = client.batches.create(
        input_file_id=file.id,
        endpoint=RESPONSES,
        completion_window="24h",
        metadata={"hf_key": "key"},
    )

    assert (file.bytes, file.filename, file.purpose) == (len(content), "hf-key-1.jsonl", "batch")
    assert file.expires_at == file.created_at + 3600
    assert (batch.status, batch.request_counts.total) == ("validating", 0)
    assert batch.metadata == {"hf_key": "key"}

    sim.clock.advance(seconds=10)
    assert client.batches.retrieve(batch.id).status == "in_progress"
    sim.clock.advance(seconds=60)
    done = client.batches.retrieve(batch.id)

    assert done.status == "completed"
    assert (done.request_counts.total, done.request_counts.completed) == (2, 2)
    assert done.error_file_id is None
    assert done.model == "gpt-5.2"
    lines = list(read_lines(client.files.content(done.output_file_id).content))
    texts = {
        line["custom_id"]: json.loads(line["response"]["body"]["output"][0]["content"][0]["text"])
        for line in lines
    }
    assert texts["a"]["rid"] == "r1"
    assert texts["b"]["rid"] == "r2"
    assert "First" in texts["a"]["rewritten"]
    assert sim.ledger.double_paid() == {}
    billed = sim.ledger.total()
    assert (done.usage.input_tokens, done.usage.output_tokens) == billed


def test_a_batch_of_chat_completions_goes_its_whole_way(sim: Simulator, client: OpenAI) -> None:
    file = client.files.create(file=io.BytesIO(chat_lines(3)), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    sim.clock.advance(minutes=5)
    done = client.batches.retrieve(batch.id)

    lines = list(read_lines(client.files.content(done.output_file_id).content))

    assert [line["custom_id"] for line in lines] == ["item-1", "item-2", "item-3"]
    choice = lines[0]["response"]["body"]["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == "Answer to: Hello 1"


def test_results_can_be_streamed(sim: Simulator, client: OpenAI) -> None:
    file = client.files.create(file=io.BytesIO(chat_lines(2)), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    sim.clock.advance(minutes=5)
    output = client.batches.retrieve(batch.id).output_file_id

    with client.files.with_streaming_response.content(output) as stream:
        content = b"".join(stream.iter_bytes(1024))

    assert len(list(read_lines(content))) == 2


def test_files_are_listed_looked_at_and_deleted(client: OpenAI) -> None:
    ids = [client.files.create(file=(f"{n}.jsonl", b"{}\n"), purpose="batch").id for n in range(3)]

    assert [file.id for file in client.files.list(purpose="batch", order="desc")] == ids[::-1]
    assert [file.id for file in client.files.list(limit=1, order="asc")] == ids
    assert client.files.retrieve(ids[0]).filename == "0.jsonl"
    assert client.files.content(ids[0]).content == b"{}\n"
    assert client.files.delete(ids[0]).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(ids[0])


def test_all_batches_are_listed_newest_first_over_pages(sim: Simulator, client: OpenAI) -> None:
    file = client.files.create(file=io.BytesIO(chat_lines(1)), purpose="batch")
    made = []
    for _ in range(5):
        batch = client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
        made.append(batch.id)
        sim.clock.advance(seconds=1)

    listed = [batch.id for batch in client.batches.list(limit=2)]

    assert listed == made[::-1]


def test_a_canceled_batch_keeps_what_was_done(sim: Simulator, client: OpenAI) -> None:
    file = client.files.create(file=io.BytesIO(chat_lines(4)), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    sim.clock.advance(seconds=5 + 30)

    assert client.batches.cancel(batch.id).status == "cancelling"
    sim.clock.advance(seconds=5)
    done = client.batches.retrieve(batch.id)

    assert done.status == "cancelled"
    finished = list(read_lines(client.files.content(done.output_file_id).content))
    left = list(read_lines(client.files.content(done.error_file_id).content))
    assert [line["custom_id"] for line in finished] == ["item-1", "item-2"]
    assert [line["error"]["code"] for line in left] == ["batch_cancelled", "batch_cancelled"]
    assert len(sim.ledger.charges) == 2
    with pytest.raises(openai.ConflictError):
        client.batches.cancel(batch.id)


def test_a_response_comes_at_once(sim: Simulator, client: OpenAI) -> None:
    response = client.responses.create(
        model="gpt-5.2", instructions="Be kind.", input="Hello", store=False
    )

    assert response.status == "completed"
    assert response.output_text == "Answer to: Hello"
    assert response.usage.total_tokens == sum(sim.ledger.total())
    assert sim.ledger.charges[0].batch_id is None


def test_a_chat_completion_comes_at_once(client: OpenAI) -> None:
    completion = client.chat.completions.create(
        model="gpt-5.2", messages=[{"role": "user", "content": "Hello"}]
    )

    assert completion.choices[0].message.content == "Answer to: Hello"
    assert completion.choices[0].finish_reason == "stop"


def test_models_are_listed(client: OpenAI) -> None:
    assert "gpt-5.2" in [model.id for model in client.models.list()]


def test_refusals_become_the_clients_own_errors(sim: Simulator, client: OpenAI) -> None:
    sim.faults.add("rate_limited", op="call")
    sim.faults.add("key_rotated", op="call", nth=1)
    hello = [{"role": "user", "content": "Hello"}]

    with pytest.raises(openai.RateLimitError) as limited:
        client.chat.completions.create(model="gpt-5.2", messages=hello)
    with pytest.raises(openai.AuthenticationError):
        client.chat.completions.create(model="gpt-5.2", messages=hello)
    assert limited.value.response.headers["retry-after"] == "7"
    assert limited.value.code == "rate_limit_exceeded"
    assert sim.ledger.charges == []


def test_a_client_that_retries_by_itself_pays_three_times(sim: Simulator) -> None:
    with OpenAI(base_url=sim.url("openai"), api_key="sk-test") as eager:
        file = eager.files.create(file=io.BytesIO(chat_lines(2)), purpose="batch")
        sim.faults.add("accept_then_reset", times=3)

        with pytest.raises(openai.APIConnectionError):
            eager.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")

    sim.clock.advance(minutes=5)
    assert {unit: len(paid) for unit, paid in sim.ledger.double_paid().items()} == {
        "item-1": 3,
        "item-2": 3,
    }


@pytest.fixture
def azure(sim: Simulator) -> Iterator[AzureOpenAI]:
    with AzureOpenAI(
        azure_endpoint=sim.url("azure"),
        api_key="az-key",
        api_version="2026-05-01",
        max_retries=0,
    ) as found:
        yield found


def test_azure_gives_an_empty_error_file_and_no_window(sim: Simulator, azure: AzureOpenAI) -> None:
    lines = chat_lines(2).replace(b"/v1/chat", b"/chat")
    file = azure.files.create(file=io.BytesIO(lines), purpose="batch")
    batch = azure.batches.create(
        input_file_id=file.id, endpoint="/chat/completions", completion_window="24h"
    )
    sim.clock.advance(minutes=5)
    done = azure.batches.retrieve(batch.id)

    assert (batch.output_file_id, batch.expires_at) == ("", None)
    assert done.status == "completed"
    assert len(list(read_lines(azure.files.content(done.output_file_id).content))) == 2
    assert azure.files.content(done.error_file_id).content == b""


def test_azure_answers_directly_by_deployment_and_under_v1(
    sim: Simulator, azure: AzureOpenAI
) -> None:
    hello = [{"role": "user", "content": "Hello"}]
    classic = azure.chat.completions.create(model="my-deployment", messages=hello)
    with OpenAI(base_url=sim.url("azure") + "/openai/v1", api_key="az-key") as plain:
        modern = plain.responses.create(model="my-deployment", input="Hello")

    assert classic.choices[0].message.content == "Answer to: Hello"
    assert modern.output_text == "Answer to: Hello"


@pytest.mark.parametrize(("name", "value"), [("stream", True), ("n", 2)])
def test_what_the_simulator_does_not_do_is_refused_and_not_billed(
    sim: Simulator, client: OpenAI, name: str, value: object
) -> None:
    with pytest.raises(openai.BadRequestError, match="The simulator") as refused:
        client.chat.completions.create(  # type: ignore[call-overload]
            model="gpt-5.2", messages=[{"role": "user", "content": "Hello"}], **{name: value}
        )

    assert refused.value.param == name
    assert sim.ledger.charges == []
