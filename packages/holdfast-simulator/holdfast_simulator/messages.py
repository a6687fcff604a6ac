"""The message oracle: the messages that were accepted, by token and recipient.

Tests judge a channel by this record and not by its answers. A message that was accepted twice is
listed twice, whatever the sender was answered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from holdfast_simulator.exchange import Op
from holdfast_simulator.faults import Faults, Moment


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """One received message to one recipient. *wire* has the bytes that were sent."""

    provider: str
    account: str
    token: str
    address: str = field(repr=False)
    subject: str = field(repr=False)
    text: str = field(repr=False)
    wire: bytes = field(repr=False)
    html: str | None = field(default=None, repr=False)
    # What the provider returns about it: metadata, tags, the sender.
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def unit(self) -> tuple[str, str]:
        """The unit of deduplication: token and recipient, or without a token the text."""
        told = f"{self.subject}\n{self.text}".encode()
        return (self.token or "sha256:" + hashlib.sha256(told).hexdigest(), self.address)

    @property
    def body_hash(self) -> str:
        """A hash of the bytes that were sent."""
        return hashlib.sha256(self.wire).hexdigest()


@dataclass(slots=True)
class Taken:
    """A message that a provider accepted. *repeats* are later attempts that it recognized."""

    id: str
    letter: ReceivedMessage
    at: datetime
    # Lookups find it from this time on.
    found_from: datetime
    is_given_up: bool = False
    repeats: list[ReceivedMessage] = field(default_factory=list)

    @property
    def token(self) -> str:
        """The idempotency token of the message."""
        return self.letter.token

    @property
    def address(self) -> str:
        """The address of the recipient."""
        return self.letter.address

    @property
    def provider(self) -> str:
        """The provider that accepted it."""
        return self.letter.provider


class Messages:
    """All accepted messages, in order. Reading them advances the simulation first."""

    def __init__(
        self, now: Callable[[], datetime], pass_time: Callable[[], None], faults: Faults
    ) -> None:
        self._now = now
        self._pass_time = pass_time
        self._faults = faults
        # If set, the webhook receiver checks signatures: "whsec_" and base64.
        self.webhook_secret: str | None = None
        self._taken: list[Taken] = []
        self._count = 0
        # The fault that applies to the current request. Guarded by the state's lock.
        self._is_forgetful = False
        self._is_losing = False
        self._doubles: str | None = None

    # -- the interface for tests

    @property
    def accepted(self) -> list[Taken]:
        """The accepted messages, in order, without recognized repeats."""
        self._pass_time()
        return list(self._taken)

    def by_unit(self) -> dict[tuple[str, str], list[Taken]]:
        """The accepted messages by token and recipient."""
        found: dict[tuple[str, str], list[Taken]] = {}
        for taken in self.accepted:
            found.setdefault(taken.letter.unit, []).append(taken)
        return found

    def accepted_twice(self) -> dict[tuple[str, str], list[Taken]]:
        """The messages that were accepted more than once. It should be empty."""
        return {unit: taken for unit, taken in self.by_unit().items() if len(taken) > 1}

    def with_token(self, token: str) -> list[Taken]:
        """The messages that were accepted under a token."""
        return [taken for taken in self.accepted if taken.token == token]

    def to(self, address: str) -> list[Taken]:
        """The messages that were accepted for a recipient."""
        return [taken for taken in self.accepted if taken.address == address]

    def clear(self) -> None:
        """Forget all messages."""
        self._taken.clear()
        self._count = 0

    # -- the interface for providers

    def next_number(self) -> int:
        """Return an unused message number."""
        self._count += 1
        return self._count

    def known(self, letter: ReceivedMessage, memory: timedelta | None = None) -> Taken | None:
        """Return the message that this provider accepted under the same token, if remembered."""
        if self._is_forgetful or not letter.token:
            return None
        for taken in reversed(self._taken):
            is_same = taken.letter.unit == letter.unit and taken.provider == letter.provider
            if is_same and taken.letter.account == letter.account:
                is_remembered = memory is None or self._now() < taken.at + memory
                return taken if is_remembered else None
        return None

    def take(self, letter: ReceivedMessage, message_id: str) -> Taken:
        """Accept a message."""
        now = self._now()
        taken = Taken(message_id, letter, now, now)
        labels = [letter.token, letter.address]
        for rule in self._faults.take(Moment.TAKEN, letter.provider, labels, op=Op.SEND):
            match rule.name:
                case "lookup_lag":
                    taken.found_from = now + timedelta(seconds=rule.options["seconds"])
                case _:
                    taken.is_given_up = True
        if not self._is_losing:
            self._taken.append(taken)
        return taken

    def find(self, provider: str, account: str, retention: timedelta | None = None) -> list[Taken]:
        """The messages that a lookup at a provider finds, newest first."""
        now = self._now()
        found = [
            taken
            for taken in reversed(self._taken)
            if (taken.provider, taken.letter.account) == (provider, account)
            and taken.found_from <= now
            and (retention is None or now < taken.at + retention)
        ]
        match self._doubles:
            case "two_matches":
                return [shown for taken in found for shown in (_twin(taken), taken)]
            case "another_recipient":
                return [_elsewhere(taken) for taken in found]
            case _:
                return found

    @contextmanager
    def under(self, fault: str) -> Iterator[None]:
        """Apply *fault* to the request that is answered in this block."""
        self._is_forgetful = fault == "window_expired"
        self._is_losing = fault == "lost_after_accept"
        self._doubles = fault
        try:
            yield
        finally:
            self._is_forgetful = self._is_losing = False
            self._doubles = None


def _twin(taken: Taken) -> Taken:
    """Return the same message under another id."""
    head, tail = taken.id[:-1], taken.id[-1:]
    return replace(taken, id=head + ("1" if tail == "0" else "0"))


def _elsewhere(taken: Taken) -> Taken:
    """Return the same message, addressed to another recipient."""
    letter = replace(taken.letter, address="elsewhere." + taken.address)
    return replace(taken, letter=letter)
