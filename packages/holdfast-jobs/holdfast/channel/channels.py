"""The configured channels, opened on first use."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

from holdfast.channel.alert_webhook import (
    ALERT_WEBHOOK,
    AlertWebhook,
    channel_secrets,
    channel_settings,
)
from holdfast.channel.built_in import need_http
from holdfast.channel.channel import Channel, OnUnknown
from holdfast.channel.kind import ChannelKind
from holdfast.channel.signing_keys import read_secrets_file
from holdfast.clock import Clock
from holdfast.config import ChannelSettings, CommonChannelSettings, Settings
from holdfast.config.registered import channel_kinds
from holdfast.errors import ConfigError
from holdfast.outbound.credential import Credential, read_secret


class ConfiguredChannels:
    """Channels from ``[channels.NAME]``. Safe to share between threads.

    A credential is read on every access to its channel. A rotated credential, in its file or in the
    environment, is used from the next message on.
    """

    def __init__(
        self, settings: Settings, *, clock: Clock, env: Mapping[str, str] | None = None
    ) -> None:
        self._declared = settings.channels
        self._alerts = settings.alerts
        self._settings: dict[str, CommonChannelSettings] = dict(settings.channels)
        if settings.alerts.webhook is not None:
            self._settings[ALERT_WEBHOOK] = channel_settings(settings.alerts)
        self._env = os.environ if env is None else env
        self._clock = clock
        # By name: the fingerprint of the settings, and the channel.
        self._made: dict[str, tuple[str, Channel]] = {}
        self._lock = threading.Lock()

    @property
    def names(self) -> list[str]:
        """The names of the configured channels."""
        return sorted(self._declared)

    def require(self, name: str) -> Channel:
        """Return the channel *name*. Raises ConfigError if it cannot be opened here."""
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
        """Return the channel *name*; None if it is not declared, or its credential is missing here.

        A channel that cannot be opened does not affect the others.
        """
        try:
            return self.require(name)
        except ConfigError:
            return None

    def fingerprint(self, name: str) -> str:
        """A value that changes with the credential or the address of the channel."""
        try:
            return _fingerprint(self._named(name), self._secrets(name))
        except ConfigError:
            return ""

    def knows(self, name: str) -> bool:
        """Whether the channel *name* is declared, even if its credential is missing here."""
        return name in self._settings

    def problem(self, name: str, address: str, subject: str, text: str = "") -> str | None:
        """Why the channel *name* cannot carry this message; None if it can.

        It is checked before anything is stored, so that no undeliverable message is queued.
        """
        settings = self._settings.get(name)
        if name == ALERT_WEBHOOK and settings is not None:
            return None
        if settings is not None:
            return _kind_of(settings).problem(settings, address, subject, text)
        return f"channel must be one of {', '.join(self.names) or 'none'}"

    def on_unknown(self, name: str) -> OnUnknown:
        """The policy of this channel for messages with unknown outcome."""
        settings = self._settings.get(name)
        return OnUnknown.HOLD if settings is None else OnUnknown(settings.on_unknown)

    def max_parallel(self, name: str) -> int:
        """The maximum number of messages that one pass sends through this channel at once."""
        settings = self._settings.get(name)
        return 1 if settings is None else settings.max_parallel

    def _named(self, name: str) -> CommonChannelSettings:
        if name not in self._settings:
            known = ", ".join(self.names) or "none"
            raise ConfigError(
                f"Channel {name[:100]!r} is not declared: add [channels.NAME] of that name to"
                f" holdfast.toml. Declared: {known}."
            )
        return self._settings[name]

    def _make(
        self, name: str, settings: CommonChannelSettings, secrets: Mapping[str, Credential | None]
    ) -> Channel:
        if name == ALERT_WEBHOOK:
            need_http(name)
            return AlertWebhook(self._alerts, self._clock)
        return _kind_of(settings).open(name, settings, secrets, self._clock)

    def _secrets(self, name: str) -> dict[str, Credential | None]:
        if name == ALERT_WEBHOOK:
            return channel_secrets(self._alerts)
        settings = self._settings[name]
        names = {item.name for item in fields(settings)}
        words = [one.removesuffix("_env") for one in names if one.endswith("_env")]
        found = {
            word: self._secret(name, word) for word in sorted(words) if f"{word}_file" in names
        }
        if isinstance(settings, ChannelSettings):
            found["secrets"] = read_secrets_file(name, settings.secrets_file)
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


def _kind_of(settings: CommonChannelSettings) -> ChannelKind:
    found: ChannelKind = channel_kinds()[settings.kind]
    return found


def _fingerprint(settings: CommonChannelSettings, secrets: Mapping[str, Credential | None]) -> str:
    """A hash of the settings and the credentials of a channel together."""
    authority = 0
    with suppress(OSError):
        # A changed certificate in the same file is a changed channel as well.
        file = getattr(settings, "ca_file", None)
        authority = Path(file).stat().st_mtime_ns if file else 0
    parts = [
        repr(settings),
        str(authority),
        *(f"{name}={one and one.digest}" for name, one in secrets.items()),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
