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
from tests.channel.mail_server import PEM, mail_server
from tests.channel.names import deaf_port
from tests.outbox.long_time import live_through
from tests.outbox.refusals import ADDRESSES, REFUSALS, TAKEN, Refusal, settings_for
from tests.outbox.scripted import attempts_of, deliver, intend_one, letter, state_of
from tests.provider.plain_server import PlainServer, plain_server, say
from tests.story import ORG

# Long enough for five pauses of a circuit; make outbox-faults takes a hundred hours.
HOURS = 30


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


# -- refusals of us


@pytest.mark.req("R-07", "R-08", "R-28")
@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_a_refused_credential_is_not_tried_for_days_and_its_change_lets_everything_continue(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, refusal: Refusal
) -> None:
    monkeypatch.setenv("KEY", "whsec_b2xk")
    with plain_server(refusal.answer) as server:
        one = settings_for(refusal.kind, server.url)
        hf.settings = replace(hf.settings, channels={"post": one})
        address = ADDRESSES[refusal.kind].format(url=server.url)
        made = hf.outbox.post(
            [replace(letter(f"r{number}"), address=address) for number in range(3)], org_id=ORG
        )
        live_through(hf, clock, HOURS)
        most = max(len(attempts_of(hf, each)) for each in made)
        posts, states = len(server.requests), {state_of(hf, each).state for each in made}
        server.answers[:] = [TAKEN[refusal.kind]]
        monkeypatch.setenv("KEY", "whsec_bmV3")
        live_through(hf, clock, 1)

        assert posts <= 10
        assert most <= 10
        if refusal.is_final:
            assert states == {Stands.FAILED}
            assert posts == 3
        else:
            assert states == {Stands.PENDING}
            assert {state_of(hf, each).state for each in made} == {Stands.SENT}
            assert len(server.requests) == posts + 3


@pytest.mark.req("R-07", "R-28")
@pytest.mark.parametrize(
    "says",
    [{"AUTH": "535 no"}, {"AUTH": "534 no"}, {"MAIL": "530 log in"}, {"RCPT": "530 log in"}],
    ids=str,
)
def test_a_mail_server_that_refuses_the_login_holds_its_mails(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, says: dict[str, str]
) -> None:
    monkeypatch.setenv("KEY", "old")
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    with mail_server(dict(says), offers=("AUTH PLAIN LOGIN",), encrypted=True) as server:
        mail = ChannelSettings(
            kind="smtp",
            host="localhost",
            port=server.port,
            security="tls",
            username="ada",
            credential_env="KEY",
            sender="post@example.org",
            allow_private=True,
        )
        hf.settings = replace(hf.settings, channels={"post": mail})
        made = hf.outbox.post([letter(f"r{number}") for number in range(3)], org_id=ORG)
        live_through(hf, clock, HOURS)
        tried = sum(line.upper().startswith("EHLO") for line in server.heard)
        states = {state_of(hf, one).state for one in made}
        server.says = {}
        monkeypatch.setenv("KEY", "new")
        live_through(hf, clock, 1)

        assert tried <= 10
        assert states == {Stands.PENDING}
        assert {state_of(hf, one).state for one in made} == {Stands.SENT}
        assert len(server.mails) == 3


@pytest.mark.req("R-28")
@pytest.mark.parametrize(
    "answer", [say(429, b"{}"), say(503, b"{}"), None], ids=["429", "503", "absent"]
)
def test_a_busy_or_absent_receiver_hears_of_a_message_ten_times_at_most(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, answer: bytes | None
) -> None:
    monkeypatch.setenv("KEY", "whsec_b2xk")
    with plain_server(answer or b"") as server, deaf_port() as port:
        hf.settings = replace(hf.settings, channels={"post": settings_for("webhook", server.url)})
        url = server.url if answer else f"http://127.0.0.1:{port}"
        (one,) = hf.outbox.post([replace(letter(), address=f"{url}/hook")], org_id=ORG)
        live_through(hf, clock, HOURS)

        assert len(attempts_of(hf, one)) == 10
        assert state_of(hf, one).reason == "attempts_spent"
