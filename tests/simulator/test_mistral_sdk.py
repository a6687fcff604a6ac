"""Mistral's own client, unmodified, against the simulator."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from holdfast_simulator import Finish, ItemError, Pace, Prompt, Said, Simulator

if TYPE_CHECKING:
    from mistralai.client import Mistral, errors, models
    from mistralai.extra.batch import BatchClient, BatchInput, BatchRequestError

MODEL = "mistral-medium-2604"
CHAT: Any = "/v1/chat/completions"
USER: Any = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module", autouse=True)
def _sdk() -> None:
    """Import the client when its tests begin: every test process collects this file."""
    global Mistral, errors, models, BatchClient, BatchInput, BatchRequestError
    from mistralai.client import Mistral, errors, models
    from mistralai.extra.batch import BatchClient, BatchInput, BatchRequestError


@pytest.fixture
def client(sim: Simulator) -> Iterator[Mistral]:
    with connect(sim) as connected:
        yield connected


def connect(sim: Simulator, key: str = "any") -> Mistral:
    return Mistral(api_key=key, server_url=sim.url("mistral"))


def body(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 100, **more}


def lines(*names: str, **more: Any) -> bytes:
    items = [{"custom_id": name, "body": body(f"text of {name}", **more)} for name in names]
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def upload(client: Mistral, content: bytes, **options: Any) -> str:
    file = models.File(file_name="hf-key-1.jsonl", content=content)
    return client.files.upload(file=file, purpose="batch", **options).id


def create(client: Mistral, content: bytes, **options: Any) -> str:
    return client.batch.jobs.create(
        endpoint=CHAT,
        **{
            "input_files": [upload(client, content)],
            "model": MODEL,
            "metadata": {"hf_key": "k1", "hf_try": "1"},
            **options,
        },
    ).id


def read(client: Mistral, file_id: Any) -> dict[str, Any]:
    found = client.files.download(file_id=str(file_id)).read()
    return {line["custom_id"]: line for line in map(json.loads, found.split(b"\n")[:-1])}


def text_of(line: dict[str, Any]) -> str:
    return str(line["response"]["body"]["choices"][0]["message"]["content"])


# -- files


def test_a_file_is_uploaded_found_listed_and_deleted(sim: Simulator, client: Mistral) -> None:
    file_id = upload(client, lines("a", "b"), expiry=48)
    file = client.files.retrieve(file_id=file_id)
    listed = client.files.list(page_size=10, search="hf-key-1")

    assert str(uuid.UUID(file_id)) == file_id
    assert (file.filename, file.purpose, file.deleted) == ("hf-key-1.jsonl", "batch", False)
    assert (file.num_lines, file.size_bytes) == (2, len(lines("a", "b")))
    assert (file.sample_type, file.source) == ("batch_request", "upload")
    assert [one.id for one in listed.data] == [file_id]
    assert client.files.list(search="another").data == []

    assert client.files.delete(file_id=file_id).deleted is True
    with pytest.raises(errors.SDKError) as missing:
        client.files.retrieve(file_id=file_id)
    assert missing.value.status_code == 404


def test_a_file_is_gone_after_its_expiry(sim: Simulator, client: Mistral) -> None:
    file_id = upload(client, lines("a"), expiry=2)
    sim.clock.advance(hours=2)

    with pytest.raises(errors.SDKError):
        client.files.retrieve(file_id=file_id)


# -- a job


def test_a_job_is_created_run_read_and_deleted(sim: Simulator, client: Mistral) -> None:
    job_id = create(client, lines("a", "b", "c"))
    seen = [client.batch.jobs.get(job_id=job_id).status]
    sim.clock.advance(seconds=30)
    seen.append(client.batch.jobs.get(job_id=job_id).status)
    sim.clock.advance(minutes=2)
    ended = client.batch.jobs.get(job_id=job_id)

    assert [*seen, ended.status] == ["QUEUED", "RUNNING", "SUCCESS"]
    assert (ended.total_requests, ended.succeeded_requests, ended.failed_requests) == (3, 3, 0)
    assert (ended.metadata, ended.model) == ({"hf_key": "k1", "hf_try": "1"}, MODEL)
    assert (ended.error_file, ended.errors, ended.outputs) == (None, [], None)
    assert ended.started_at is not None
    assert ended.completed_at is not None
    assert {name: text_of(line) for name, line in read(client, ended.output_file).items()} == {
        name: f"Answer to: text of {name}" for name in "abc"
    }
    assert len(sim.ledger.charges) == 3

    made = client.files.retrieve(file_id=str(ended.output_file))
    assert (made.sample_type, made.source, made.num_lines) == ("batch_result", "mistral", 3)
    assert client.batch.jobs.delete(job_id=job_id).deleted is True
    with pytest.raises(errors.SDKError):
        client.batch.jobs.get(job_id=job_id)


def test_requests_and_results_may_come_inline(sim: Simulator, client: Mistral) -> None:
    requests: Any = [{"custom_id": "a", "body": body("one")}, {"body": body("two")}]
    job = client.batch.jobs.create(endpoint=CHAT, requests=requests, model=MODEL)
    sim.clock.advance(minutes=2)
    ended = client.batch.jobs.get(job_id=job.id, inline=True)

    assert job.input_files == []
    outputs: Any = ended.outputs
    assert {line["custom_id"]: text_of(line) for line in outputs} == {
        "a": "Answer to: one",
        "1": "Answer to: two",
    }


def test_failed_requests_have_a_file_of_their_own_and_two_shapes() -> None:
    def fail(prompt: Prompt) -> Said:
        match prompt.custom_id:
            case "bad":
                return Said(error=ItemError(422, "invalid_request_error"))
            case "down":
                return Said(error=ItemError(500, "internal_server_error"))
            case _:
                return Said("Well")

    with Simulator(responder=fail) as sim, connect(sim) as client:
        job_id = create(client, lines("good", "bad", "down"))
        sim.clock.advance(minutes=2)
        ended = client.batch.jobs.get(job_id=job_id)
        failed = read(client, ended.error_file)

        assert ended.status == "SUCCESS"
        assert (ended.succeeded_requests, ended.failed_requests) == (1, 2)
        assert set(read(client, ended.output_file)) == {"good"}
        assert client.files.retrieve(file_id=str(ended.error_file)).sample_type == "batch_error"
    assert failed["bad"]["response"]["status_code"] == 422
    assert failed["bad"]["error"] is None
    assert failed["down"]["response"] is None
    assert failed["down"]["error"]["type"] == "internal_server_error"


def test_text_is_returned_unchanged_in_the_results() -> None:
    text = "line\u2028line\u0085Ende \u00fc"
    with Simulator(responder=lambda _: text) as sim, connect(sim) as client:
        job_id = create(client, lines("a", "b"))
        sim.clock.advance(minutes=2)
        output = client.batch.jobs.get(job_id=job_id).output_file
        raw = client.files.download(file_id=str(output)).read()

    assert "line\u2028line\u0085Ende \u00fc".encode() in raw
    assert [text_of(json.loads(line)) for line in raw.split(b"\n")[:-1]] == [text, text]
    # A client that splits it as text gets pieces of lines.
    assert len(raw.decode().splitlines()) == 6


def test_a_canceled_job_keeps_what_it_did_and_is_silent_about_the_rest(
    sim: Simulator, client: Mistral
) -> None:
    job_id = create(client, lines("a", "b", "c", "d"))
    sim.clock.advance(seconds=35)
    with pytest.raises(errors.SDKError, match="cancel it before"):
        client.batch.jobs.delete(job_id=job_id)
    asked = client.batch.jobs.cancel(job_id=job_id)
    sim.clock.advance(seconds=30)
    ended = client.batch.jobs.get(job_id=job_id)

    assert (asked.status, ended.status) == ("CANCELLATION_REQUESTED", "CANCELLED")
    assert (ended.total_requests, ended.completed_requests) == (4, 2)
    assert set(read(client, ended.output_file)) == {"a", "b"}
    assert ended.error_file is None
    assert client.batch.jobs.cancel(job_id=job_id).status == "CANCELLED"


def test_a_job_ends_when_its_own_window_does() -> None:
    with Simulator(pace=Pace(running=4 * 3600)) as sim, connect(sim) as client:
        job_id = create(client, lines("a", "b", "c", "d"), timeout_hours=2)
        sim.clock.advance(hours=2)
        ended = client.batch.jobs.get(job_id=job_id)

        assert ended.status == "TIMEOUT_EXCEEDED"
        assert set(read(client, ended.output_file)) == {"a"}


def test_bad_lines_fail_the_whole_job(sim: Simulator, client: Mistral) -> None:
    wrong = b'{"custom_id": "x", "body": {}}\n'
    job_id = create(client, lines("a") + wrong + wrong + lines("a"))
    sim.clock.advance(minutes=2)
    ended = client.batch.jobs.get(job_id=job_id)

    assert ended.status == "FAILED"
    assert {error.message: error.count for error in ended.errors} == {
        "Invalid request: messages: Field required": 2,
        "The custom_id is already used.": 1,
    }
    assert sim.ledger.charges == []


def test_a_deleted_input_is_a_fence(sim: Simulator, client: Mistral) -> None:
    file_id = upload(client, lines("a"))
    client.files.delete(file_id=file_id)
    with pytest.raises(errors.SDKError) as missing:
        client.batch.jobs.create(endpoint=CHAT, input_files=[file_id], model=MODEL)
    job_id = create(client, lines("a"))
    client.files.delete(file_id=client.files.list().data[0].id)
    sim.clock.advance(minutes=2)

    assert missing.value.status_code == 404
    assert client.batch.jobs.get(job_id=job_id).status == "FAILED"
    assert sim.ledger.charges == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"input_files": []},
        {"timeout_hours": 0},
        {"timeout_hours": 999},
        {"endpoint": "/v1/embeddings"},
    ],
)
def test_a_bad_create_is_refused(sim: Simulator, client: Mistral, wrong: dict[str, Any]) -> None:
    given = {"endpoint": CHAT, "input_files": [upload(client, lines("a"))], "model": MODEL}
    with pytest.raises(errors.SDKError) as refused:
        client.batch.jobs.create(**{**given, **wrong})

    assert refused.value.status_code == 400
    assert sim.state.batches == {}


# -- listings


def test_a_listing_is_newest_first_and_in_pages(sim: Simulator, client: Mistral) -> None:
    made = []
    for _ in range(5):
        made.append(create(client, lines("a")))
        sim.clock.advance(seconds=1)
    pages = [client.batch.jobs.list(page=number, page_size=2) for number in range(4)]
    since = sim.clock.now() - timedelta(seconds=2.5)

    assert [[job.id for job in page.data or []] for page in pages] == [
        made[:2:-1],
        made[2:0:-1],
        made[:1],
        [],
    ]
    assert {page.total for page in pages} == {5}
    assert [job.id for job in client.batch.jobs.list(order_by="created").data or []] == made
    assert len(client.batch.jobs.list(created_after=since).data or []) == 2
    assert len(client.batch.jobs.list(status=["QUEUED"]).data or []) == 4
    assert [job.id for job in client.batch.jobs.list(status=["RUNNING"]).data or []] == made[:1]


def test_the_filter_by_metadata_filters_nothing(sim: Simulator, client: Mistral) -> None:
    create(client, lines("a"), metadata={"hf_key": "k1"})
    create(client, lines("a"), metadata={"hf_key": "k2"})
    listed = client.batch.jobs.list(metadata={"hf_key": "k1"}).data

    assert sim.journal.find(op="list")[0].query["hf_key"] == "k1"
    assert [job.metadata for job in listed or []] == [{"hf_key": "k2"}, {"hf_key": "k1"}]


def test_a_listing_may_leave_metadata_out(sim: Simulator, client: Mistral) -> None:
    create(client, lines("a"))
    sim.faults.add("list_without_metadata")

    assert [job.metadata for job in client.batch.jobs.list().data or []] == [None]


def test_another_key_sees_nothing_of_it(sim: Simulator, client: Mistral) -> None:
    create(client, lines("a"))
    with connect(sim, key="another") as other:
        assert other.batch.jobs.list().data == []
        assert other.files.list().data == []


# -- refusals


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("rate_limited", 429),
        ("quota_exhausted", 402),
        ("key_rotated", 401),
        ("forbidden", 403),
        ("conflict", 409),
        ("too_large", 413),
        ("overloaded", 503),
        ("accept_then_500", 500),
    ],
)
def test_refusals_have_the_provider_s_envelope(
    sim: Simulator, client: Mistral, fault: str, status: int
) -> None:
    sim.faults.add(fault)
    with pytest.raises(errors.SDKError) as refused:
        create(client, lines("a"))
    said = json.loads(refused.value.body)

    assert refused.value.status_code == status
    if status == 401:
        assert said == {"detail": "Unauthorized"}
    else:
        assert said["object"] == "error"
        assert said["raw_status_code"] == status


def test_no_key_is_unauthorized(sim: Simulator) -> None:
    found = httpx2.get(f"{sim.url('mistral')}/v1/batch/jobs")

    assert (found.status_code, found.json()) == (401, {"detail": "Unauthorized"})


# -- direct calls


def test_a_direct_call_is_answered_and_billed(sim: Simulator, client: Mistral) -> None:
    answer = client.chat.complete(model=MODEL, messages=USER, max_tokens=50)

    assert answer.choices[0].message is not None
    assert answer.choices[0].message.content == "Answer to: Hello"
    assert (answer.choices[0].finish_reason, answer.model) == ("stop", MODEL)
    (charge,) = sim.ledger.charges
    assert charge.input_tokens == answer.usage.prompt_tokens
    assert charge.output_tokens == answer.usage.completion_tokens


def test_a_schema_is_answered_with_an_object_of_it(sim: Simulator, client: Mistral) -> None:
    schema = {"type": "object", "properties": {"reply": {"type": "string"}}}
    answer = client.chat.complete(
        model=MODEL,
        messages=USER,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "reply", "schema_definition": schema, "strict": True},
        },
    )

    assert answer.choices[0].message is not None
    assert json.loads(str(answer.choices[0].message.content)) == {"reply": "Answer to: Hello"}


def test_a_bad_direct_call_is_refused_at_once(sim: Simulator, client: Mistral) -> None:
    with pytest.raises(errors.HTTPValidationError) as refused:
        client.chat.complete(model=MODEL, messages=[])

    assert refused.value.data.detail is not None
    assert refused.value.data.detail[0].loc == ["body", "messages"]
    assert sim.ledger.charges == []


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        (Finish.LENGTH, "length"),
        (Finish.FILTERED, "error"),
        (Finish.FAILED, "error"),
        (Finish.REFUSED, "stop"),
        (Finish.REASONING_ONLY, "stop"),
        (Finish.SEVERAL, "stop"),
    ],
)
def test_an_answer_may_be_no_answer(finish: Finish, reason: str) -> None:
    with Simulator(responder=lambda _: Said("Well", finish)) as sim, connect(sim) as client:
        answer = client.chat.complete(model=MODEL, messages=USER)

    assert answer.choices[0].finish_reason == reason
    assert answer.choices[0].message is not None
    assert (answer.choices[0].message.content == "Well") == (finish is Finish.LENGTH)


# -- the provider's own batch client


def test_the_provider_s_own_batch_client_runs_a_whole_job() -> None:
    def answer(prompt: Prompt) -> Said:
        if prompt.text == "bad":
            return Said(error=ItemError(422, "invalid_request_error"))
        return Said(f"Answer to: {prompt.text}")

    at_once = Pace(validating=0, running=0, finalizing=0)

    async def story(sim: Simulator) -> tuple[dict[str, Any], list[BatchRequestError]]:
        async with connect(sim) as client:
            batches: BatchClient[Any, Any] = BatchClient(
                client, endpoint=CHAT, response_body_type=models.ChatCompletionResponse
            )
            given: BatchInput[Any] = BatchInput.from_payload(
                {
                    name: models.ChatCompletionRequest(
                        model=MODEL, messages=[models.UserMessage(content=name)]
                    )
                    for name in ("good", "bad")
                }
            )
            result = await batches.run(
                given, model=MODEL, poll_interval_seconds=0.0, inline_threshold=0
            )
            return result.by_id(), result.errors()

    with Simulator(responder=answer, pace=at_once) as sim:
        responses, failed = asyncio.run(story(sim))
        # It deletes its input and its results, as it should.
        assert sim.state.files == {}

    assert responses["good"].choices[0].message.content == "Answer to: good"
    assert [(error.custom_id, error.status_code) for error in failed] == [("bad", 422)]
