"""A conformance kit for channels. Subclass ChannelConformance and describe your channel.

    class TestPager(ChannelConformance):
        address = "4711"
        bad_addresses = ("not a number", "4711\\nBcc: 4712")
        faults = frozenset({Fault.REJECT, Fault.LOSE_ANSWER})

        def make_channel(self): ...
        def play(self, fault): ...
        def count_accepted(self): ...

pytest runs the inherited tests. Tests of faults that your test server cannot play are skipped, and
so are tests of lookups that the channel does not support.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar

import pytest

from holdfast.channel.channel import (
    Accepted,
    Ambiguous,
    Capabilities,
    Channel,
    ChannelRefused,
    Found,
    Lookup,
    LookupFailed,
    LookupKey,
    NotFound,
    Rejected,
    Sent,
    Throttled,
    Unsure,
)
from holdfast.channel.kind import ChannelKind
from holdfast.channel.message import Message

TOKEN, OTHER_TOKEN = "hf_conformance_1", "hf_conformance_2"
SECRET_TEXT = "the text of one person"  # noqa: S105
INJECTION = ("\r\nBcc: eve@example.com", "\nX-Extra: 1", "\x00", "\u2028")


class Fault(StrEnum):
    """How the test server treats the next message or lookup."""

    # Rejects this message permanently.
    REJECT = "reject"
    # Throttles, with Retry-After: 30.
    THROTTLE = "throttle"
    # Rejects the credential.
    REFUSE_CHANNEL = "refuse_channel"
    # Accepts the message and closes the connection without a reply.
    LOSE_ANSWER = "lose_answer"
    # Does not reply within the channel's timeout.
    TIME_OUT = "time_out"
    # Finds two messages for one token.
    TWO_MATCHES = "two_matches"
    # Does not reply to lookups.
    LOOKUP_DOWN = "lookup_down"


class ChannelConformance:
    """The tests that every channel must pass. Subclasses create the channel and inject faults."""

    address: ClassVar[str]
    """An address that the channel accepts."""

    bad_addresses: ClassVar[tuple[str, ...]] = ()
    """Addresses that it must reject: malformed ones, and private ones if it calls addresses."""

    faults: ClassVar[frozenset[Fault]] = frozenset()
    """The faults that :meth:`play` can play."""

    retry_after: ClassVar[float | None] = 30.0
    """The delay that the channel reads from a throttled reply; None if its protocol has none."""

    def make_channel(self) -> Channel:
        """Create the channel, connected to a server that the test controls."""
        raise NotImplementedError

    def make_kind(self) -> tuple[ChannelKind, Any] | None:
        """The registered kind and its settings, to test what is rejected before it is stored."""
        return None

    def play(self, fault: Fault) -> None:
        """Make the test server play this fault for the next call."""
        raise NotImplementedError

    def count_accepted(self) -> int:
        """The number of messages that the test server has accepted."""
        raise NotImplementedError

    # -- sending

    def test_an_accepted_message_was_taken_once(self) -> None:
        sent = self._send()

        assert isinstance(sent, Accepted)
        assert sent.provider_id
        assert self.count_accepted() == 1

    def test_a_rejected_message_was_not_taken(self) -> None:
        sent = self._send_during(Fault.REJECT)

        assert isinstance(sent, Rejected)
        assert sent.is_permanent
        assert self.count_accepted() == 0

    def test_a_throttled_message_was_not_taken(self) -> None:
        sent = self._send_during(Fault.THROTTLE)

        assert isinstance(sent, Throttled)
        assert sent.retry_after == self.retry_after
        assert self.count_accepted() == 0

    def test_a_refused_credential_concerns_the_channel(self) -> None:
        sent = self._send_during(Fault.REFUSE_CHANNEL)

        assert isinstance(sent, ChannelRefused)
        assert self.count_accepted() == 0

    def test_a_lost_answer_is_unsure_and_not_sent_again(self) -> None:
        sent = self._send_during(Fault.LOSE_ANSWER)

        assert isinstance(sent, Unsure), "the message was taken: Rejected would send it twice"
        assert self.count_accepted() == 1

    def test_a_timeout_is_unsure(self) -> None:
        assert isinstance(self._send_during(Fault.TIME_OUT), Unsure)

    @pytest.mark.parametrize("fault", sorted(Fault))
    def test_no_answer_repeats_the_address_or_the_text(self, fault: Fault) -> None:
        if fault in (Fault.TWO_MATCHES, Fault.LOOKUP_DOWN):
            pytest.skip("a fault of the lookup")
        said = repr(self._send_during(fault))

        assert SECRET_TEXT not in said
        assert self.address not in said

    # -- lookup

    def test_a_message_is_found_by_its_token(self) -> None:
        channel = self._askable()
        assert channel.lookup(_asked(self.address)) == NotFound()

        channel.send(self._message())

        assert isinstance(channel.lookup(_asked(self.address)), Found)
        other = replace(_asked(self.address), token=OTHER_TOKEN)
        assert channel.lookup(other) == NotFound()

    def test_several_matches_are_not_one(self) -> None:
        channel = self._askable()
        channel.send(self._message())
        self._play(Fault.TWO_MATCHES)

        assert isinstance(channel.lookup(_asked(self.address)), Ambiguous)

    def test_a_lookup_without_an_answer_is_not_a_no(self) -> None:
        channel = self._askable()
        self._play(Fault.LOOKUP_DOWN)

        assert isinstance(channel.lookup(_asked(self.address)), LookupFailed)

    # -- rejected before storing

    def test_bad_addresses_and_headers_are_refused_and_not_repeated(self) -> None:
        kind, settings = self._kind()
        broken = [f"{self.address}{ending}" for ending in INJECTION]

        assert kind.problem(settings, self.address, "Hello", "Hello.") is None
        for address in (*self.bad_addresses, *broken):
            says = kind.problem(settings, address, "Hello", "Hello.")
            assert says, f"{address!r} is taken"
            assert address not in says
        for ending in INJECTION:
            assert kind.problem(settings, self.address, f"Hello{ending}", "Hello.")

    def test_a_text_above_the_limit_is_refused(self) -> None:
        kind, settings = self._kind()
        longest = self.make_channel().capabilities.longest_text
        if longest is None:
            pytest.skip("the channel declares no limit")

        says = kind.problem(settings, self.address, "Hello", "x" * (longest + 1))

        assert says
        assert "xxx" not in says

    def test_the_capabilities_are_declared(self) -> None:
        channel = self.make_channel()

        assert isinstance(channel.capabilities, Capabilities)
        assert channel.name

    # -- helpers

    def _message(self) -> Message:
        return Message(
            TOKEN, self.address, "Hello", SECRET_TEXT, at=datetime(2026, 1, 1, tzinfo=UTC)
        )

    def _send(self) -> Sent:
        return self.make_channel().send(self._message())

    def _send_during(self, fault: Fault) -> Sent:
        channel = self.make_channel()
        self._play(fault)
        return channel.send(self._message())

    def _play(self, fault: Fault) -> None:
        if fault not in self.faults:
            pytest.skip(f"the far end of this test cannot play {fault}")
        self.play(fault)

    def _askable(self) -> Channel:
        channel = self.make_channel()
        if channel.capabilities.lookup is not Lookup.BY_OUR_TOKEN:
            pytest.skip("the channel cannot be asked by token")
        return channel

    def _kind(self) -> tuple[ChannelKind, Any]:
        found = self.make_kind()
        if found is None:
            pytest.skip("make_kind() gives no kind")
        return found


def _asked(address: str) -> LookupKey:
    return LookupKey(TOKEN, address, "", datetime(2026, 1, 1, tzinfo=UTC))
