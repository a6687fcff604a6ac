"""The status of an answer decides, even if its body cannot be read."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import pytest

from holdfast.channel.channel import Accepted, Channel, Rejected, Sent, Throttled, Unsure
from holdfast.outbound import client
from tests.channel.asking import MAIL, open_channel
from tests.channel.hostile import ANSWERS
from tests.provider.plain_server import PlainServer, plain_server

BODIES = {
    "webhook": b'{"id": "their-1"}',
    "postmark": json.dumps({"ErrorCode": 0, "Message": "OK", "MessageID": "their-1"}).encode(),
    "resend": b'{"id": "their-1"}',
    "slack": b'{"ok":true,"channel":"C0123456789","ts":"1700000000.000100"}',
}
# Answers with enough of the body to read an id in it.
READABLE = {"without_length", "compressed", "chunks_cut_short"}
ENDLESS = {"dripping", "dripping_head", "silent_body"}
# One with a body, one that is cut off and one that does not end.
SOME = ("without_length", "truncated", "dripping")
# Every answer with the first status, and some with each of the others.
TAKEN = [
    *((name, 200) for name in ANSWERS),
    *((name, status) for status in (202, 204) for name in SOME),
]


@contextmanager
def receiver(kind: str, name: str, status: int) -> Iterator[tuple[Channel, PlainServer]]:
    over = threading.Event()

    def answer(wire: socket.socket, request: bytes) -> None:
        ANSWERS[name](wire, status, BODIES[kind], over)

    # The client waits five seconds for a body. For answers that never end, a shorter wait is
    # enough.
    seconds = 0.1 if name in ENDLESS else client.BODY_SECONDS
    with plain_server(answer) as server, mock.patch.object(client, "BODY_SECONDS", seconds):
        try:
            yield open_channel(kind, server.url, read_seconds=30), server
        finally:
            over.set()


def send(kind: str, name: str, status: int) -> Sent:
    message = replace(MAIL, address="C0123456789") if kind == "slack" else MAIL
    with receiver(kind, name, status) as (channel, server):
        sent = channel.send(message)
        assert len(server.requests) == 1
    return sent


@pytest.mark.parametrize(("name", "status"), TAKEN)
def test_a_webhook_that_was_answered_with_success_is_sent(name: str, status: int) -> None:
    sent = send("webhook", name, status)

    has_body = name in READABLE and status != 204
    assert sent == Accepted("their-1" if has_body else "hf_1")


@pytest.mark.parametrize("name", ANSWERS)
def test_a_webhook_that_is_gone_is_gone_whatever_else_it_says(name: str) -> None:
    assert send("webhook", name, 410) == Rejected("status_410", is_permanent=True)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("webhook", name) for name in ANSWERS),
        *((kind, name) for kind in ("postmark", "resend", "slack") for name in SOME),
    ],
)
def test_a_busy_server_is_busy_and_a_broken_one_proves_nothing(kind: str, name: str) -> None:
    assert send(kind, name, 429) == Throttled("status_429", None)
    broken = send(kind, name, 500)
    assert isinstance(broken, Unsure)
    assert broken.reason == "status_500"


@pytest.mark.parametrize(("name", "status"), TAKEN)
@pytest.mark.parametrize("kind", ["postmark", "resend"])
def test_a_mail_that_its_provider_took_is_sent_though_its_name_is_lost(
    kind: str, name: str, status: int
) -> None:
    sent = send(kind, name, status)

    has_body = name in READABLE and status != 204
    assert sent == Accepted("their-1" if has_body else "hf_1")


@pytest.mark.parametrize("name", ANSWERS)
def test_a_post_that_slack_answered_is_sent_or_looked_up(name: str) -> None:
    # Slack refuses with 200 too: only the beginning of the body shows it.
    sent = send("slack", name, 200)

    if name in READABLE:
        assert sent == Accepted("1700000000.000100")
    else:
        assert sent in (Accepted("hf_1"), Unsure("status_200"))
    if name == "truncated":
        assert sent == Accepted("hf_1")


def test_what_a_server_asks_us_to_wait_counts_also_where_its_head_is_broken() -> None:
    broken = b"HTTP/1.1 429 Slow\r\nRetry-After: 7\r\ncontent-length: many\r\n\r\n"
    with plain_server(broken) as server:
        assert open_channel("webhook", server.url).send(MAIL) == Throttled("status_429", 7.0)


def test_no_more_of_a_body_is_read_than_a_name_needs() -> None:
    with receiver("webhook", "twenty_megabytes", 200) as (channel, _):
        read: list[int] = []
        count = socket.socket.recv

        def counting(self: socket.socket, size: int, *more: int) -> bytes:
            found = count(self, size, *more)
            read.append(len(found))
            return found

        with mock.patch.object(socket.socket, "recv", counting):
            assert channel.send(MAIL) == Accepted("hf_1")
    # The test's own server reads in the same process: a request of less than a kilobyte.
    assert sum(read) < 1024 * 1024
