"""ChannelSet: every channel that an application can send through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from holdfast.channel.address import problem, text_problem
from holdfast.channel.channel import Channel, OnUnknown
from holdfast.config import ChannelSettings
from holdfast.outbox.in_app import AT_ONCE, CHANNEL, InAppChannel

if TYPE_CHECKING:
    from holdfast.channel.channels import ConfiguredChannels


@dataclass(frozen=True, slots=True)
class AddedChannel:
    """A channel that the application created, and its policy for sends with unknown outcome."""

    channel: Channel
    on_unknown: OnUnknown


@dataclass(frozen=True)
class ExtensionChannel:
    """A channel of an extension, made on first use. Applications do not send through it."""

    make: Callable[[], Channel]
    settings: ChannelSettings
    on_unknown: OnUnknown

    @cached_property
    def channel(self) -> Channel:
        return self.make()


@dataclass(frozen=True, slots=True)
class ChannelSet:
    """The in-app channel, the configured channels, and those that the application added.

    An added channel replaces only a channel of the same name. The channels of extensions have names
    that no other channel can have.
    """

    in_app: InAppChannel
    configured: ConfiguredChannels
    added: Mapping[str, AddedChannel]
    of_extensions: Mapping[str, ExtensionChannel] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """All channels by name."""
        return sorted({CHANNEL, *self.configured.names, *self.added})

    def get(self, name: str) -> Channel | None:
        """Return the channel *name*; None if it does not exist or cannot be opened here."""
        if name in self.of_extensions:
            return self.of_extensions[name].channel
        if name in self.added:
            return self.added[name].channel
        return self.in_app if name == CHANNEL else self.configured.get(name)

    def knows(self, name: str) -> bool:
        """Whether the channel *name* exists, even if it cannot be opened here."""
        own = name == CHANNEL or name in self.added or name in self.of_extensions
        return own or self.configured.knows(name)

    def on_unknown(self, name: str) -> OnUnknown:
        """The policy of this channel for sends with unknown outcome."""
        if name in self.of_extensions:
            return self.of_extensions[name].on_unknown
        if name in self.added:
            return self.added[name].on_unknown
        return OnUnknown.HOLD if name == CHANNEL else self.configured.on_unknown(name)

    def max_parallel(self, name: str) -> int:
        """The maximum number of messages that one pass sends through this channel at once."""
        if name in self.of_extensions:
            return self.of_extensions[name].settings.max_parallel
        if name == CHANNEL or name in self.added:
            return AT_ONCE
        return self.configured.max_parallel(name)

    def fingerprint(self, name: str) -> str:
        """A value that changes with the address or the credential of the channel."""
        if name in self.added:
            return str(getattr(self.added[name].channel, "fingerprint", ""))
        if name == CHANNEL or name in self.of_extensions:
            return ""
        return self.configured.fingerprint(name)

    def problem(self, name: str, address: str, subject: str, text: str = "") -> str | None:
        """Why the channel *name* cannot carry this message; None if it can.

        A process that declares no channel, such as a web server that only posts, cannot know the
        channels of its workers. It accepts every name.
        """
        if name in self.of_extensions:
            return problem(self.of_extensions[name].settings, address, subject)
        if not self.knows(name):
            if not self.configured.names and not self.added:
                return None
            return f"channel must be one of {', '.join(self.names)}"
        if name in self.added:
            longest = self.added[name].channel.capabilities.longest_text
            return text_problem(f"{subject}\n{text}", longest)
        if name == CHANNEL:
            return None
        return self.configured.problem(name, address, subject, text)
