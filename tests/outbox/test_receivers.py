"""Messages to receivers that answer badly, or refuse: from the outbox to a real socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.config import ChannelSettings
from holdfast.outbound import client
from holdfast.outbox.delivery import State as Stands
from tests.channel.hostile import ANSWERS
from tests.outbox.scripted import deliver, intend_one, letter
from tests.provider.plain_server import PlainServer, plain_server


@contextmanager
def hostile(hf: Holdfast, name: str, status: int) -> Iterator[PlainServer]:
    """Let *hf* post webhooks to a receiver that answers with this status and a bad body."""
    over = threading.Event()

    def answer(wire: socket.socket, request: bytes) -> None:
        ANSWERS[name](wire, status, b'{"id": "their-1"}', over)

    hf.settings = replace(
        hf.settings, channels={"post": ChannelSettings(kind="webhook", allow_private=True)}
    )
    with plain_server(answer) as server:
        try:
            yield server
        finally:
            over.set()


@pytest.mark.req("N-08")
@pytest.mark.parametrize("name", ["without_length", "wrong_chunks", "dripping", "bad_header"])
@pytest.mark.parametrize(("status", "state"), [(200, Stands.SENT), (410, Stands.FAILED)])
def test_an_answered_webhook_is_posted_once(
    hf: Holdfast,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    status: int,
    state: Stands,
) -> None:
    monkeypatch.setattr(client, "BODY_SECONDS", 0.3)
    with hostile(hf, name, status) as server:
        one = intend_one(hf, replace(letter(), address=f"{server.url}/hook"))
        for _ in range(3):
            stands = deliver(hf, one)
            clock.advance(hours=1)
        assert stands.state is state
        assert len(server.requests) == 1
