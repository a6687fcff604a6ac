"""ChannelKind: what a distribution registers for one kind of channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from holdfast.channel.channel import Channel
from holdfast.clock import Clock
from holdfast.config import CommonChannelSettings
from holdfast.outbound.credential import Credential


class ChannelKind:
    """A kind of channel: its settings, which messages it can send, and how to open it.

    A package registers a subclass in the entry point group ``holdfast.channels``. The name of the
    entry point is the *kind* in ``[channels.NAME]``.
    """

    settings: ClassVar[type[CommonChannelSettings]] = CommonChannelSettings
    """The keys of ``[channels.NAME]``. Every pair ``WORD_env`` and ``WORD_file`` is a secret."""

    def problem(self, settings: Any, address: str, subject: str, text: str) -> str | None:
        """Return why the channel cannot send this message, or None if it can.

        It is called before anything is stored, in processes that may not have the credential. The
        answer must not repeat the address or the text.
        """
        return None

    def open(
        self, name: str, settings: Any, secrets: Mapping[str, Credential | None], clock: Clock
    ) -> Channel:
        """Open the channel *name*. *secrets* has the value of each secret, None if it is not set.

        Raises ConfigError if the channel cannot be used.
        """
        raise NotImplementedError
