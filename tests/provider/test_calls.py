"""The calls about files and batches, in each provider's format."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast_llm.provider.adapter import ProviderResponse
from holdfast_llm.provider.adapters import ADAPTERS
from holdfast_llm.provider.azure import Azure
from holdfast_llm.provider.openai import CHAT, RESPONSES
from holdfast_llm.provider.reply import (
    Failure,
    FailureKind,
    ProviderRefused,
    ProviderUnsure,
    Reply,
)
from tests.provider.asking import KEY, NAME, FakeClient, content_of, refused, route, unsure
from tests.provider.test_parse import CHAT_BODY, GENERATED, MESSAGE, RESPONSES_BODY
from tests.provider.test_provider_batch import ANTHROPIC, GEMINI, MISTRAL, OPENAI

KINDS = sorted(ADAPTERS)
LINES = (b'{"a":1}\n', b'{"b":2}\n', b'{"c":3}\n')
SINCE = datetime(2025, 1, 10, tzinfo=UTC)


def shown(kind: str, **changes: Any) -> dict[str, Any]:
    """A batch of that provider."""
    if kind == "gemini_generate":
        return {**GEMINI, **changes}
    documents = {"anthropic_messages": ANTHROPIC, "mistral_chat": MISTRAL}
    return {**documents.get(kind, OPENAI), **changes}


# -- upload


@pytest.mark.parametrize("kind", ["openai_responses", "openai_chat", "azure_chat", "mistral_chat"])
def test_the_input_is_streamed_as_a_form_of_known_length(kind: str) -> None:
    client = FakeClient([{"id": "file-1", "bytes": 24}])

    assert ADAPTERS[kind].upload(client, NAME, content_of(*LINES)) == "file-1"
    asked = client.only
    assert (asked.method, asked.path.removeprefix("v1/")) == ("POST", "files")
    assert asked.content is not None
    assert len(asked.content) == int(asked.headers["content-length"])
    boundary = asked.headers["content-type"].partition("boundary=")[2]
    fields = dict(
        part.split(b"\r\n\r\n", 1)
        for part in asked.content.removesuffix(f"--{boundary}--\r\n".encode()).split(
            f"--{boundary}\r\n".encode()
        )[1:]
    )
    said = {head.partition(b"; ")[2].split(b"\r\n")[0]: value for head, value in fields.items()}
    assert said[b'name="purpose"'] == b"batch\r\n"
    file = said[f'name="file"; filename="hf-{KEY}-2.jsonl"'.encode()]
    assert file == b"".join(LINES) + b"\r\n"
    kept = {"openai": b"604800\r\n", "azure": b"1209600\r\n"}.get(kind.partition("_")[0])
    assert said.get(b'name="expires_after[seconds]"') == kept


@pytest.mark.parametrize("kind", ["openai_chat", "mistral_chat"])
@pytest.mark.parametrize("answer", [{"id": "file-1", "bytes": 23}, {}, None, {"id": "../x"}])
def test_an_upload_that_is_not_what_was_sent_is_not_believed(kind: str, answer: Any) -> None:
    with pytest.raises(ProviderUnsure):
        ADAPTERS[kind].upload(FakeClient([answer]), NAME, content_of(*LINES))


BEGUN = ProviderResponse({}, {"x-goog-upload-url": "https://evil.example.com/up/x?upload_id=7&p=1"})


def test_an_upload_to_gemini_goes_in_two_steps_under_our_name_and_to_no_other_host() -> None:
    client = FakeClient([BEGUN, {"file": {"name": f"files/hf-{KEY}-2", "sizeBytes": "24"}}])

    file_id = ADAPTERS["gemini_generate"].upload(client, NAME, content_of(*LINES))
    begin, send = client.asked
    assert file_id == f"files/hf-{KEY}-2"
    assert begin.path == "upload/v1beta/files"
    assert begin.json["file"]["name"] == f"files/hf-{KEY}-2"
    assert begin.headers["x-goog-upload-command"] == "start"
    assert begin.headers["x-goog-upload-header-content-length"] == "24"
    assert send.path == "/up/x?upload_id=7&p=1"
    assert send.headers["x-goog-upload-command"] == "upload, finalize"
    assert (send.headers["content-length"], send.content) == ("24", b"".join(LINES))


def test_a_name_that_is_taken_at_gemini_is_our_own_upload_from_before() -> None:
    taken = unsure(409, "already_exists")
    there = {"name": f"files/hf-{KEY}-2", "sizeBytes": "24", "state": "ACTIVE"}
    client = FakeClient([taken, there])

    assert ADAPTERS["gemini_generate"].upload(client, NAME, content_of(*LINES)) == there["name"]


def test_a_file_of_our_name_that_is_not_whole_is_deleted() -> None:
    there = {"name": f"files/hf-{KEY}-2", "sizeBytes": "7"}
    client = FakeClient([unsure(409, "already_exists"), there, {}])

    with pytest.raises(ProviderUnsure, match="size_differs"):
        ADAPTERS["gemini_generate"].upload(client, NAME, content_of(*LINES))
    assert client.asked[-1].method == "DELETE"


# -- create


@pytest.mark.parametrize("kind", ["openai_responses", "openai_chat", "azure_chat"])
def test_a_batch_is_made_with_our_key_on_it(kind: str) -> None:
    client = FakeClient([shown(kind)])

    seen = ADAPTERS[kind].create(client, route(kind), NAME, "file-1", content_of(*LINES))
    made = client.only.json
    assert seen.provider_batch_id == "batch_1"
    assert made["metadata"] == {"hf_key": KEY, "hf_try": "2", "hf_env": "prod"}
    assert (made["input_file_id"], made["completion_window"]) == ("file-1", "24h")
    assert made["endpoint"] == f"/v1/{'responses' if 'responses' in kind else 'chat/completions'}"


def test_a_batch_at_gemini_carries_our_key_in_its_display_name() -> None:
    client = FakeClient([shown("gemini_generate")])
    to = route("gemini_generate", "gemini-x")

    ADAPTERS["gemini_generate"].create(client, to, NAME, "files/f", content_of(*LINES))
    assert client.only.path == "v1beta/models/gemini-x:batchGenerateContent"
    assert client.only.json == {
        "batch": {"displayName": f"hf-{KEY}-2-prod", "inputConfig": {"fileName": "files/f"}}
    }


def test_a_batch_at_mistral_names_its_model_and_our_key() -> None:
    client = FakeClient([shown("mistral_chat")])

    ADAPTERS["mistral_chat"].create(client, route("mistral_chat"), NAME, "f", content_of(*LINES))
    assert client.only.path == "v1/batch/jobs"
    assert client.only.json == {
        "input_files": ["f"],
        "endpoint": "/v1/chat/completions",
        "model": "gpt-5.2",
        "metadata": NAME.metadata,
        "timeout_hours": 24,
    }


@pytest.mark.parametrize("piece", [1, 2, 7, 8, 9, 1000])
def test_a_batch_at_anthropic_is_streamed_as_one_array(piece: int) -> None:
    adapter = ADAPTERS["anthropic_messages"]
    client = FakeClient([shown("anthropic_messages")])
    content = content_of(*LINES, piece=piece)

    assert adapter.upload(client, NAME, content) is None
    adapter.create(client, route("anthropic_messages"), NAME, None, content)
    body = client.only.content
    assert body is not None
    assert json.loads(body) == {"requests": [{"a": 1}, {"b": 2}, {"c": 3}]}
    assert len(body) == int(client.only.headers["content-length"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("answer", [None, {}, [], {"status": "validating"}])
def test_a_create_whose_answer_names_no_batch_is_unsure(kind: str, answer: Any) -> None:
    with pytest.raises(ProviderUnsure):
        ADAPTERS[kind].create(
            FakeClient([answer]), route(kind), NAME, "files/f", content_of(*LINES)
        )


@pytest.mark.parametrize("kind", ["openai_chat", "gemini_generate"])
def test_an_input_that_is_not_found_at_once_is_no_fault_of_any_item(kind: str) -> None:
    client = FakeClient([refused(404, "not_found")])

    with pytest.raises(ProviderRefused) as no:
        ADAPTERS[kind].create(client, route(kind), NAME, "files/f", content_of(*LINES))
    assert no.value.failure.kind is FailureKind.TRANSIENT


# -- get, cancel, read, delete

PLACES = {
    "openai_responses": ("batches/batch_1", "files/f1/content", "files/f1"),
    "openai_chat": ("batches/batch_1", "files/f1/content", "files/f1"),
    "azure_responses": ("v1/batches/batch_1", "v1/files/f1/content", "v1/files/f1"),
    "azure_chat": ("v1/batches/batch_1", "v1/files/f1/content", "v1/files/f1"),
    "mistral_chat": ("v1/batch/jobs/batch_1", "v1/files/f1/content", "v1/files/f1"),
    "anthropic_messages": (
        "v1/messages/batches/batch_1",
        "v1/messages/batches/f1/results",
        None,
    ),
    "gemini_generate": ("v1beta/batches/b1", "v1beta/files/f1:download", "v1beta/files/f1"),
}
BATCH = {kind: "batches/b1" if kind == "gemini_generate" else "batch_1" for kind in KINDS}
FILE = {kind: "files/f1" if kind == "gemini_generate" else "f1" for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_a_look_at_a_batch_heeds_when_to_look_again(kind: str) -> None:
    client = FakeClient([ProviderResponse(shown(kind), {}, 10.0)])

    seen = ADAPTERS[kind].get(client, BATCH[kind])
    assert (client.only.method, client.only.path) == ("GET", PLACES[kind][0])
    assert seen.poll_after == 10.0


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_has_ended_may_be_canceled_in_vain(kind: str) -> None:
    adapter = ADAPTERS[kind]
    mark = ":" if kind == "gemini_generate" else "/"
    harmless: list[Any] = [{}, refused(400), refused(404), unsure(409)]
    for said in harmless:
        client = FakeClient([said])
        adapter.cancel(client, BATCH[kind])
        assert (client.only.method, client.only.path) == ("POST", f"{PLACES[kind][0]}{mark}cancel")
    for answer in (refused(401), unsure(500), ProviderUnsure("timeout")):
        with pytest.raises((ProviderRefused, ProviderUnsure)):
            adapter.cancel(FakeClient([answer]), BATCH[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_read_from_the_account_itself(kind: str) -> None:
    client = FakeClient([[b"one", b"two"]])

    with ADAPTERS[kind].read(client, FILE[kind]) as pieces:
        assert list(pieces) == [b"one", b"two"]
    assert (client.only.method, client.only.path) == ("GET", PLACES[kind][1])


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_there_counts_as_deleted_and_nothing_else_does(kind: str) -> None:
    adapter = ADAPTERS[kind]
    for answer in ({"deleted": True}, None, refused(404, "x"), refused(403, "not_found")):
        client = FakeClient([answer])
        adapter.delete_file(client, FILE[kind])
        where = PLACES[kind][2]
        assert [(asked.method, asked.path) for asked in client.asked] == (
            [("DELETE", where)] if where else []
        )
    if PLACES[kind][2]:
        for no in (refused(403, "permission_denied"), unsure(500)):
            with pytest.raises((ProviderRefused, ProviderUnsure)):
                adapter.delete_file(FakeClient([no]), FILE[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_deleted_where_that_can_be_done(kind: str) -> None:
    adapter = ADAPTERS[kind]
    client = FakeClient([refused(404)])

    adapter.delete_batch(client, BATCH[kind])
    deleted = [(asked.method, asked.path) for asked in client.asked]
    assert deleted == ([("DELETE", PLACES[kind][0])] if adapter.capabilities.can_delete_batch
                       else [])  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_an_id_from_outside_cannot_leave_its_place_in_a_path(kind: str) -> None:
    client = FakeClient([{}, {}, {}])
    for name in ("../../x", "a/b", "a?b=c", "a#b"):
        try:
            ADAPTERS[kind].cancel(client, name)
        except ProviderUnsure:
            continue
        path = client.asked[-1].path
        assert name not in path
        assert "?" not in path
        assert "#" not in path
        client.answers.append({})


# -- scan


def page_of(kind: str, *batches: dict[str, Any], token: str | None = None) -> dict[str, Any]:
    if kind == "gemini_generate":
        return {"operations": list(batches), **({"nextPageToken": token} if token else {})}
    return {"object": "list", "data": list(batches), "has_more": False, "total": len(batches)}


def made(kind: str, number: int, at: datetime, key: str | None = KEY) -> dict[str, Any]:
    """A batch made at an instant, with or without our key."""
    if kind == "gemini_generate":
        about = {
            **GEMINI["metadata"],
            "createTime": at.isoformat(),
            "displayName": f"hf-{key}-1-prod" if key else "somebody's",
        }
        return {"name": f"batches/b{number}", "metadata": about}
    named = f"b{number}"
    if kind == "anthropic_messages":
        return {**ANTHROPIC, "id": named, "created_at": at.isoformat()}
    metadata = {"hf_key": key, "hf_try": "1", "hf_env": "prod"} if key else None
    return shown(kind, id=named, created_at=int(at.timestamp()), metadata=metadata)


@pytest.mark.parametrize("kind", KINDS)
def test_a_scan_continues_past_the_requested_time_in_every_order_of_the_listing(
    kind: str,
) -> None:
    late, early = SINCE + timedelta(hours=1), SINCE - timedelta(hours=1)
    client = FakeClient(
        [
            page_of(kind, made(kind, 4, late), made(kind, 3, late), token="t"),
            page_of(kind, made(kind, 3, late), made(kind, 2, SINCE), token="u"),
            page_of(kind, made(kind, 1, early), token="v"),
        ]
    )

    found = [seen.provider_batch_id[-2:] for seen in ADAPTERS[kind].scan(client, SINCE)]
    assert found == ["b4", "b3", "b2"]
    assert client.answers == []
    cursors = [
        {name: asked.query[name] for name in asked.query if name in
         ("after", "after_id", "pageToken", "page")}
        for asked in client.asked
    ]  # fmt: skip
    assert len({json.dumps(cursor) for cursor in cursors}) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_scan_ends_where_there_is_nothing_more(kind: str) -> None:
    client = FakeClient([page_of(kind, made(kind, 1, SINCE)), page_of(kind)])

    assert len(list(ADAPTERS[kind].scan(client, SINCE))) == 1


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "anthropic_messages"])
def test_a_listing_without_our_key_is_asked_about_each_batch(kind: str) -> None:
    client = FakeClient(
        [page_of(kind, made(kind, 1, SINCE, None)), made(kind, 1, SINCE), page_of(kind)]
    )

    (seen,) = ADAPTERS[kind].scan(client, SINCE)
    assert seen.key == KEY


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "gemini_generate"])
def test_a_listing_that_is_none_ends_the_scan_unsure(kind: str) -> None:
    with pytest.raises(ProviderUnsure):
        list(ADAPTERS[kind].scan(FakeClient([{"data": "x"}]), SINCE))


# -- find a file


def test_an_orphan_upload_is_found_by_its_name() -> None:
    ours = {"id": "file-2", "filename": f"hf-{KEY}-2.jsonl"}
    other = {"id": "file-1", "filename": f"hf-{KEY}-1.jsonl"}
    for kind in ("openai_chat", "azure_chat", "mistral_chat"):
        found = FakeClient([{"data": [other]}, {"data": [ours]}])
        assert ADAPTERS[kind].find_file(found, NAME) == "file-2"
        nothing = FakeClient([{"data": [other]}, {"data": [other]}])
        assert ADAPTERS[kind].find_file(nothing, NAME) is None


def test_a_file_at_gemini_is_asked_for_by_its_name() -> None:
    adapter = ADAPTERS["gemini_generate"]

    assert adapter.find_file(FakeClient([{"name": "files/f"}]), NAME) == "files/f"
    assert adapter.find_file(FakeClient([refused(403, "not_found")]), NAME) is None
    with pytest.raises(ProviderRefused):
        adapter.find_file(FakeClient([refused(403, "permission_denied")]), NAME)


# -- a direct call

CALLED = {
    "openai_responses": ("responses", RESPONSES_BODY),
    "openai_chat": ("chat/completions", CHAT_BODY),
    "azure_responses": ("v1/responses", RESPONSES_BODY),
    "azure_chat": ("v1/chat/completions", CHAT_BODY),
    "mistral_chat": ("v1/chat/completions", CHAT_BODY),
    "anthropic_messages": ("v1/messages", MESSAGE),
    "gemini_generate": ("v1beta/models/gpt-5.2:generateContent", GENERATED),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_direct_call_is_read_like_a_line_of_a_batch(kind: str) -> None:
    path, body = CALLED[kind]
    client = FakeClient([ProviderResponse(body, {"x-request-id": "req_9"})])

    answer = ADAPTERS[kind].call(client, route(kind), {"some": "body"})
    assert (client.only.method, client.only.path, client.only.json) == (
        "POST",
        path,
        {"some": "body"},
    )
    assert isinstance(answer, Reply)
    assert (answer.text, answer.provider_request_id) == ('{"a":1}', "req_9")


@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_in_the_envelope_is_the_answer_to_a_direct_call(kind: str) -> None:
    adapter = ADAPTERS[kind]
    busy = ProviderRefused(Failure(FailureKind.CAPACITY, "rate_limit_exceeded", 429))

    answer = adapter.call(FakeClient([busy]), route(kind), {})
    assert isinstance(answer, Failure)
    assert answer.kind is FailureKind.TRANSIENT
    # A 500 may follow after the request was executed, which is charged.
    with pytest.raises(ProviderUnsure) as caught:
        adapter.call(FakeClient([unsure(500, "server_error")]), route(kind), {})
    assert caught.value.failure is not None
    assert caught.value.failure.code == "server_error"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("answer", [ProviderUnsure("timeout"), None, []])
def test_a_direct_call_without_an_answer_is_unsure(kind: str, answer: Any) -> None:
    with pytest.raises(ProviderUnsure):
        ADAPTERS[kind].call(FakeClient([answer]), route(kind), {})


def test_azure_has_an_older_way_with_the_deployment_in_the_path() -> None:
    chat = Azure("azure_chat", CHAT, api_version="2024-10-21")
    client = FakeClient([CHAT_BODY, shown("azure_chat")])

    chat.call(client, route("azure_chat", "my deployment"), {})
    chat.get(client, "batch_1")
    assert [(asked.path, asked.query) for asked in client.asked] == [
        ("deployments/my%20deployment/chat/completions", {"api-version": "2024-10-21"}),
        ("batches/batch_1", {"api-version": "2024-10-21"}),
    ]
    assert b'"url":"/chat/completions"' in chat.line(route("azure_chat"), "x", {})
    responses = Azure("azure_responses", RESPONSES, api_version="2025-04-01-preview")
    assert responses.call_path(route("azure_responses")) == "responses"
