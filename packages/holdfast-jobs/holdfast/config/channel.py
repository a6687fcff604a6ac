"""The section of holdfast.toml about channels: who carries messages, and as whom."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from holdfast.config.kind import (
    FLAG,
    Kind,
    Section,
    number,
    one_of,
    refuse,
    setting,
    text,
    whole,
)
from holdfast.config.registered import channel_kinds

# The channel that needs no section, and has none.
IN_APP = "in_app"
# The kinds whose keys ChannelSettings has; other distributions register kinds with their own.
CHANNEL_KINDS = ("smtp", "postmark", "resend", "slack", "webhook", "mailbox")
ON_UNKNOWN = ("hold", "resend", "drop")
SECURITY = ("starttls", "tls", "none")

_BASE_URL = re.compile(r"https?://[^\s/@?#]+(/[^\s?#@]*)?")
_STATUS_URL = re.compile(r"https?://[^\s/@?#{}]+/[^\s#@{}]*\{token\}[^\s#@{}]*")
_VARIABLE = text(
    "the name of an environment variable",
    re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}"),
    is_address=True,
)
_PATH = text("an absolute path", re.compile(r"/\S+"), is_address=True)
_MAILBOX = r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?"
# "=?" begins an encoded word, which whoever reads a header may decode into a line break.
_NAME = r"[^<>\"\\,;:@\x00-\x1f\x7f-\x9f\u2028\u2029]{1,100}"
_SENDER = re.compile(rf"(?!.*=\?)({_MAILBOX}|{_NAME} <{_MAILBOX}>)")


def _is_registered(kind: object) -> bool:
    return isinstance(kind, str) and kind in channel_kinds()


@dataclass(frozen=True, slots=True)
class CommonChannelSettings(Section):
    """The keys that a channel of every kind has. The settings of a kind subclass it."""

    kind: str = setting("", Kind("a registered kind of channel", _is_registered))
    # What becomes of a message of which nobody can say whether it went out.
    on_unknown: str = setting("hold", one_of(ON_UNKNOWN))
    # The most messages that one pass hands over at once.
    max_parallel: int = setting(4, whole(1, 32))


@dataclass(frozen=True, slots=True)
class ChannelSettings(CommonChannelSettings):
    """One way to reach people or programs: its kind, its address, and where its secrets are kept.

    What is left open is as the channel's kind knows it. Secrets never stand here.
    """

    kind: str = setting("", one_of(CHANNEL_KINDS))
    base_url: str | None = setting(
        None, text('an address such as "https://api.example.com"', _BASE_URL, is_address=True)
    )
    host: str | None = setting(
        None, text("a host's name in ASCII", re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"))
    )
    port: int | None = setting(None, whole(1, 65_535))
    security: str | None = setting(None, one_of(SECURITY))
    username: str | None = setting(None, text("a login's name", re.compile(r"[!-~]{1,200}")))
    # Whoever signs the certificate of a server of your own.
    ca_file: str | None = setting(None, _PATH)
    sender: str | None = setting(
        None, text('an address such as "Holdfast <post@example.com>"', _SENDER, is_address=True)
    )
    credential_env: str | None = setting(None, _VARIABLE)
    credential_file: str | None = setting(None, _PATH)
    # Signs webhooks; it does not travel.
    secret_env: str | None = setting(None, _VARIABLE)
    secret_file: str | None = setting(None, _PATH)
    # While the secret is rotated: messages are signed with this one as well.
    previous_secret_env: str | None = setting(None, _VARIABLE)
    previous_secret_file: str | None = setting(None, _PATH)
    # JSON with the secrets of single endpoints and tenants.
    secrets_file: str | None = setting(None, _PATH)
    status_url: str | None = setting(
        None,
        text(
            'an address with {token}, such as "https://push.example.com/messages/{token}"',
            _STATUS_URL,
            is_address=True,
        ),
    )
    receiver_dedupes: bool | None = setting(None, FLAG)
    folder: str | None = setting(None, _PATH)
    settle_seconds: float | None = setting(None, number(0, 86_400))
    # For so long the other side keeps what it took, if that is not what its kind knows.
    retention_seconds: float | None = setting(None, number(3_600, 10 * 366 * 86_400))
    allow_private: bool = setting(False, FLAG)
    connect_seconds: float = setting(10.0, number(0.1, 600))
    read_seconds: float = setting(60.0, number(0.1, 600))

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        refuse(
            "ChannelSettings cannot be used",
            [*self._strangers(), *self._missing(), *self._unsafe()],
        )

    def _strangers(self) -> list[str]:
        """Keys that this kind does not read: whoever sets them expects something of them."""
        known = _EVERY | _OF_KIND[self.kind]
        return [
            f"{item.name} is not for a channel of kind {self.kind}"
            for item in fields(self)
            if item.name not in known and getattr(self, item.name) != item.default
        ]

    def _missing(self) -> list[str]:
        found = [
            f"a channel of kind {self.kind} needs {name}"
            for name in sorted(_NEEDED.get(self.kind, frozenset()))
            if getattr(self, name) is None
        ]
        has_credential = bool(self.credential_env or self.credential_file)
        if self.kind in _WITH_CREDENTIAL and not has_credential:
            found.append(f"a channel of kind {self.kind} needs credential_env or credential_file")
        if self.kind == "smtp" and has_credential != (self.username is not None):
            found.append("a login needs username and credential_env or credential_file")
        has_secret = bool(self.secret_env or self.secret_file)
        if (self.previous_secret_env or self.previous_secret_file) and not has_secret:
            found.append("previous_secret needs secret_env or secret_file")
        if self.kind == "webhook" and self.base_url is None:
            # Messages that name their own address take no credential with them.
            alone = {"credential": has_credential, "status_url": self.status_url is not None}
            found += [f"{name} needs base_url" for name, is_set in alone.items() if is_set]
        return found

    def _unsafe(self) -> list[str]:
        found = [
            f"{name} is not https; a server of your own may be, with allow_private = true"
            for name in ("base_url", "status_url")
            if (getattr(self, name) or "").startswith("http:") and not self.allow_private
        ]
        if self.status_url and self.base_url and _origin(self.status_url) != _origin(self.base_url):
            found.append("status_url is at another server than base_url")
        if self.security == "none" and not self.allow_private:
            found.append('security = "none" is for a server of your own: allow_private = true')
        if self.security == "none" and self.username is not None:
            found.append('a login is not sent in the clear: security = "none" takes no username')
        return found


def _origin(url: str) -> str:
    return "/".join(url.split("/", 3)[:3]).lower()


_EVERY = frozenset({"kind", "on_unknown", "max_parallel"})
_CALLED = frozenset({"base_url", "allow_private", "connect_seconds", "read_seconds"})
_SECRET = frozenset({"credential_env", "credential_file"})
_ASKED = frozenset({"settle_seconds", "retention_seconds"})
_OF_KIND: Mapping[str, frozenset[str]] = {
    "smtp": _SECRET
    | {"host", "port", "security", "username", "ca_file", "sender"}
    | {"allow_private", "connect_seconds", "read_seconds"},
    "postmark": _CALLED | _SECRET | _ASKED | {"sender"},
    "resend": _CALLED | _SECRET | _ASKED | {"sender"},
    "slack": _CALLED | _SECRET | _ASKED,
    "webhook": _CALLED
    | _SECRET
    | _ASKED
    | {"secret_env", "secret_file", "previous_secret_env", "previous_secret_file", "secrets_file"}
    | {"status_url", "receiver_dedupes"},
    "mailbox": frozenset({"folder", "sender"}),
}
_NEEDED: Mapping[str, frozenset[str]] = {
    "smtp": frozenset({"host", "sender"}),
    "postmark": frozenset({"sender"}),
    "resend": frozenset({"sender"}),
    "mailbox": frozenset({"folder", "sender"}),
}
_WITH_CREDENTIAL = frozenset({"postmark", "resend", "slack"})


def channel_settings_class(kind: object) -> type[CommonChannelSettings] | str:
    """The settings class of a kind of channel, or what is wrong with the kind."""
    if not isinstance(kind, str) or kind not in channel_kinds():
        return f"must be one of {', '.join(channel_kinds())}"
    found: type[CommonChannelSettings] = channel_kinds()[kind].settings
    return found
