"""The channels that the settings name, made when they are first needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Literal, cast

from holdfast.channel.address import problem, text_problem
from holdfast.channel.channel import Channel, OnUnknown
from holdfast.channel.mailbox import Mailbox
from holdfast.channel.postmark import Postmark
from holdfast.channel.resend import Resend
from holdfast.channel.slack import LONGEST_TEXT, Slack, written
from holdfast.channel.smtp import Smtp
from holdfast.channel.webhook import Webhook
from holdfast.clock import Clock
from holdfast.config import ChannelSettings, Settings
from holdfast.errors import ConfigError
from holdfast.outbound.credential import Credential, read_secret

# Mail servers and folders need nothing beside Python.
OVER_HTTP = frozenset({"postmark", "resend", "slack", "webhook"})


class ConfiguredChannels:
    """Channels from ``[channels.NAME]``. Safe to share between threads.

    A credential is read when its channel is first needed, and kept as long as this object.
    """

    def __init__(
        self, settings: Settings, *, clock: Clock, env: Mapping[str, str] | None = None
    ) -> None:
        self._settings = settings.channels
        self._env = os.environ if env is None else env
        self._clock = clock
        self._made: dict[str, Channel] = {}
        self._lock = threading.Lock()

    @property
    def names(self) -> list[str]:
        """The channels that there are."""
        return sorted(self._settings)

    def of(self, name: str) -> Channel:
        """The channel *name*; ConfigError if there is none, or it cannot be opened here."""
        settings = self._named(name)
        with self._lock:
            if name not in self._made:
                self._made[name] = self._make(name, settings)
            return self._made[name]

    def get(self, name: str) -> Channel | None:
        """The channel *name*; None if it is not declared, or its credential is not here.

        One channel that cannot be opened does not keep the others from working.
        """
        try:
            return self.of(name)
        except ConfigError:
            return None

    def knows(self, name: str) -> bool:
        """Whether the channel *name* is declared, even if its credential is not here."""
        return name in self._settings

    def problem(self, name: str, address: str, subject: str, text: str = "") -> str | None:
        """Why the channel *name* cannot carry this; None if it can, or nobody here can say.

        It is asked before anything is written, so that nothing waits that can never go out. A
        process that declares no channel at all leaves them to its workers.
        """
        settings = self._settings.get(name)
        if settings is not None:
            found = problem(settings, address, subject)
            if found is None and settings.kind == "slack":
                found = text_problem(written(subject, text), LONGEST_TEXT)
            return found
        if not self._settings:
            return None
        return f"channel must be one of {', '.join(self.names)}; there is no other here"

    def on_unknown(self, name: str) -> OnUnknown:
        """What becomes of a message of this channel if nobody can say whether it went out."""
        settings = self._settings.get(name)
        return OnUnknown.HOLD if settings is None else OnUnknown(settings.on_unknown)

    def max_parallel(self, name: str) -> int:
        """The most messages that one pass hands to this channel at once."""
        settings = self._settings.get(name)
        return 1 if settings is None else settings.max_parallel

    def _named(self, name: str) -> ChannelSettings:
        if name not in self._settings:
            known = ", ".join(self.names) or "none"
            raise ConfigError(
                f"Nobody has declared the channel {name[:100]!r}: add [channels.NAME] of that name "
                f"to holdfast.toml. There is: {known}."
            )
        return self._settings[name]

    def _make(self, name: str, settings: ChannelSettings) -> Channel:
        if settings.kind in OVER_HTTP and find_spec("httpcore2") is None:
            raise ConfigError(
                f"The channel {name} needs the extra channels. Install it: "
                "pip install 'holdfast[channels]'."
            )
        clock = self._clock
        credential = self._secret(name, "credential")
        match settings.kind:
            case "smtp":
                return Smtp(name, settings, credential, clock)
            case "mailbox":
                return Mailbox(name, settings, clock)
            case "webhook":
                return Webhook(name, settings, credential, self._secret(name, "secret"), clock)
        # The settings see to it that these have one.
        needed = cast(Credential, credential)
        match settings.kind:
            case "postmark":
                return Postmark(name, settings, needed, clock)
            case "resend":
                return Resend(name, settings, needed, clock)
            case _:
                return Slack(name, settings, needed, clock)

    def _secret(self, name: str, word: Literal["credential", "secret"]) -> Credential | None:
        settings = self._settings[name]
        return read_secret(
            f"channel {name}",
            f"channels.{name}.{word}",
            variable=getattr(settings, f"{word}_env"),
            file=getattr(settings, f"{word}_file"),
            env=self._env,
        )
