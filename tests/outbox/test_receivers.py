"""Messages to receivers with bad answers or refusals: from the outbox to a real socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.config import ChannelSettings
from holdfast.outbound import client
from holdfast.outbox.circuit import OPEN
from holdfast.outbox.delivery import State as Stands
from holdfast.outbox.intend import Intended
from tests.channel.hostile import ANSWERS
from tests.channel.mail_server import PEM, mail_server
from tests.channel.names import deaf_port
from tests.outbox.long_time import live_through
from tests.outbox.receiver_table import HOURS, MOST, OUTAGE_HOURS, TABLE, Cell
from tests.outbox.refusals import (
    ADDRESSES,
    REFUSALS,
    SOME_REFUSALS,
    TAKEN,
    Refusal,
    settings_for,
)
from tests.outbox.scripted import attempts_of, deliver, intend_one, letter, state_of
from tests.provider.plain_server import PlainServer, plain_server, say
from tests.story import ORG

# The channel tests cover the others, and so does make outbox-faults.
SOME = ("without_length", "wrong_chunks", "dripping", "bad_header")


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
@pytest.mark.parametrize("name", list(ANSWERS) if TABLE else SOME)
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
        cell = cell_of(hf, "webhook", f"{status} {name}", [one], posts=len(server.requests))
        replace(cell, wanted=str(state), state=str(stands.state), most_posts=1).check()


# -- refusals of the account


@pytest.mark.req("R-07", "R-08", "R-28")
@pytest.mark.parametrize("refusal", REFUSALS if TABLE else SOME_REFUSALS, ids=str)
def test_a_refused_credential_is_not_tried_for_days_and_its_change_lets_everything_continue(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, refusal: Refusal
) -> None:
    monkeypatch.setenv("KEY", "whsec_b2xk")
    with plain_server(refusal.answer) as server:
        made = post_three(hf, refusal.kind, server.url)
        live_through(hf, clock, HOURS)
        posts = len(server.requests)
        cell = cell_of(hf, refusal.kind, refusal.word, made, posts=posts)
        server.answers[:] = [TAKEN[refusal.kind]]
        monkeypatch.setenv("KEY", "whsec_bmV3")
        live_through(hf, clock, 1)

        if refusal.is_final:
            replace(cell, wanted="failed", most_posts=3).check()
            return
        cell = replace(cell, wanted="pending", most_posts=MOST)
        replace(cell, repaired=state_of_all(hf, made), wanted_repaired="sent").check()
        # One probe, and then all others.
        assert len(server.requests) == posts + 3


@pytest.mark.req("R-07", "R-28")
@pytest.mark.parametrize(
    "says",
    [
        {"AUTH": "535 no"},
        {"MAIL": "530 log in"},
        {"RCPT": "530 log in"},
        *([{"AUTH": "534 no"}, {"AUTH": "530 no"}, {"MAIL": "535 no"}] if TABLE else []),
    ],
    ids=str,
)
def test_a_mail_server_that_refuses_the_login_holds_its_mails(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, says: dict[str, str]
) -> None:
    monkeypatch.setenv("KEY", "old")
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    with mail_server(dict(says), offers=("AUTH PLAIN LOGIN",), encrypted=True) as server:
        send_by_mail(hf, server.port)
        made = hf.outbox.post([letter(f"r{number}") for number in range(3)], org_id=ORG)
        live_through(hf, clock, HOURS)
        tried = sum(line.upper().startswith("EHLO") for line in server.heard)
        ((command, answer),) = says.items()
        cell = cell_of(hf, "smtp", f"{command} {answer[:3]}", made, posts=tried)
        server.says = {}
        monkeypatch.setenv("KEY", "new")
        live_through(hf, clock, 1)

        cell = replace(cell, wanted="pending", most_posts=MOST)
        replace(cell, repaired=state_of_all(hf, made), wanted_repaired="sent").check()
        assert len(server.taken) == 3


# -- receivers that are busy or absent

# make outbox-faults runs the others.
KINDS = list(TAKEN) if TABLE else ["webhook"]


@pytest.mark.req("R-28")
@pytest.mark.parametrize(
    ("kind", "fault"),
    [("webhook", "503"), *((kind, fault) for kind in KINDS for fault in ("429", "absent"))],
)
def test_a_busy_or_absent_receiver_hears_of_a_message_ten_times_at_most(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, kind: str, fault: str
) -> None:
    monkeypatch.setenv("KEY", "whsec_b2xk")
    answer = say(503 if fault == "503" else 429, b"{}")
    with plain_server(answer) as server, deaf_port() as port:
        url = f"http://127.0.0.1:{port}" if fault == "absent" else server.url
        made = post_three(hf, kind, url)
        live_through(hf, clock, OUTAGE_HOURS)

        cell = cell_of(hf, kind, fault, made, posts=len(server.requests))
        # A receiver that failed may have accepted the message before.
        wanted = "held" if fault == "503" else "failed"
        replace(cell, wanted=wanted, most_posts=3 * MOST).check()
        assert {state_of(hf, one).reason for one in made} == {"attempts_spent"}


@pytest.mark.req("R-28")
@pytest.mark.parametrize("fault", ["greeting 421", "RCPT 452", "absent"])
def test_a_busy_or_absent_mail_server_hears_of_a_mail_ten_times_at_most(
    hf: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setenv("KEY", "old")
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    command, _, code = fault.partition(" ")
    says = {command: f"{code} later"} if code else {}
    with (
        mail_server(says, offers=("AUTH PLAIN LOGIN",), encrypted=True) as server,
        deaf_port() as port,
    ):
        send_by_mail(hf, port if fault == "absent" else server.port)
        made = hf.outbox.post([letter(f"r{number}") for number in range(3)], org_id=ORG)
        live_through(hf, clock, OUTAGE_HOURS)

        tried = sum(line.upper().startswith("EHLO") for line in server.heard)
        cell = cell_of(hf, "smtp", fault, made, posts=tried)
        replace(cell, wanted="failed", most_posts=3 * MOST).check()
        assert server.taken == []


def post_three(hf: Holdfast, kind: str, url: str) -> list[Intended]:
    """Three messages to one receiver of that kind."""
    hf.settings = replace(hf.settings, channels={"post": settings_for(kind, url)})
    address = ADDRESSES[kind].format(url=url)
    letters = [replace(letter(f"r{number}"), address=address) for number in range(3)]
    return hf.outbox.post(letters, org_id=ORG)


def send_by_mail(hf: Holdfast, port: int) -> None:
    mail = ChannelSettings(
        kind="smtp",
        host="localhost",
        port=port,
        security="tls",
        username="ada",
        credential_env="KEY",
        sender="post@example.org",
        allow_private=True,
    )
    hf.settings = replace(hf.settings, channels={"post": mail})


def state_of_all(hf: Holdfast, made: Sequence[Intended]) -> str:
    return " ".join(sorted({str(state_of(hf, one).state) for one in made}))


def cell_of(
    hf: Holdfast, channel: str, fault: str, made: Sequence[Intended], *, posts: int
) -> Cell:
    """The results of these messages so far; the caller specifies the expected state."""
    # An attempt that found the circuit open made no call.
    tries = [[row for row in attempts_of(hf, one) if row["code"] != OPEN] for one in made]
    most = max(map(len, tries))
    database = hf.settings.db.partition(":")[0]
    state = state_of_all(hf, made)
    return Cell(channel, fault, database, len(made), posts, most, state, "", 0)
