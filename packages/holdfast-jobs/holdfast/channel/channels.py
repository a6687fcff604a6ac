"""The channels that the settings name, made when they are first needed."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from holdfast.channel.address import problem, text_problem
from holdfast.channel.alert_webhook import (
    ALERT_WEBHOOK,
    AlertWebhook,
    channel_secrets,
    channel_settings,
)
from holdfast.channel.channel import Channel, OnUnknown
from holdfast.channel.mailbox import Mailbox
from holdfast.channel.postmark import Postmark
from holdfast.channel.resend import Resend
from holdfast.channel.signing_keys import make_signing_keys, read_secrets_file
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

    A credential is read whenever its channel is asked for: one that was rotated, in its file or in
    the environment, is used from the next message on.
    """

    def __init__(
        self, settings: Settings, *, clock: Clock, env: Mapping[str, str] | None = None
    ) -> None:
        self._declared = settings.channels
        self._alerts = settings.alerts
        self._settings = dict(settings.channels)
        if settings.alerts.webhook is not None:
            self._settings[ALERT_WEBHOOK] = channel_settings(settings.alerts)
        self._env = os.environ if env is None else env
        self._clock = clock
        # By name: what the channel was made of, and the channel.
        self._made: dict[str, tuple[str, Channel]] = {}
        self._lock = threading.Lock()

    @property
    def names(self) -> list[str]:
        """The channels that there are."""
        return sorted(self._declared)

    def of(self, name: str) -> Channel:
        """The channel *name*; ConfigError if there is none, or it cannot be opened here."""
        settings = self._named(name)
        secrets = self._secrets(name)
        print_of = _fingerprint(settings, secrets)
        with self._lock:
            was, channel = self._made.get(name, ("", None))
            if channel is None or was != print_of:
                channel = self._make(name, settings, secrets)
                self._made[name] = (print_of, channel)
            return channel

    def get(self, name: str) -> Channel | None:
        """The channel *name*; None if it is not declared, or its credential is not here.

        One channel that cannot be opened does not keep the others from working.
        """
        try:
            return self.of(name)
        except ConfigError:
            return None

    def fingerprint(self, name: str) -> str:
        """What tells this channel from the same one with another credential or address."""
        try:
            return _fingerprint(self._named(name), self._secrets(name))
        except ConfigError:
            return ""

    def knows(self, name: str) -> bool:
        """Whether the channel *name* is declared, even if its credential is not here."""
        return name in self._settings

    def problem(self, name: str, address: str, subject: str, text: str = "") -> str | None:
        """Why the channel *name* cannot carry this; None if it can, or nobody here can say.

        It is asked before anything is written, so that nothing waits that can never go out. A
        process that declares no channel at all leaves them to its workers.
        """
        settings = self._settings.get(name)
        if name == ALERT_WEBHOOK and settings is not None:
            return None
        if settings is not None:
            found = problem(settings, address, subject)
            if found is None and settings.kind == "slack":
                found = text_problem(written(subject, text), LONGEST_TEXT)
            return found
        if not self._declared:
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

    def _make(
        self, name: str, settings: ChannelSettings, secrets: Mapping[str, Credential | None]
    ) -> Channel:
        if settings.kind in OVER_HTTP and find_spec("httpcore2") is None:
            raise ConfigError(
                f"The channel {name} needs the extra channels. Install it: "
                "pip install 'holdfast-jobs[channels]'."
            )
        clock = self._clock
        if name == ALERT_WEBHOOK:
            return AlertWebhook(self._alerts, clock)
        credential = secrets["credential"]
        match settings.kind:
            case "smtp":
                return Smtp(name, settings, credential, clock)
            case "mailbox":
                return Mailbox(name, settings, clock)
            case "webhook":
                keys = make_signing_keys(name, secrets)
                return Webhook(name, settings, credential, keys, clock)
        # The settings see to it that these have one.
        needed = cast(Credential, credential)
        match settings.kind:
            case "postmark":
                return Postmark(name, settings, needed, clock)
            case "resend":
                return Resend(name, settings, needed, clock)
            case _:
                return Slack(name, settings, needed, clock)

    def _secrets(self, name: str) -> dict[str, Credential | None]:
        if name == ALERT_WEBHOOK:
            return channel_secrets(self._alerts)
        words = ("credential", "secret", "previous_secret")
        found = {word: self._secret(name, word) for word in words}
        found["secrets"] = read_secrets_file(name, self._settings[name].secrets_file)
        return found

    def _secret(self, name: str, word: str) -> Credential | None:
        settings = self._settings[name]
        return read_secret(
            f"channel {name}",
            f"channels.{name}.{word}",
            variable=getattr(settings, f"{word}_env"),
            file=getattr(settings, f"{word}_file"),
            env=self._env,
        )


def _fingerprint(settings: ChannelSettings, secrets: Mapping[str, Credential | None]) -> str:
    """A hash of the settings and the credentials of a channel; of none of them by itself."""
    authority = 0
    with suppress(OSError):
        # Another certificate in the same file is another channel, too.
        authority = Path(settings.ca_file).stat().st_mtime_ns if settings.ca_file else 0
    parts = [
        repr(settings),
        str(authority),
        *(f"{name}={one and one.digest}" for name, one in secrets.items()),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
