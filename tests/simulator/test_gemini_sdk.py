"""Google's own client, unmodified, against the simulator."""

from __future__ import annotations

import asyncio
import io
import json
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from holdfast_simulator import Finish, Pace, Said, Simulator

if TYPE_CHECKING:
    from google import genai
    from google.genai import errors, types

MODEL = "gemini-3-flash"
CHUNK = 8 * 1024 * 1024


@pytest.fixture(scope="module", autouse=True)
def _sdk() -> None:
    """Import the client when its tests begin: every test process collects this file."""
    global genai, errors, types
    with warnings.catch_warnings():
        # Python warns of its sources when it compiles them, which is the first time only.
        warnings.simplefilter("ignore")
        from google import genai
        from google.genai import errors, types


@pytest.fixture
def client(sim: Simulator) -> Iterator[genai.Client]:
    with connect(sim) as connected:
        yield connected


def connect(sim: Simulator, key: str = "any", version: str | None = None) -> genai.Client:
    options = types.HttpOptions(base_url=sim.url("gemini"), api_version=version)
    return genai.Client(api_key=key, http_options=options)


def request(text: str, **more: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [{"text": text}]}], **more}


def lines(*names: str, **more: Any) -> bytes:
    items = [{"key": name, "request": request(f"text of {name}", **more)} for name in names]
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def upload(client: genai.Client, content: bytes, name: str | None = "hf-key-1") -> str:
    file = client.files.upload(
        file=io.BytesIO(content),
        config=types.UploadFileConfig(
            name=name, display_name="hf-key", mime_type="application/jsonl"
        ),
    )
    assert file.name is not None
    return file.name


def create(client: genai.Client, content: bytes, name: str | None = "hf-key-1") -> str:
    made = client.batches.create(
        model=MODEL, src=upload(client, content, name), config={"display_name": "hf-key"}
    )
    assert made.name is not None
    return made.name


def results(client: genai.Client, batch: str) -> dict[str, Any]:
    dest = client.batches.get(name=batch).dest
    assert dest is not None
    assert dest.file_name is not None
    found = client.files.download(file=dest.file_name)
    return {line["key"]: line for line in map(json.loads, found.split(b"\n")[:-1])}


def operation(sim: Simulator, batch: str, version: str = "v1") -> dict[str, Any]:
    """The batch as it is transferred; the client drops half of it."""
    found = httpx2.get(f"{sim.url('gemini')}/{version}/{batch}", headers={"x-goog-api-key": "any"})
    return dict(found.json())


def text_of(line: dict[str, Any]) -> str:
    return str(line["response"]["candidates"][0]["content"]["parts"][0]["text"])


# -- files


def test_a_file_is_uploaded_under_our_own_name(sim: Simulator, client: genai.Client) -> None:
    name = upload(client, b"{}\n")
    file = client.files.get(name=name)

    assert name == "files/hf-key-1"
    assert (file.display_name, file.size_bytes) == ("hf-key", 3)
    assert (file.state, file.source) == (types.FileState.ACTIVE, types.FileSource.UPLOADED)
    assert file.download_uri is None
    assert [other.name for other in client.files.list()] == [name]

    client.files.delete(name=name)
    assert list(client.files.list()) == []


def test_a_file_that_is_not_there_is_forbidden(client: genai.Client) -> None:
    with pytest.raises(errors.ClientError, match="or it may not exist") as missing:
        client.files.get(name="files/hf-none-1")
    with pytest.raises(errors.ClientError, match="or it may not exist"):
        client.files.delete(name="files/hf-none-1")

    assert (missing.value.code, missing.value.status) == (403, "PERMISSION_DENIED")


def test_a_name_is_given_once(client: genai.Client) -> None:
    upload(client, b"{}\n")
    with pytest.raises(errors.ClientError) as taken:
        upload(client, b"{}\n")

    assert (taken.value.code, taken.value.status) == (409, "ALREADY_EXISTS")


@pytest.mark.parametrize("name", ["-a", "a-", "A", "a" * 41, "a_b"])
def test_a_bad_name_is_refused(client: genai.Client, name: str) -> None:
    with pytest.raises(errors.ClientError) as refused:
        upload(client, b"{}\n", name)

    assert refused.value.code == 400


def test_a_large_file_comes_in_several_pieces(sim: Simulator, client: genai.Client) -> None:
    content = b"x" * (CHUNK + 100)
    name = upload(client, content)

    assert len(sim.journal.find(op="upload")) == 2
    assert client.files.get(name=name).size_bytes == len(content)
    (file,) = sim.state.files.values()
    assert file.blob.read() == content


def test_an_interrupted_upload_continues(sim: Simulator) -> None:
    start = {
        "x-goog-api-key": "any",
        "x-goog-upload-protocol": "resumable",
        "x-goog-upload-command": "start",
        "x-goog-upload-header-content-length": "6",
    }
    body = {"file": {"name": "files/hf-key-1", "displayName": "hf-key"}}
    with httpx2.Client() as http:
        begun = http.post(f"{sim.url('gemini')}/upload/v1/files", headers=start, json=body)
        url = begun.headers["x-goog-upload-url"]

        def send(command: str, offset: int, content: bytes) -> httpx2.Response:
            headers = {"x-goog-upload-command": command, "x-goog-upload-offset": str(offset)}
            return http.post(url, headers=headers, content=content)

        first = send("upload", 0, b"abc")
        wrong = send("upload, finalize", 0, b"def")
        asked = send("query", 0, b"")
        final = send("upload, finalize", 3, b"def")
        again = send("upload, finalize", 3, b"def")

    assert first.headers["x-goog-upload-status"] == "active"
    assert wrong.status_code == 400
    assert asked.headers["x-goog-upload-size-received"] == "3"
    assert final.headers["x-goog-upload-status"] == "final"
    assert final.json()["file"]["sizeBytes"] == "6"
    # The address was as good as a key, and expires once the file is complete.
    assert again.json()["error"]["details"][0]["reason"] == "API_KEY_INVALID"


def test_an_interrupted_upload_leaves_no_file(sim: Simulator, client: genai.Client) -> None:
    sim.faults.add("upload_interrupted")
    with pytest.raises(Exception, match=r"(?i)reset|disconnected|closed"):
        upload(client, b"x" * 300_000)

    assert sim.state.files == {}
    assert upload(client, b"{}\n") == "files/hf-key-1"


def test_an_uploaded_file_cannot_be_read_back_and_is_gone_after_two_days(
    sim: Simulator, client: genai.Client
) -> None:
    name = upload(client, b"{}\n")
    with pytest.raises(errors.ClientError, match="Only generated files"):
        client.files.download(file=name)

    sim.clock.advance(hours=48)
    with pytest.raises(errors.ClientError, match="may not exist"):
        client.files.get(name=name)


def test_files_are_listed_in_pages(sim: Simulator, client: genai.Client) -> None:
    names = [upload(client, b"{}\n", f"file-{number}") for number in range(5)]

    assert [file.name for file in client.files.list(config={"page_size": 2})] == names[::-1]
    assert len(sim.journal.find(op="list_files")) == 3


# -- a batch


@pytest.mark.parametrize("version", [None, "v1", "v1beta"])
def test_a_batch_is_created_run_read_and_deleted(sim: Simulator, version: str | None) -> None:
    with connect(sim, version=version) as client:
        name = create(client, lines("a", "b", "c"))
        states = [client.batches.get(name=name).state]
        sim.clock.advance(seconds=30)
        states.append(client.batches.get(name=name).state)
        sim.clock.advance(minutes=2)
        ended = client.batches.get(name=name)
        found = results(client, name)
        client.batches.delete(name=name)

        assert list(client.batches.list()) == []

    assert states == [types.JobState.JOB_STATE_PENDING, types.JobState.JOB_STATE_RUNNING]
    assert ended.state == types.JobState.JOB_STATE_SUCCEEDED
    assert ended.done
    assert (ended.display_name, ended.model) == ("hf-key", f"models/{MODEL}")
    assert {key: text_of(line) for key, line in found.items()} == {
        key: f"Answer to: text of {key}" for key in "abc"
    }
    assert len(sim.ledger.charges) == 3


def test_the_wire_has_more_than_the_client_shows(sim: Simulator, client: genai.Client) -> None:
    name = create(client, lines("a", "b") + b'{"key":"bad","request":{}}\n')
    sim.clock.advance(minutes=2)
    shown = client.batches.get(name=name)
    wire = operation(sim, name)

    assert shown.completion_stats is None
    assert wire["done"] is True
    assert wire["metadata"]["batchStats"] == {
        "requestCount": "3",
        "successfulRequestCount": "2",
        "failedRequestCount": "1",
    }
    assert wire["metadata"]["inputConfig"] == {"fileName": "files/hf-key-1"}
    assert wire["response"]["responsesFile"] == wire["metadata"]["output"]["responsesFile"]


def test_a_result_file_is_a_file_that_can_be_downloaded(
    sim: Simulator, client: genai.Client
) -> None:
    name = create(client, lines("a"))
    sim.clock.advance(minutes=2)
    dest = client.batches.get(name=name).dest
    assert dest is not None
    file = client.files.get(name=dest.file_name or "")

    assert file.source == types.FileSource.GENERATED
    assert b'"key":"a"' in client.files.download(file=file)
    client.files.delete(name=file.name or "")
    with pytest.raises(errors.ClientError, match="may not exist"):
        results(client, name)


def test_a_batch_succeeds_though_every_row_failed(sim: Simulator, client: genai.Client) -> None:
    # The client's flat config differs from the format of the API.
    name = create(client, lines("a", "b", config={"temperature": 0}))
    sim.clock.advance(minutes=2)
    found = results(client, name)

    assert client.batches.get(name=name).state == types.JobState.JOB_STATE_SUCCEEDED
    assert {line["error"]["code"] for line in found.values()} == {3}
    assert 'Unknown name "config"' in found["a"]["error"]["message"]
    assert sim.ledger.charges == []


def test_a_json_schema_is_ignored_in_a_batch_and_a_schema_is_not(
    sim: Simulator, client: genai.Client
) -> None:
    schema = {"type": "OBJECT", "properties": {"reply": {"type": "STRING"}}}
    config = {"responseMimeType": "application/json"}
    name = create(
        client,
        lines("good", generationConfig={**config, "responseSchema": schema})
        + lines("ignored", generation_config={**config, "response_json_schema": schema}),
    )
    sim.clock.advance(minutes=2)
    found = results(client, name)

    assert json.loads(text_of(found["good"])) == {"reply": "Answer to: text of good"}
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(text_of(found["ignored"]))


def test_requests_may_come_with_the_create(sim: Simulator, client: genai.Client) -> None:
    inlined = [
        types.InlinedRequest(
            contents="text of a",
            metadata={"key": "a", "more": "kept"},
            config=types.GenerateContentConfig(
                system_instruction="Be brief.", temperature=0.5, max_output_tokens=20
            ),
        ),
        types.InlinedRequest(contents="text of b", metadata={"key": "b"}),
        types.InlinedRequest(contents="text of c"),
    ]
    made = client.batches.create(model=MODEL, src=inlined, config={"display_name": "hf-key"})
    sim.clock.advance(minutes=2)
    dest = client.batches.get(name=made.name or "").dest

    assert dest is not None
    assert dest.inlined_responses is not None
    found = [
        (one.metadata, None if one.response is None else one.response.text)
        for one in dest.inlined_responses
    ]
    assert found == [
        ({"key": "a", "more": "kept"}, "Answer to: text of a"),
        ({"key": "b"}, "Answer to: text of b"),
        (None, "Answer to: text of c"),
    ]


def test_a_canceled_batch_ends_canceled(sim: Simulator, client: genai.Client) -> None:
    name = create(client, lines("a", "b", "c", "d"))
    with pytest.raises(errors.ClientError, match="cancel it before"):
        client.batches.delete(name=name)
    sim.clock.advance(seconds=20)
    client.batches.cancel(name=name)
    running = client.batches.get(name=name)
    sim.clock.advance(seconds=30)
    ended = client.batches.get(name=name)
    client.batches.cancel(name=name)

    assert running.state == types.JobState.JOB_STATE_RUNNING
    assert ended.state == types.JobState.JOB_STATE_CANCELLED
    assert operation(sim, name)["error"]["code"] == 1


def test_an_expired_batch_has_nothing_to_read() -> None:
    slow = Pace(running=96 * 3600)
    with Simulator(pace=slow) as sim, connect(sim) as client:
        name = create(client, lines("a", "b", "c", "d"))
        sim.clock.advance(minutes=1)
        running = client.batches.get(name=name)
        sim.clock.advance(hours=48)
        # By then its input has been deleted, too.
        ended = client.batches.get(name=name)

        assert running.state == types.JobState.JOB_STATE_RUNNING

        assert ended.state == types.JobState.JOB_STATE_EXPIRED
        assert ended.dest is None
        assert "response" not in operation(sim, name)
        assert list(client.files.list()) == []


def test_a_deleted_input_is_a_fence(sim: Simulator, client: genai.Client) -> None:
    file = upload(client, lines("a"))
    client.files.delete(name=file)
    with pytest.raises(errors.ClientError, match="may not exist"):
        client.batches.create(model=MODEL, src=file)
    sim.faults.add("file_deleted_before_validation")
    name = create(client, lines("a"))
    sim.clock.advance(minutes=2)

    assert client.batches.get(name=name).state == types.JobState.JOB_STATE_FAILED
    assert operation(sim, name)["error"]["code"] == 5
    assert sim.ledger.charges == []


def test_a_create_that_comes_late_finds_no_input(sim: Simulator, client: genai.Client) -> None:
    file = upload(client, lines("a"))
    sim.faults.add("zombie_create", minutes=20)
    with pytest.raises(Exception, match=r"(?i)reset|disconnected|closed"):
        client.batches.create(model=MODEL, src=file)
    client.files.delete(name=file)
    sim.clock.advance(minutes=21)

    assert list(client.batches.list()) == []
    assert sim.ledger.charges == []


def test_a_batch_that_does_not_exist_is_not_found(client: genai.Client) -> None:
    with pytest.raises(errors.ClientError) as missing:
        client.batches.get(name="batches/none")

    assert (missing.value.code, missing.value.status) == (404, "NOT_FOUND")


# -- listings


def test_a_listing_is_newest_first_and_in_pages(sim: Simulator, client: genai.Client) -> None:
    names = []
    for number in range(5):
        names.append(create(client, lines("a"), f"file-{number}"))
        sim.clock.advance(seconds=1)

    listed = list(client.batches.list(config={"page_size": 2}))

    assert [batch.name for batch in listed] == names[::-1]
    assert {batch.display_name for batch in listed} == {"hf-key"}
    assert len(sim.journal.find(op="list")) == 3


def test_a_listing_may_leave_the_name_out_or_cut_it(sim: Simulator, client: genai.Client) -> None:
    create(client, lines("a"))
    sim.faults.add("list_without_metadata")
    assert [batch.display_name for batch in client.batches.list()] == [None]

    sim.faults.add("metadata_altered", length=2)
    assert [batch.display_name for batch in client.batches.list()] == ["hf"]

    sim.faults.add("foreign_batches", count=2)
    assert len(list(client.batches.list())) == 3


def test_another_key_sees_nothing_of_it(sim: Simulator, client: genai.Client) -> None:
    create(client, lines("a"))
    with connect(sim, key="another") as other:
        assert list(other.batches.list()) == []
        assert list(other.files.list()) == []


# -- refusals


@pytest.mark.parametrize(
    ("fault", "code", "status"),
    [
        ("rate_limited", 429, "RESOURCE_EXHAUSTED"),
        ("quota_exhausted", 429, "RESOURCE_EXHAUSTED"),
        ("token_limit_at_create", 429, "RESOURCE_EXHAUSTED"),
        ("key_rotated", 400, "INVALID_ARGUMENT"),
        ("forbidden", 403, "PERMISSION_DENIED"),
        ("conflict", 409, "ABORTED"),
        ("overloaded", 503, "UNAVAILABLE"),
        ("accept_then_500", 500, "INTERNAL"),
    ],
)
def test_refusals_have_the_provider_s_envelope(
    sim: Simulator, client: genai.Client, fault: str, code: int, status: str
) -> None:
    file = upload(client, lines("a"))
    sim.faults.add(fault)
    with pytest.raises(errors.APIError) as refused:
        client.batches.create(model=MODEL, src=file)

    assert (refused.value.code, refused.value.status) == (code, status)


def details(client: genai.Client) -> dict[str, dict[str, Any]]:
    with pytest.raises(errors.APIError) as refused:
        client.models.generate_content(model=MODEL, contents="Hello")
    found = refused.value.details["error"]["details"]
    return {detail["@type"].rpartition(".")[2]: detail for detail in found}


def test_the_details_distinguish_a_rate_a_quota_and_a_bad_key(
    sim: Simulator, client: genai.Client
) -> None:
    sim.faults.add("rate_limited", op="call", seconds=46)
    rate = details(client)
    sim.faults.add("quota_exhausted", op="call")
    quota = details(client)
    sim.faults.add("key_rotated", op="call")
    key = details(client)

    assert rate["RetryInfo"]["retryDelay"] == "46s"
    assert "PerMinute" in rate["QuotaFailure"]["violations"][0]["quotaId"]
    assert "PerDay" in quota["QuotaFailure"]["violations"][0]["quotaId"]
    assert "RetryInfo" not in quota
    assert key["ErrorInfo"]["reason"] == "API_KEY_INVALID"


def test_the_client_creates_one_batch_when_the_answer_is_lost(
    sim: Simulator, client: genai.Client
) -> None:
    file = upload(client, lines("a"))
    sim.faults.add("accept_then_reset", times=None)
    with pytest.raises(Exception, match=r"(?i)reset|disconnected|closed"):
        client.batches.create(model=MODEL, src=file)

    assert len(sim.state.batches) == 1


# -- direct calls


def test_a_direct_call_is_answered_and_billed(sim: Simulator, client: genai.Client) -> None:
    config = types.GenerateContentConfig(system_instruction="Be brief.", max_output_tokens=50)
    answer = client.models.generate_content(model=MODEL, contents="Hello", config=config)
    counted = client.models.count_tokens(model=MODEL, contents="Hello")

    assert answer.text == "Answer to: Hello"
    assert answer.model_version == MODEL
    assert answer.candidates is not None
    assert answer.candidates[0].finish_reason == types.FinishReason.STOP
    assert counted.total_tokens == len("Hello") // 4 + 8
    (charge,) = sim.ledger.charges
    assert answer.usage_metadata is not None
    assert charge.input_tokens == answer.usage_metadata.prompt_token_count


def test_thoughts_are_counted_beside_the_answer_and_cached_input_inside_input() -> None:
    said = Said("Well", input_tokens=100, cached_tokens=80, output_tokens=30, reasoning_tokens=20)
    with Simulator(responder=lambda _: said) as sim, connect(sim) as client:
        usage = client.models.generate_content(model=MODEL, contents="Hello").usage_metadata

    assert usage is not None
    assert (usage.prompt_token_count, usage.cached_content_token_count) == (100, 80)
    assert (usage.candidates_token_count, usage.thoughts_token_count) == (10, 20)
    assert usage.total_token_count == 130


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        (Finish.LENGTH, "MAX_TOKENS"),
        (Finish.REFUSED, "SAFETY"),
        (Finish.FAILED, "MALFORMED_RESPONSE"),
        (Finish.REASONING_ONLY, "STOP"),
    ],
)
def test_an_answer_may_be_no_answer(finish: Finish, reason: str) -> None:
    with Simulator(responder=lambda _: Said("Well", finish)) as sim, connect(sim) as client:
        answer = client.models.generate_content(model=MODEL, contents="Hello")

    assert answer.candidates is not None
    assert answer.candidates[0].finish_reason == types.FinishReason[reason]
    assert answer.text == ("Well" if finish is Finish.LENGTH else None)


def test_a_blocked_prompt_has_no_candidate() -> None:
    said = Said("", Finish.FILTERED)
    with Simulator(responder=lambda _: said) as sim, connect(sim) as client:
        answer = client.models.generate_content(model=MODEL, contents="Hello")

    assert not answer.candidates
    assert answer.prompt_feedback is not None
    assert answer.prompt_feedback.block_reason == types.BlockedReason.PROHIBITED_CONTENT


def test_a_bad_direct_call_is_refused_at_once(sim: Simulator) -> None:
    found = httpx2.post(
        f"{sim.url('gemini')}/v1/models/{MODEL}:generateContent",
        headers={"x-goog-api-key": "any"},
        json=request("Hello", generationConfig={"max_tokens": 5}),
    )

    assert found.status_code == 400
    assert 'Unknown name "max_tokens"' in found.json()["error"]["message"]


def test_the_asynchronous_client_works_too(sim: Simulator, client: genai.Client) -> None:
    async def story() -> str | None:
        file = await client.aio.files.upload(
            file=io.BytesIO(lines("a")), config={"mime_type": "application/jsonl"}
        )
        made = await client.aio.batches.create(model=MODEL, src=file.name or "")
        sim.clock.advance(minutes=2)
        ended = await client.aio.batches.get(name=made.name or "")
        await client.aio.aclose()
        return None if ended.dest is None else ended.dest.file_name

    written = asyncio.run(story())

    assert written is not None
    assert b'"key":"a"' in client.files.download(file=written)
