"""Every channel against the simulator: its answers match the simulator's ledger of messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import FakeClock, Settings
from holdfast.channel.channel import (
    Accepted,
    Ambiguous,
    Channel,
    Found,
    LookupFailed,
    LookupKey,
    NotFound,
    Rejected,
    Throttled,
    Unsure,
)
from holdfast.channel.channels import ConfiguredChannels
from holdfast.channel.message import Message
from holdfast.config import ChannelSettings
from holdfast_simulator import Simulator

SENDER = "Holdfast <post@example.org>"
KINDS = ["smtp", "smtps", "postmark", "resend", "slack", "webhook", "hook"]
ASKABLE = ["postmark", "slack", "webhook"]


@pytest.fixture
def sim(clock: FakeClock) -> Iterator[Simulator]:
    with Simulator(clock=clock) as running:
        yield running
        assert running.journal.defects == []


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class Wired:
    """A channel of every kind, wired to the simulator."""

    def __init__(self, sim: Simulator, clock: FakeClock, folder: Path) -> None:
        (folder / "ca.pem").write_text(sim.smtp.certificate)
        (folder / "smtps.pem").write_text(sim.smtps.certificate)
        own: dict[str, Any] = {"allow_private": True}
        keyed = {**own, "credential_env": "KEY"}
        login = {"username": "ada", "sender": SENDER, "host": "localhost", **keyed}
        hook = sim.url("webhook")
        settings = {
            "smtp": dict(login, kind="smtp", port=sim.smtp.port, ca_file=str(folder / "ca.pem")),
            "smtps": dict(
                login,
                kind="smtp",
                port=sim.smtps.port,
                security="tls",
                ca_file=str(folder / "smtps.pem"),
            ),
            "postmark": dict(keyed, kind="postmark", base_url=sim.url("postmark"), sender=SENDER),
            "resend": dict(keyed, kind="resend", base_url=sim.url("resend"), sender=SENDER),
            "slack": dict(keyed, kind="slack", base_url=sim.url("slack")),
            "webhook": dict(
                keyed,
                kind="webhook",
                base_url=f"{hook}/hooks/sms",
                status_url=f"{hook}/status/{{token}}",
                secret_env="SECRET",
            ),
            "hook": dict(own, kind="webhook", secret_env="SECRET"),
        }
        self.sim = sim
        self.clock = clock
        self.channels = ConfiguredChannels(
            Settings(channels={name: ChannelSettings(**given) for name, given in settings.items()}),
            clock=clock,
            env={"KEY": "hunter2-hunter2", "SECRET": "whsec_MDEyMzQ1Njc4OWFiY2RlZg=="},
        )

    def of(self, kind: str) -> Channel:
        return self.channels.require(kind)

    def message(self, kind: str) -> Message:
        address = {
            "slack": "C0123456789",
            "webhook": "+49 151 1",
            "hook": f"{self.sim.url('webhook')}/hooks/own",
        }.get(kind, "ada@example.com")
        text = "Two findings.\n.\nEnd.\n"
        return Message("hf_1", address, "Review", text, "<p>Two</p>", at=self.clock.now())

    def asked(self, kind: str, provider_id: str | None = None) -> LookupKey:
        address = self.message(kind).address
        return LookupKey("hf_1", address, "hash", self.clock.now(), provider_id)


@pytest.fixture
def wired(sim: Simulator, clock: FakeClock, tmp_path: Path) -> Wired:
    sim.messages.webhook_secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZg=="
    sim.smtp.users["ada"] = sim.smtps.users["ada"] = "hunter2-hunter2"
    return Wired(sim, clock, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_channel_calls_accepted_was_taken_once_under_our_token(
    wired: Wired, kind: str
) -> None:
    sent = wired.of(kind).send(wired.message(kind))

    (taken,) = wired.sim.messages.accepted
    assert isinstance(sent, Accepted)
    assert taken.token.startswith("hf_1")
    if not kind.startswith("smtp"):
        assert sent.provider_id == taken.id


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["accept_then_drop", "error_after_accept", "truncated_answer"])
def test_what_was_taken_and_not_answered_for_is_never_called_rejected(
    wired: Wired, kind: str, fault: str
) -> None:
    wired.sim.faults.add(fault)

    sent = wired.of(kind).send(wired.message(kind))

    # The status was read before the answer was cut off: over HTTP that is an answer.
    is_answered = fault == "truncated_answer" and not kind.startswith("smtp")
    assert isinstance(sent, Accepted if is_answered else Unsure)
    assert len(wired.sim.messages.accepted) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_recipient_that_is_refused_for_good_is_not_tried_again(wired: Wired, kind: str) -> None:
    wired.sim.faults.add("refused")

    sent = wired.of(kind).send(wired.message(kind))

    assert isinstance(sent, Rejected)
    assert sent.is_permanent
    assert wired.sim.messages.accepted == []


@pytest.mark.parametrize("kind", KINDS)
def test_who_has_no_room_took_nothing(wired: Wired, kind: str) -> None:
    wired.sim.faults.add("throttled")

    sent = wired.of(kind).send(wired.message(kind))

    assert isinstance(sent, Throttled)
    assert sent.retry_after == (None if kind.startswith("smtp") else 30.0)
    assert wired.sim.messages.accepted == []


@pytest.mark.parametrize("kind", ASKABLE)
def test_a_message_without_an_answer_is_found_by_its_token(wired: Wired, kind: str) -> None:
    asked = wired.asked(kind)
    wired.sim.faults.add("accept_then_drop")

    assert wired.of(kind).lookup(asked) == NotFound()
    wired.of(kind).send(wired.message(kind))

    (taken,) = wired.sim.messages.accepted
    seen = wired.of(kind).lookup(asked)
    assert isinstance(seen, Found)
    assert seen.provider_id == taken.id
    assert wired.of(kind).lookup(replace(asked, token="hf_2")) == NotFound()


@pytest.mark.parametrize("kind", ASKABLE)
def test_what_is_found_twice_or_not_answered_is_said_so(wired: Wired, kind: str) -> None:
    wired.of(kind).send(wired.message(kind))

    wired.sim.faults.add("two_matches")
    assert wired.of(kind).lookup(wired.asked(kind)) == Ambiguous(2)
    wired.sim.faults.add("lookup_down")
    assert isinstance(wired.of(kind).lookup(wired.asked(kind)), LookupFailed)


def test_a_mail_found_at_another_recipient_is_a_question(wired: Wired) -> None:
    wired.of("postmark").send(wired.message("postmark"))
    wired.sim.faults.add("another_recipient")

    assert wired.of("postmark").lookup(wired.asked("postmark")) == Ambiguous(1)


@pytest.mark.parametrize("kind", ["postmark", "resend", "webhook"])
def test_a_bounced_message_is_found_as_not_delivered(wired: Wired, kind: str) -> None:
    wired.sim.faults.add("given_up")
    sent = wired.of(kind).send(wired.message(kind))
    assert isinstance(sent, Accepted)

    seen = wired.of(kind).lookup(wired.asked(kind, sent.provider_id))

    assert isinstance(seen, Found)
    assert not seen.is_delivered


@pytest.mark.parametrize("kind", ["resend", "hook"])
def test_a_repeated_token_is_taken_once_where_that_is_promised(wired: Wired, kind: str) -> None:
    message = wired.message(kind)
    wired.sim.faults.add("accept_then_drop")

    first = wired.of(kind).send(message)
    second = wired.of(kind).send(message)

    (taken,) = wired.sim.messages.accepted
    assert isinstance(first, Unsure)
    assert second == Accepted(taken.id)
