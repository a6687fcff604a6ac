"""Answers of HTTP channels: only the provider's own error proves that a message was not taken."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from typing import Any

import pytest

from holdfast.channel.channel import (
    Accepted,
    Ambiguous,
    ChannelRefused,
    Found,
    LookupFailed,
    NotFound,
    Rejected,
    Throttled,
    Unsure,
)
from holdfast.channel.message import Message
from tests.channel.asking import ADA, ASKED, AT, MAIL, answering, open_channel
from tests.channel.names import deaf_port
from tests.provider.plain_server import reset, say

POST = replace(MAIL, address="C0123456789")
KINDS = ["postmark", "resend", "slack", "webhook"]


def message(kind: str) -> Message:
    return POST if kind == "slack" else MAIL


def told(status: int, document: Any, *headers: str) -> bytes:
    return say(status, json.dumps(document).encode(), *headers)


def posted(request: bytes) -> tuple[str, dict[str, Any]]:
    head, _, body = request.partition(b"\r\n\r\n")
    return head.decode().lower(), json.loads(body)


# -- common to all channels


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reset, "reset"),
        (b"", "reset"),
        (b"HTTP/1.1 20", "reset"),
        (say(500, b"oops"), "status_500"),
        (told(503, {"ok": False}), "status_503"),
        (say(303, b"", "Location: https://elsewhere.example/"), "status_303"),
    ],
)
def test_an_answer_that_is_lost_or_broken_leaves_it_open(
    kind: str, answer: Any, reason: str
) -> None:
    with answering(kind, answer) as (channel, server):
        assert channel.send(message(kind)) == Unsure(reason)
    assert len(server.requests) == 1


@pytest.mark.req("E-17")
@pytest.mark.parametrize("kind", KINDS)
def test_a_timeout_leaves_it_open(kind: str) -> None:
    def silent(connection: socket.socket, request: bytes) -> None:
        connection.recv(1)

    with answering(kind, silent, read_seconds=0.3) as (channel, _):
        assert channel.send(message(kind)) == Unsure("timeout")


@pytest.mark.parametrize("kind", ["postmark", "resend", "slack"])
@pytest.mark.parametrize("body", [b"<html>no such page</html>", b"[]", b"{}", b""])
def test_an_error_that_is_not_in_the_providers_words_leaves_it_open(kind: str, body: bytes) -> None:
    with answering(kind, say(400, body)) as (channel, _):
        assert channel.send(message(kind)) == Unsure("status_400")


@pytest.mark.req("R-07", "R-08")
@pytest.mark.parametrize("kind", ["postmark", "resend", "slack", "webhook"])
@pytest.mark.parametrize("status", [401, 402, 403, 404, 405, 407])
@pytest.mark.parametrize("body", [b"<html>no such page</html>", b"{}", b""])
def test_a_status_that_refuses_us_refuses_every_message(
    kind: str, status: int, body: bytes
) -> None:
    with answering(kind, say(status, body)) as (channel, _):
        assert channel.send(message(kind)) == ChannelRefused(f"status_{status}")


@pytest.mark.parametrize("kind", ["postmark", "slack"])
@pytest.mark.parametrize("status", [401, 403])
def test_a_credential_without_lookup_permission_is_distinguished_from_an_unavailable_server(
    kind: str, status: int
) -> None:
    asked = replace(ASKED, address=message(kind).address)
    with answering(kind, say(status, b"{}")) as (channel, _):
        assert channel.lookup(asked) == LookupFailed(f"status_{status}", is_refused=True)
    with answering(kind, say(503, b"{}")) as (channel, _):
        assert channel.lookup(asked) == LookupFailed("status_503")


@pytest.mark.parametrize("kind", ["postmark", "resend", "slack"])
def test_a_success_that_names_nothing_leaves_it_open(kind: str) -> None:
    with answering(kind, say(200, b"OK")) as (channel, _):
        assert channel.send(message(kind)) == Unsure("status_200")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("header", "wait"),
    [("Retry-After: 7", 7.0), ("Retry-After: soon", None), ("Retry-After: 999999", 86_400.0)],
)
def test_a_throttled_reply_carries_the_delay(kind: str, header: str, wait: float | None) -> None:
    with answering(kind, say(429, b"", header)) as (channel, _):
        assert channel.send(message(kind)) == Throttled("status_429", wait)


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_is_not_there_took_nothing(kind: str) -> None:
    with deaf_port() as port:
        channel = open_channel(kind, f"http://127.0.0.1:{port}")

        assert channel.send(message(kind)) == Rejected("unreachable", is_permanent=False)


@pytest.mark.parametrize("kind", ["postmark", "resend", "slack"])
def test_a_question_that_is_not_answered_is_no_answer(kind: str) -> None:
    asked = replace(ASKED, address=message(kind).address)
    for answer in (reset, say(500, b""), say(200, b"OK"), say(404, b"not here"), say(429, b"")):
        with answering(kind, answer) as (channel, _):
            assert isinstance(channel.lookup(asked), LookupFailed)


@pytest.mark.parametrize("kind", ["postmark", "resend", "slack", "webhook"])
def test_an_impossible_message_is_refused_before_a_call(kind: str) -> None:
    wrong = replace(message(kind), subject="Hello\r\nBcc: eve@example.com")
    with answering(kind, say(200, b"{}")) as (channel, server):
        assert channel.send(wrong) == Rejected("bad_message", is_permanent=True)
    assert server.requests == []


# -- Postmark


def test_postmark_takes_a_mail_with_our_token_in_its_metadata() -> None:
    taken = told(200, {"ErrorCode": 0, "Message": "OK", "MessageID": "their-1"})
    with answering("postmark", taken) as (channel, server):
        assert channel.send(MAIL) == Accepted("their-1")
        channel.send(MAIL)

    head, body = posted(server.requests[0])
    assert head.startswith("post /email http/1.1")
    assert "x-postmark-server-token: hunter2-hunter2" in head
    assert body["Metadata"] == {"holdfast": "hf_1"}
    assert (body["To"], body["From"], body["HtmlBody"]) == (ADA, "post@example.org", "<p>Two</p>")
    assert server.requests[0].split(b"\r\n\r\n")[1] == server.requests[1].split(b"\r\n\r\n")[1]


@pytest.mark.parametrize(
    ("status", "code", "is_ours"),
    [
        (422, 300, False),
        (422, 406, False),
        (401, 10, True),
        (422, 400, True),
        (422, 401, True),
        (422, 405, True),
        (422, 412, True),
        (422, 413, True),
    ],
)
def test_postmarks_refusals_are_about_the_mail_or_about_us(
    status: int, code: int, is_ours: bool
) -> None:
    name = f"postmark_{code}"
    wanted = ChannelRefused(name) if is_ours else Rejected(name, is_permanent=True)
    with answering("postmark", told(status, {"ErrorCode": code, "Message": "no"})) as (one, _):
        assert one.send(MAIL) == wanted


def found_there(**more: Any) -> dict[str, Any]:
    return {
        "MessageID": "their-1",
        "Recipients": [ADA],
        "Metadata": {"holdfast": "hf_1"},
        "ReceivedAt": "2026-03-01T07:00:00-05:00",
        **more,
    }


@pytest.mark.parametrize(
    ("messages", "seen"),
    [
        ([], NotFound()),
        ([found_there()], Found("their-1", AT)),
        ([found_there(Recipients=["ADA@Example.com"])], Found("their-1", AT)),
        ([found_there(), found_there(MessageID="their-2")], Ambiguous(2)),
        ([found_there(Recipients=["eve@example.com"])], Ambiguous(1)),
        ([found_there(Metadata={"holdfast": "hf_2"})], LookupFailed("not_understood")),
        ([found_there(Metadata=None)], LookupFailed("not_understood")),
        ([found_there(MessageID=7)], LookupFailed("not_understood")),
    ],
)
def test_postmark_is_asked_by_our_token(messages: list[Any], seen: object) -> None:
    answer = told(200, {"TotalCount": len(messages), "Messages": messages})
    with answering("postmark", answer) as (channel, server):
        assert channel.lookup(ASKED) == seen
    assert b"metadata_holdfast=hf_1" in server.requests[0].split(b"\r\n")[0]


# -- Resend


def test_resend_takes_a_mail_under_our_token_as_its_key() -> None:
    with answering("resend", told(200, {"id": "their-1"})) as (channel, server):
        assert channel.send(MAIL) == Accepted("their-1")

    head, body = posted(server.requests[0])
    assert head.startswith("post /emails http/1.1")
    assert "idempotency-key: hf_1" in head
    assert "authorization: bearer hunter2-hunter2" in head
    assert (body["to"], body["from"]) == ([ADA], "post@example.org")


@pytest.mark.parametrize(
    ("status", "name", "answer"),
    [
        (422, "validation_error", Rejected("resend_validation_error", is_permanent=True)),
        (422, "invalid_from_address", ChannelRefused("resend_invalid_from_address")),
        (401, "missing_api_key", ChannelRefused("resend_missing_api_key")),
        (403, "invalid_api_key", ChannelRefused("resend_invalid_api_key")),
        (403, "validation_error", ChannelRefused("resend_validation_error")),
        (429, "daily_quota_exceeded", ChannelRefused("resend_daily_quota_exceeded")),
        (429, "rate_limit_exceeded", Throttled("status_429")),
        (409, "invalid_idempotent_request", Unsure("status_409")),
        (409, "concurrent_idempotent_requests", Unsure("status_409")),
    ],
)
def test_a_key_that_resend_knows_is_no_proof_that_nothing_was_taken(
    status: int, name: str, answer: object
) -> None:
    document = {"statusCode": status, "name": name, "message": "no"}
    with answering("resend", told(status, document)) as (channel, _):
        assert channel.send(MAIL) == answer


@pytest.mark.parametrize(
    ("status", "document", "seen"),
    [
        (404, {"statusCode": 404, "name": "not_found"}, NotFound()),
        (404, {"detail": "no such page"}, LookupFailed("status_404")),
        (200, {"id": "their-1", "to": [ADA], "last_event": "delivered"}, Found("their-1")),
        (
            200,
            {"id": "their-1", "to": [ADA], "last_event": "bounced"},
            Found("their-1", is_delivered=False),
        ),
        (200, {"id": "their-1", "to": ["eve@example.com"]}, Ambiguous(1)),
        (200, {"id": "their-2", "to": [ADA]}, LookupFailed("status_200")),
    ],
)
def test_resend_is_asked_by_its_own_id(status: int, document: Any, seen: object) -> None:
    with answering("resend", told(status, document)) as (channel, server):
        assert channel.lookup(ASKED) == seen
    assert server.requests[0].startswith(b"GET /emails/their-1 ")


def test_resend_cannot_be_asked_without_its_id() -> None:
    with answering("resend", say(200, b"{}")) as (channel, server):
        assert channel.lookup(replace(ASKED, provider_id=None)) == LookupFailed("no_id")
    assert server.requests == []


# -- Slack


def test_slack_takes_a_text_as_a_text_with_our_token_in_its_metadata() -> None:
    hostile = replace(POST, text="<!channel> <https://evil.example|click> & more")
    with answering("slack", told(200, {"ok": True, "ts": "1772366400.000100"})) as (
        channel,
        server,
    ):
        assert channel.send(hostile) == Accepted("1772366400.000100")

    head, body = posted(server.requests[0])
    assert head.startswith("post /chat.postmessage http/1.1")
    assert body["metadata"]["event_payload"] == {"token": "hf_1"}
    assert "<" not in body["text"]
    assert body["text"].endswith("&lt;!channel&gt; &lt;https://evil.example|click&gt; &amp; more")


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        ("channel_not_found", Rejected("slack_channel_not_found", is_permanent=True)),
        ("invalid_auth", ChannelRefused("slack_invalid_auth")),
        ("missing_scope", ChannelRefused("slack_missing_scope")),
        ("token_revoked", ChannelRefused("slack_token_revoked")),
        ("account_inactive", ChannelRefused("slack_account_inactive")),
        ("not_in_channel", ChannelRefused("slack_not_in_channel", is_endpoint=True)),
        ("ratelimited", Throttled("ratelimited")),
        ("fatal_error", Unsure("slack_fatal_error")),
        ("internal_error", Unsure("slack_internal_error")),
        ("never_heard_of", Unsure("slack_never_heard_of")),
    ],
)
def test_only_words_that_slack_explains_prove_anything(error: str, answer: object) -> None:
    with answering("slack", told(200, {"ok": False, "error": error})) as (channel, _):
        assert channel.send(POST) == answer


def test_a_text_that_slack_would_cut_is_not_sent() -> None:
    with answering("slack", told(200, {"ok": True, "ts": "1.1"})) as (channel, server):
        answer = channel.send(replace(POST, text="x" * 40_000))

    assert answer == Rejected("msg_too_long", is_permanent=True)
    assert server.requests == []


def page(*tokens: str, cursor: str = "", has_more: bool = False) -> bytes:
    messages = [
        {
            "ts": f"1772366400.00000{number}",
            "metadata": {"event_type": "holdfast_delivery", "event_payload": {"token": token}},
        }
        for number, token in enumerate(tokens)
    ]
    answer = {"ok": True, "messages": [{"ts": "1.0", "text": "hi"}, *messages]}
    answer["has_more"] = has_more or bool(cursor)
    return told(200, {**answer, "response_metadata": {"next_cursor": cursor}})


@pytest.mark.parametrize(
    ("pages", "seen"),
    [
        ([page("hf_2")], NotFound()),
        ([page("hf_2", cursor="more"), page("hf_1")], Found("1772366400.000000", AT)),
        ([page("hf_1", cursor="more"), page("hf_1")], Ambiguous(2)),
        ([page("hf_2", cursor="more")], LookupFailed("too_long")),
        ([page("hf_2", has_more=True)], LookupFailed("not_understood")),
        ([page("hf_1", has_more=True)], Found("1772366400.000000", AT)),
        (
            [page("hf_2", cursor="more"), told(200, {"ok": False, "error": "missing_scope"})],
            LookupFailed("missing_scope", is_refused=True),
        ),
    ],
)
def test_a_conversation_is_read_to_its_end_before_it_holds_nothing(
    pages: list[bytes], seen: object
) -> None:
    with answering("slack", *pages) as (channel, server):
        assert channel.lookup(replace(ASKED, address="C0123456789")) == seen
    assert b"include_all_metadata=true" in server.requests[0]
    assert b"oldest=1772366100.000000" in server.requests[0]
    assert len(server.requests) <= 10
