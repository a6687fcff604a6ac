"""The conformance kit for channels, run on two built-in ones and on one with a wrong answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import FakeClock
from holdfast.channel.built_in import MailboxKind, WebhookKind
from holdfast.channel.channel import Capabilities, Channel, Rejected, Sent
from holdfast.channel.kind import ChannelKind
from holdfast.channel.message import Message
from holdfast.config import ChannelSettings
from holdfast.outbound.credential import Credential
from holdfast.testing import ChannelConformance, Fault
from holdfast_simulator import Simulator

FAULTS = {
    Fault.REJECT: "refused",
    Fault.THROTTLE: "throttled",
    Fault.LOSE_ANSWER: "accept_then_drop",
    Fault.TWO_MATCHES: "two_matches",
    Fault.LOOKUP_DOWN: "lookup_down",
}


class TestMailbox(ChannelConformance):
    address = "ada@example.com"
    bad_addresses = ("ada", "Ada <ada@example.com>")

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.settings = ChannelSettings(
            kind="mailbox", folder=str(tmp_path), sender="post@example.org"
        )

    def make_kind(self) -> tuple[ChannelKind, Any]:
        return MailboxKind(), self.settings

    def make_channel(self) -> Channel:
        return MailboxKind().open("mail", self.settings, {}, FakeClock())

    def count_accepted(self) -> int:
        return len(list(self.folder.glob("*.eml")))


class TestGateway(ChannelConformance):
    address = "+49 151 1"
    faults = frozenset(FAULTS)

    @pytest.fixture(autouse=True)
    def _simulator(self) -> Iterator[None]:
        self.clock = FakeClock()
        with Simulator(clock=self.clock) as self.sim:
            at = self.sim.url("webhook")
            self.settings = ChannelSettings(
                kind="webhook",
                base_url=f"{at}/hooks/sms",
                status_url=f"{at}/status/{{token}}",
                allow_private=True,
            )
            yield

    def make_kind(self) -> tuple[ChannelKind, Any]:
        return WebhookKind(), self.settings

    def make_channel(self) -> Channel:
        secrets: dict[str, Credential | None] = dict.fromkeys(
            ["credential", "secret", "previous_secret", "secrets"]
        )
        return WebhookKind().open("sms", self.settings, secrets, self.clock)

    def play(self, fault: Fault) -> None:
        self.sim.faults.add(FAULTS[fault])

    def count_accepted(self) -> int:
        return len(self.sim.messages.accepted)


class Liar:
    """Reports a message that it took as rejected."""

    name = "liar"
    capabilities = Capabilities()
    taken = 0

    def send(self, message: Message) -> Sent:
        self.taken += 1
        return Rejected(f"no {message.address}", is_permanent=True)


def test_a_channel_that_calls_a_taken_message_rejected_does_not_pass() -> None:
    liar = Liar()

    class OfLiar(ChannelConformance):
        address = "ada@example.com"
        faults = frozenset(Fault)

        def make_channel(self) -> Any:
            return liar

        def play(self, fault: Fault) -> None:
            pass

        def count_accepted(self) -> int:
            return liar.taken

    kit = OfLiar()
    for test in (
        kit.test_an_accepted_message_was_taken_once,
        kit.test_a_rejected_message_was_not_taken,
        kit.test_a_lost_answer_is_unsure_and_not_sent_again,
        kit.test_a_timeout_is_unsure,
        lambda: kit.test_no_answer_repeats_the_address_or_the_text(Fault.REJECT),
    ):
        with pytest.raises(AssertionError):
            test()
