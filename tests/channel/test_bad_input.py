"""Bad input and bad servers, from the outbox to the provider: which messages are sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from holdfast import Holdfast, Settings
from holdfast.channel.channel import Capabilities
from holdfast.channel.channels import ConfiguredChannels
from holdfast.config import ChannelSettings
from holdfast.outbox.delivery import Content, State
from holdfast.outbox.failure import InvalidDelivery
from holdfast.outbox.intend import Intended, OutgoingMessage
from tests.channel.mail_server import CUT, HANG_UP, MailServer, mail_server
from tests.channel.names import leading
from tests.outbox.scripted import attempts_of, deliver, intend_one, outbox_with, state_of
from tests.provider.plain_server import PlainServer, plain_server, reset, say
from tests.story import ORG, look

SENDER = "Holdfast <post@example.org>"
INJECTED = "Hello\r\nBcc: eve@example.com"
LETTER = OutgoingMessage(
    "review:cl-1", "ann", 1, "mail", "ann@example.com", Content("A review", "Two findings.\n")
)


def wire(hf: Holdfast, **channels: dict[str, Any]) -> None:
    """Let *hf* send through channels with these settings."""
    settings = Settings(channels={name: ChannelSettings(**one) for name, one in channels.items()})
    hf.outbox.declare()
    hf.outbox.channels = ConfiguredChannels(
        settings, clock=hf.clock, env={"KEY": "hunter2-hunter2"}
    )


@contextmanager
def mailing(hf: Holdfast, says: dict[str, str] | None = None) -> Iterator[MailServer]:
    """Send mail through a server that answers this."""
    with mail_server(says) as server:
        options = {"host": "localhost", "security": "none", "allow_private": True}
        wire(hf, mail={"kind": "smtp", "port": server.port, "sender": SENDER, **options})
        yield server


@contextmanager
def posting(
    hf: Holdfast, *answers: Any, **options: Any
) -> Iterator[tuple[PlainServer, OutgoingMessage]]:
    """Post webhooks to a server that answers this."""
    with plain_server(*answers) as server:
        wire(hf, hooks={"kind": "webhook", "allow_private": True, **options})
        yield server, replace(LETTER, channel="hooks", address=f"{server.url}/hook")


def codes(hf: Holdfast, one: Intended) -> list[tuple[str, str, str | None]]:
    return [(row["reason"], row["outcome"], row["code"]) for row in attempts_of(hf, one)]


def try_again(hf: Holdfast, one: Intended) -> State:
    """Deliver again, with no other obstacle than the delivery itself."""
    hf.clock.advance(hours=1)  # type: ignore[attr-defined]
    return deliver(hf, one).state


def verbs(server: MailServer) -> list[str]:
    return [line.split(" ")[0].upper() for line in server.heard]


def body(request: bytes) -> bytes:
    return request.split(b"\r\n\r\n", 1)[1]


# -- refused before any write


SMUGGLED: list[dict[str, Any]] = [
    {"content": Content(INJECTED, "Hello.")},
    {"content": Content("Hello\u2028Bcc: eve@example.com", "Hello.")},
    {"address": "ann@example.com\r\nBcc: eve@example.com"},
    {"address": "ann@example.com,eve@example.com"},
    {"address": "Ann <ann@example.com>"},
    {"channel": "postmark", "content": Content(INJECTED, "Hello.")},
    {"channel": "hooks", "address": "https://example.com/\r\nX-Evil: 1"},
    {"channel": "hooks", "address": "https://ann:secret@example.com/hook"},
    {"channel": "hooks", "address": "http://example.com/hook"},
    {"channel": "hooks", "address": "https://127.1/hook"},
    {"channel": "hooks", "address": "https://example.com:6379/hook"},
    {"channel": "team", "address": "#general"},
]


def test_an_injected_address_or_header_is_refused_and_nothing_is_written(
    hf: Holdfast,
) -> None:
    keyed = {"credential_env": "KEY"}
    wire(
        hf,
        mail={"kind": "smtp", "host": "smtp.example.com", "sender": SENDER},
        postmark={"kind": "postmark", "sender": SENDER, **keyed},
        hooks={"kind": "webhook"},
        team={"kind": "slack", **keyed},
    )
    for given in SMUGGLED:
        with pytest.raises(InvalidDelivery) as told:
            hf.outbox.intend([LETTER, replace(LETTER, recipient="bob", **given)], org_id=ORG)
        assert "eve" not in str(told.value)
        assert "secret" not in str(told.value)

    assert look(hf.store, "SELECT id FROM holdfast.delivery") == []


def test_a_text_of_eight_megabytes_is_refused_and_nothing_is_written(hf: Holdfast) -> None:
    large = replace(LETTER, content=Content("A review", "x" * 8_000_000))
    with mailing(hf) as server, pytest.raises(InvalidDelivery, match="at most 1000000 characters"):
        hf.outbox.intend([large], org_id=ORG)

    assert look(hf.store, "SELECT id FROM holdfast.delivery") == []
    assert server.heard == []


def test_a_text_that_the_channel_cannot_take_is_refused_and_nothing_is_written(
    hf: Holdfast,
) -> None:
    wire(hf, team={"kind": "slack", "credential_env": "KEY"})
    long = replace(LETTER, channel="team", address="C0123", content=Content("A", "x" * 40_000))
    with pytest.raises(InvalidDelivery, match="at most 40000 characters"):
        hf.outbox.intend([replace(long, recipient="bob", content=LETTER.content), long], org_id=ORG)

    own = outbox_with(hf, Capabilities(longest_text=100))
    with pytest.raises(InvalidDelivery, match="at most 100 characters"):
        intend_one(hf, replace(long, channel=own.name))
    assert look(hf.store, "SELECT id FROM holdfast.delivery") == []


def test_a_header_in_the_clothes_of_an_encoded_word_stays_a_text(hf: Holdfast) -> None:
    hidden = "word " * 20 + "=?utf-8?q?Hello=0D=0ABcc:_eve@example.com?="
    with mailing(hf) as server:
        one = intend_one(hf, replace(LETTER, content=Content(hidden, "Hello.")))
        assert deliver(hf, one).state is State.SENT

    head = server.mails[0].split(b"\r\n\r\n")[0]
    assert b"\nBcc" not in head
    assert [line for line in server.heard if line.startswith("rcpt")] == [
        "rcpt TO:<ann@example.com>"
    ]


# -- mail


def test_an_address_that_does_not_exist_is_refused_for_good_and_nothing_is_sent(
    hf: Holdfast,
) -> None:
    with mailing(hf, {"RCPT": "550 5.1.1 no such mailbox"}) as server:
        one = intend_one(hf, LETTER)
        stands = deliver(hf, one)
        assert try_again(hf, one) is State.FAILED
        hf.outbox.reconcile()

    assert (stands.state, stands.reason, stands.notified_at) == (State.FAILED, "smtp_550", None)
    assert codes(hf, one) == [("first", "refused", "smtp_550")]
    assert verbs(server) == ["EHLO", "MAIL", "RCPT", "QUIT"]


NOT_TAKEN = [
    ({"RCPT": "450 4.2.0 greylisted"}, "rejected", "smtp_450"),
    ({"RCPT": "421 4.3.2 going away"}, "throttled", "smtp_421"),
    ({"greeting": "421 4.3.2 too many"}, "throttled", "smtp_421"),
    ({"DATA": HANG_UP}, "rejected", "unreachable"),
    ({"dot": "451 4.3.0 try again"}, "rejected", "smtp_451"),
    ({"dot": "452 4.3.1 full"}, "throttled", "smtp_452"),
]


def test_what_was_not_taken_is_sent_again_to_the_byte(hf: Holdfast) -> None:
    letter = replace(LETTER, content=Content("Grüße", "Two findings.\n", "<p>Two</p>"))
    for version, (says, outcome, code) in enumerate(NOT_TAKEN, 1):
        with mailing(hf, says) as server:
            one = intend_one(hf, replace(letter, version=version))
            assert deliver(hf, one).state is State.PENDING
            server.says = {}
            assert try_again(hf, one) is State.SENT
            assert try_again(hf, one) is State.SENT

        assert codes(hf, one) == [("first", outcome, code), ("proven_not_taken", "accepted", None)]
        assert len(server.mails) == (2 if "dot" in says else 1)
        assert len(set(server.mails)) == 1
        assert b"Date: " in server.mails[0]


def test_a_connection_that_breaks_before_the_final_dot_loses_and_doubles_nothing(
    hf: Holdfast,
) -> None:
    large = replace(LETTER, content=Content("A review", "word " * 199_000))
    with mailing(hf, {"EHLO": "250 here", "dot": CUT}) as server:
        one = intend_one(hf, large)
        assert deliver(hf, one).state is State.PENDING
        server.says = {"EHLO": "250 here"}
        assert try_again(hf, one) is State.SENT

    assert codes(hf, one)[0] == ("first", "rejected", "unreachable")
    assert len(server.mails) == 1


def test_an_answer_that_is_lost_after_the_final_dot_leaves_the_mail_to_a_person(
    hf: Holdfast,
) -> None:
    lost = [(HANG_UP, "no_answer"), ("421 4.3.2 going away", "smtp_421")]
    for version, (dot, code) in enumerate(lost, 1):
        with mailing(hf, {"dot": dot}) as server:
            one = intend_one(hf, replace(LETTER, version=version))
            stands = deliver(hf, one)
            server.says = {}
            assert try_again(hf, one) is State.HELD
            hf.outbox.reconcile()

        assert (stands.state, stands.reason) == (State.HELD, "unknown")
        assert codes(hf, one) == [("first", "unsure", code)]
        assert len(server.mails) == 1


# -- webhooks


def test_a_repeated_webhook_has_the_same_body_and_id_and_a_time_of_its_own(hf: Holdfast) -> None:
    with posting(hf, reset, say(200, b'{"id": "rcv_1"}')) as (server, letter):
        one = intend_one(hf, letter)
        assert deliver(hf, one).state is State.PENDING
        assert try_again(hf, one) is State.SENT

    first, second = server.requests
    token = state_of(hf, one).token.encode()
    assert body(first) == body(second)
    assert first.count(b"webhook-id: " + token) == second.count(b"webhook-id: " + token) == 1
    assert first.split(b"\r\n\r\n")[0] != second.split(b"\r\n\r\n")[0]
    assert codes(hf, one)[1] == ("receiver_dedupes", "accepted", None)


def test_a_webhook_to_a_private_address_is_refused_permanently_without_a_call(
    hf: Holdfast,
) -> None:
    wire(hf, hooks={"kind": "webhook"})
    letter = replace(LETTER, channel="hooks", address="https://hooks.example.com/hook")
    private = ["10.0.0.7", "127.0.0.1", "169.254.169.254", "64:ff9b::a00:7"]
    for version, leads_to in enumerate(private, 1):
        with leading("hooks.example.com", leads_to) as asked, _refusing_connections():
            one = intend_one(hf, replace(letter, version=version))
            stands = deliver(hf, one)
            assert try_again(hf, one) is State.FAILED

        assert (stands.state, stands.reason) == (State.FAILED, "address_refused")
        assert codes(hf, one) == [("first", "refused", "address_refused")]
        assert asked == ["hooks.example.com"]


@contextmanager
def _refusing_connections() -> Iterator[None]:
    def refuse(*args: Any, **options: Any) -> Any:
        raise AssertionError("somebody was called")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpcore2.SyncBackend.connect_tcp", refuse)
        yield


def test_a_redirect_is_not_followed_and_ends_it(hf: Holdfast) -> None:
    for status in (307, 308):
        with plain_server(say(200, b"")) as elsewhere:
            moved = say(status, b"", f"Location: {elsewhere.url}/")
            with posting(hf, moved) as (server, letter):
                one = intend_one(hf, replace(letter, version=status))
                stands = deliver(hf, one)
                assert try_again(hf, one) is State.FAILED

        assert (stands.state, stands.reason) == (State.FAILED, f"status_{status}")
        assert (len(server.requests), elsewhere.requests) == (1, [])


def test_a_redirect_that_may_follow_a_taken_message_is_not_followed_either(hf: Holdfast) -> None:
    with plain_server(say(200, b"")) as elsewhere:
        moved = say(302, b"", f"Location: {elsewhere.url}/")
        with posting(hf, moved, receiver_dedupes=False) as (server, letter):
            one = intend_one(hf, letter)
            stands = deliver(hf, one)
            assert try_again(hf, one) is State.HELD

    assert (stands.state, stands.reason) == (State.HELD, "unknown")
    assert (len(server.requests), elsewhere.requests) == (1, [])


@pytest.mark.parametrize("kind", ["mail", "hooks"])
def test_a_name_whose_answer_changes_is_looked_at_again_before_the_next_message(
    hf: Holdfast, kind: str
) -> None:
    answers = ("127.0.0.1", "169.254.169.254")
    with (
        mail_server() as mails,
        plain_server(say(200, b"")) as hooks,
        leading("far.example.com", *answers) as asked,
    ):
        own = {"allow_private": True}
        smtp = {"kind": "smtp", "security": "none", "sender": SENDER, "host": "far.example.com"}
        wire(hf, mail={**own, **smtp, "port": mails.port}, hooks={**own, "kind": "webhook"})
        letter = LETTER
        if kind == "hooks":
            address = f"http://far.example.com:{hooks.port}/hook"
            letter = replace(LETTER, channel="hooks", address=address)
        first = intend_one(hf, letter)
        assert deliver(hf, first).state is State.SENT
        assert asked == ["far.example.com"]
        second = intend_one(hf, replace(letter, version=2))
        deliver(hf, second)

    assert codes(hf, second)[0][2] == "address_refused"
    assert len(mails.mails) + len(hooks.requests) == 1


def test_a_credential_goes_to_the_server_that_was_declared_and_to_no_other(hf: Holdfast) -> None:
    with plain_server(say(200, b"")) as elsewhere:
        moved = say(307, b"", f"Location: {elsewhere.url}/")
        with plain_server(moved) as server:
            gateway = {"kind": "webhook", "base_url": server.url, "credential_env": "KEY"}
            wire(hf, sms={**gateway, "allow_private": True})
            letter = replace(LETTER, channel="sms", address=f"{elsewhere.url}/hook")
            one = intend_one(hf, letter)
            deliver(hf, one)

    assert b"authorization: Bearer hunter2-hunter2" in server.requests[0]
    assert elsewhere.requests == []
