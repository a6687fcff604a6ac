"""The meaning of a provider's reply: done, refused or unknown."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.outbound.client import Timeouts
from holdfast_llm.provider.adapter import BatchTag, Content
from holdfast_llm.provider.adapters import ADAPTERS
from holdfast_llm.provider.http_client import HttpProviderClient, open_client
from holdfast_llm.provider.reply import (
    WRONG_ADDRESS,
    FailureKind,
    ProviderRefused,
    ProviderUnsure,
)
from holdfast_llm.provider.route import Route
from tests.provider.plain_server import PlainServer, plain_server, reset, say

QUICK = Timeouts(connect=2, read=0.2, write=2, pool=2)

OPENAI = {"error": {"message": "canary", "type": "t", "param": None, "code": "c"}}
GOOGLE = {"error": {"code": 400, "message": "canary", "status": "INVALID_ARGUMENT"}}
ANTHROPIC = {"type": "error", "error": {"type": "invalid_request_error", "message": "canary"}}
MISTRAL: dict[str, Any] = {
    "object": "error",
    "message": {"detail": []},
    "type": "t",
    "param": None,
    "code": "3",
}
ENVELOPES = {
    "openai_responses": OPENAI,
    "openai_chat": OPENAI,
    "azure_responses": OPENAI,
    "azure_chat": OPENAI,
    "gemini_generate": GOOGLE,
    "anthropic_messages": ANTHROPIC,
    "mistral_chat": MISTRAL,
}
KINDS = sorted(ENVELOPES)


def client_to(
    server: PlainServer, kind: str = "openai_responses", path: str = "/v1"
) -> HttpProviderClient:
    url = server.url + path
    return open_client(ADAPTERS[kind], url, "sk-key", allow_private=True, timeouts=QUICK)


def said(status: int, document: Any, *headers: str) -> bytes:
    return say(status, json.dumps(document).encode(), *headers)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 429])
def test_a_no_in_the_providers_own_envelope_is_a_refusal(kind: str, status: int) -> None:
    answer = said(status, ENVELOPES[kind], "retry-after: 9", "x-request-id: req_7")
    with plain_server(answer) as server, pytest.raises(ProviderRefused) as no:
        client_to(server, kind).request("POST", "batches", json={})

    failure = no.value.failure
    assert (failure.status, failure.retry_after, failure.provider_request_id) == (
        status,
        9.0,
        "req_7",
    )
    assert "canary" not in f"{no.value!r} {no.value} {failure!r}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [408, 409, 500, 502, 503, 504, 529])
def test_who_may_have_acted_has_not_refused(kind: str, status: int) -> None:
    answer = said(status, ENVELOPES[kind])
    with plain_server(answer) as server, pytest.raises(ProviderUnsure) as unsure:
        client_to(server, kind).request("POST", "batches", json={})

    assert unsure.value.reason == f"status_{status}"
    assert unsure.value.failure is not None


FOREIGN: list[bytes] = [
    b"<html>502</html>",
    b"",
    b"{}",
    b"[]",
    b'"no"',
    b'{"error":"no"}',
    b'{"error":{}}',
    b'{"error":{"a":1}}',
    b"[" * 50_000,
]


def foreign(*statuses: int) -> list[Any]:
    """Every status with a page, and every other body with one of them."""
    bodies = zip(FOREIGN[1:], itertools.cycle(statuses), strict=False)
    given = [*((FOREIGN[0], status) for status in statuses), *bodies]
    return [pytest.param(body, status, id=f"{status}-{body[:9]!r}") for body, status in given]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("body", "status"), foreign(400, 429, 500))
def test_a_no_from_another_server_is_not_believed(kind: str, body: bytes, status: int) -> None:
    with plain_server(say(status, body)) as server, pytest.raises(ProviderUnsure) as unsure:
        client_to(server, kind).request("POST", "batches", json={})

    assert unsure.value.is_foreign
    assert unsure.value.is_wrong_address == (status < 500)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("body", "status"), foreign(301, 302, 307, 401, 403, 404, 405, 407))
def test_a_server_that_is_not_the_providers_is_the_accounts_trouble(
    kind: str, body: bytes, status: int
) -> None:
    with plain_server(say(status, body)) as server, pytest.raises(ProviderRefused) as refused:
        client_to(server, kind).request("POST", "batches", json={})

    failure = refused.value.failure
    assert failure.kind is FailureKind.ACCOUNT
    assert failure.code in WRONG_ADDRESS


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_is_not_found_is_not_a_wrong_address(kind: str) -> None:
    found = ENVELOPES[kind] if kind != "mistral_chat" else {**MISTRAL, "message": "canary"}
    document = json.loads(json.dumps(found).replace("canary", "no model m-17"))
    with plain_server(said(404, document)) as server, pytest.raises(ProviderRefused) as refused:
        client_to(server, kind).request("POST", "chat", json={"model": "m-17"})

    assert refused.value.failure.code not in WRONG_ADDRESS
    with plain_server(said(404, document)) as server, pytest.raises(ProviderRefused) as refused:
        client_to(server, kind).request("POST", "chat", json={"model": "m-18"})
    assert refused.value.failure.code in WRONG_ADDRESS


@pytest.mark.parametrize(
    ("kind", "status", "document"),
    [
        ("openai_chat", 404, {"detail": "Not Found"}),
        ("openai_chat", 400, {"object": "error", "message": "m", "type": "t", "code": 400}),
        ("azure_chat", 401, {"statusCode": 401, "message": "m"}),
        ("gemini_generate", 400, [GOOGLE]),
        ("mistral_chat", 401, {"message": "Unauthorized", "request_id": "x"}),
        ("mistral_chat", 401, {"detail": "Unauthorized"}),
        ("mistral_chat", 422, {"detail": [{"type": "missing"}]}),
    ],
)
def test_the_other_envelopes_of_a_provider_are_known(kind: str, status: int, document: Any) -> None:
    with plain_server(said(status, document)) as server, pytest.raises(ProviderRefused):
        client_to(server, kind).request("POST", "batches", json={})


@pytest.mark.parametrize("kind", ["openai_chat", "gemini_generate", "mistral_chat"])
def test_a_create_whose_input_is_not_there_yet_may_be_tried_again(kind: str) -> None:
    document = GOOGLE if kind == "gemini_generate" else {"error": {"message": "m", "code": "x"}}
    route = Route("p", kind, "m")
    content = Content(1, "", 1, lambda: iter([b"\n"]))
    with plain_server(said(404, document)) as server, pytest.raises(ProviderRefused) as refused:
        ADAPTERS[kind].create(
            client_to(server, kind), route, BatchTag("k", 1, "test"), "file-1", content
        )

    assert (refused.value.failure.kind, refused.value.failure.code) == (
        FailureKind.TRANSIENT, "input_not_found",
    )  # fmt: skip


@pytest.mark.req("P-25")
@pytest.mark.parametrize(
    ("kind", "status", "document", "found", "code"),
    [
        ("openai_chat", 429, {"error": {"code": "rate_limit_exceeded"}}, "capacity", None),
        ("openai_chat", 429, {"error": {"code": "slow_down"}}, "capacity", None),
        ("openai_chat", 429, {"error": {"code": None, "type": "insufficient_quota"}},
         "account", "insufficient_quota"),
        ("openai_chat", 400, {"error": {"code": "token_limit_exceeded"}}, "capacity", None),
        ("openai_chat", 401, {"error": {"code": "invalid_api_key"}}, "account", None),
        ("openai_chat", 400, {"error": {"code": "a sentence, with a canary"}},
         "invalid", "status_400"),
        ("anthropic_messages", 400,
         {"type": "error", "error": {"type": "invalid_request_error",
                                     "message": "Your credit balance is too low"}},
         "account", "credit_balance_too_low"),
        ("anthropic_messages", 413,
         {"type": "error", "error": {"type": "request_too_large", "message": ""}},
         "invalid", "request_too_large"),
        ("anthropic_messages", 429,
         {"type": "error", "error": {"type": "rate_limit_error", "message": "",
                                     "details": {"error_code": "enforced_spend_limit_reached"}}},
         "account", "enforced_spend_limit_reached"),
        ("gemini_generate", 429,
         {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": ""}},
         "capacity", "resource_exhausted"),
        ("gemini_generate", 400,
         {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "",
                    "details": [{"reason": "API_KEY_INVALID"}]}},
         "account", "api_key_invalid"),
        ("gemini_generate", 400,
         {"error": {"code": 400, "status": "FAILED_PRECONDITION", "message": ""}},
         "account", "failed_precondition"),
        ("gemini_generate", 403,
         {"error": {"code": 403, "status": "PERMISSION_DENIED",
                    "message": "You do not have permission … or it may not exist."}},
         "invalid", "not_found"),
    ],
)  # fmt: skip
def test_a_refusal_says_whether_it_is_the_request_the_room_or_the_account(
    kind: str, status: int, document: Any, found: str, code: str | None
) -> None:
    with plain_server(said(status, document)) as server, pytest.raises(ProviderRefused) as no:
        client_to(server, kind).request("POST", "batches", json={})

    assert no.value.failure.kind == found
    assert code is None or no.value.failure.code == code


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reset, "reset"),
        (say(200, b'{"id":"batch_'), "not_json"),
        (say(200, b"<html>"), "not_json"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{", "reset"),
    ],
    ids=["reset", "truncated", "html", "cut"],
)
def test_a_success_that_cannot_be_read_is_not_one(answer: Any, reason: str) -> None:
    with plain_server(answer) as server, pytest.raises(ProviderUnsure) as unsure:
        client_to(server).request("POST", "batches", json={})

    assert unsure.value.reason == reason
    assert len(server.requests) == 1


def test_who_cannot_be_reached_has_done_nothing() -> None:
    with plain_server(b"") as server:
        pass

    with pytest.raises(ProviderRefused) as no:
        client_to(server).request("POST", "batches", json={})
    assert (no.value.failure.kind, no.value.failure.code) == (FailureKind.TRANSIENT, "unreachable")


def test_an_address_of_our_own_network_stops_the_account() -> None:
    client = open_client(ADAPTERS["openai_chat"], "https://localhost/v1", "sk-key")

    with pytest.raises(ProviderRefused) as no:
        client.request("GET", "batches")
    assert (no.value.failure.kind, no.value.failure.code) == (
        FailureKind.ACCOUNT,
        "address_refused",
    )


@pytest.mark.parametrize(
    ("kind", "header"),
    [
        ("openai_responses", b"authorization: Bearer sk-key"),
        ("azure_chat", b"api-key: sk-key"),
        ("gemini_generate", b"x-goog-api-key: sk-key"),
        ("anthropic_messages", b"x-api-key: sk-key"),
        ("mistral_chat", b"authorization: Bearer sk-key"),
    ],
)
def test_the_credential_goes_along_as_each_provider_wants_it(kind: str, header: bytes) -> None:
    with plain_server(said(200, {})) as server:
        client_to(server, kind).request("GET", "x")

    assert header in server.requests[0]
    assert b"sk-key" not in server.requests[0].split(b"\r\n")[0]


def test_a_server_without_a_credential_is_asked_without_one() -> None:
    with plain_server(said(200, {})) as server:
        client = open_client(ADAPTERS["openai_chat"], server.url, "", allow_private=True)
        client.request("GET", "models")

    assert b"authorization" not in server.requests[0].lower()


def test_paths_are_below_the_base_url_or_at_its_origin() -> None:
    with plain_server(said(200, {})) as server:
        client = client_to(server, path="/openai/v1/")
        client.request("GET", "files", query={"after": "a&b"})
        client.request("GET", "/upload/x?y=1", query={"z": "2"})

    targets = [request.split(b" ")[1] for request in server.requests]
    assert targets == [b"/openai/v1/files?after=a%26b", b"/upload/x?y=1&z=2"]


def test_a_base_url_that_no_call_may_go_to_is_refused_before_any_call() -> None:
    with pytest.raises(ConfigError):
        open_client(ADAPTERS["openai_chat"], "http://api.openai.com/v1", "sk-key")


# -- streams


def test_a_body_is_read_in_pieces_to_its_end() -> None:
    body = b"0123456789\n" * 20_000
    with plain_server(say(200, body)) as server, client_to(server).stream("GET", "f") as pieces:
        assert b"".join(pieces) == body


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nhalf",
    ],
    ids=["length", "chunks", "unframed"],
)
def test_a_body_that_is_cut_short_is_noticed_in_every_framing(answer: bytes) -> None:
    with plain_server(answer) as server, pytest.raises(ProviderUnsure):
        read(client_to(server), pieces=9)


def test_who_leaves_before_the_end_has_not_read_it() -> None:
    with plain_server(say(200, b"x" * 500_000)) as server:
        client = client_to(server)
        with pytest.raises(ProviderUnsure, match="left_early"):
            read(client, pieces=1)


def test_an_error_of_the_reader_stays_the_readers() -> None:
    with plain_server(say(200, b"x" * 500_000)) as server, pytest.raises(KeyError):
        read(client_to(server), pieces=1, error=KeyError("row"))


def test_a_file_that_is_not_there_is_a_refusal_also_of_a_stream() -> None:
    with plain_server(said(404, OPENAI)) as server, pytest.raises(ProviderRefused) as no:
        read(client_to(server), pieces=1)

    assert no.value.failure.status == 404


def read(client: HttpProviderClient, *, pieces: int, error: Exception | None = None) -> None:
    """Read some pieces of a stream, and leave it with or without an error."""
    with client.stream("GET", "f") as found:
        for _ in zip(range(pieces), found, strict=False):
            pass
        if error is not None:
            raise error
