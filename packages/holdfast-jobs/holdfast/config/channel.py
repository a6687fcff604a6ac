"""The section of holdfast.toml about channels: how messages are sent, and with which sender."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from holdfast.config.registered import channel_kinds
from holdfast.config.setting_type import (
    FLAG,
    Section,
    SettingType,
    number,
    one_of,
    refuse,
    setting,
    text,
    whole,
)

# The built-in channel, which has no section.
IN_APP = "in_app"
# The built-in kinds, whose keys ChannelSettings has; other distributions register their own.
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
# "=?" begins an encoded word, which a mail reader may decode into a line break.
_NAME = r"[^<>\"\\,;:@\x00-\x1f\x7f-\x9f\u2028\u2029]{1,100}"
_SENDER = re.compile(rf"(?!.*=\?)({_MAILBOX}|{_NAME} <{_MAILBOX}>)")


def _is_registered(kind: object) -> bool:
    return isinstance(kind, str) and kind in channel_kinds()


@dataclass(frozen=True, slots=True)
class CommonChannelSettings(Section):
    """Settings that every kind of channel has. A kind with keys of its own subclasses it."""

    kind: str = setting("", SettingType("a registered kind of channel", _is_registered))
    """Kind of the channel: a built-in kind or one that an installed package registers."""
    on_unknown: str = setting("hold", one_of(ON_UNKNOWN))
    """What happens to a message if it is unknown whether it was sent: `hold` it for an operator,
    `resend` it (it may arrive twice) or `drop` it (it may never arrive)."""
    max_parallel: int = setting(4, whole(1, 32))
    """Maximum number of messages that one pass sends in parallel."""


@dataclass(frozen=True, slots=True)
class ChannelSettings(CommonChannelSettings):
    """Settings of a channel of a built-in kind: `[channels.NAME]`.

    A key that is not set has the default of the channel's kind. Credentials are read from an
    environment variable or a file, never from here.
    """

    kind: str = setting("", one_of(CHANNEL_KINDS))
    """Kind of the channel."""
    base_url: str | None = setting(
        None, text('an address such as "https://api.example.com"', _BASE_URL, is_address=True)
    )
    """Base URL of the API. The default is the provider's own. For a webhook: the gateway that
    receives all messages; without it each message is posted to its own address."""
    host: str | None = setting(
        None, text("a host's name in ASCII", re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"))
    )
    """Host name of the mail server."""
    port: int | None = setting(None, whole(1, 65_535))
    """Port of the mail server. The default follows `security`: 587, 465 or 25."""
    security: str | None = setting(None, one_of(SECURITY))
    """`starttls` (required from the server), `tls` from the first byte, or `none` for a private
    server without a login. The default is `starttls`."""
    username: str | None = setting(None, text("a login's name", re.compile(r"[!-~]{1,200}")))
    """User name at the mail server, together with a credential."""
    ca_file: str | None = setting(None, _PATH)
    """CA certificates that the server's certificate is verified against. The default is the
    system's."""
    sender: str | None = setting(
        None, text('an address such as "Holdfast <post@example.com>"', _SENDER, is_address=True)
    )
    """Sender address: `name@example.com` or `Name <name@example.com>`."""
    credential_env: str | None = setting(None, _VARIABLE)
    """Environment variable that holds the password, API key or token. A webhook sends it as
    `Authorization: Bearer`, only with `base_url`."""
    credential_file: str | None = setting(None, _PATH)
    """File that holds the credential. It takes precedence over the environment variable."""
    secret_env: str | None = setting(None, _VARIABLE)
    """Environment variable that holds the signing secret of a webhook. A value after `whsec_` is
    decoded as base64. Without a secret, messages are not signed."""
    secret_file: str | None = setting(None, _PATH)
    """File that holds the signing secret."""
    previous_secret_env: str | None = setting(None, _VARIABLE)
    """Environment variable that holds the previous signing secret. During rotation messages carry a
    signature of each."""
    previous_secret_file: str | None = setting(None, _PATH)
    """File that holds the previous signing secret."""
    secrets_file: str | None = setting(None, _PATH)
    """JSON file with signing secrets of single endpoints and tenants."""
    status_url: str | None = setting(
        None,
        text(
            'an address with {token}, such as "https://push.example.com/messages/{token}"',
            _STATUS_URL,
            is_address=True,
        ),
    )
    """URL that reports the status of a message, with `{token}` in it, at the same server as
    `base_url`."""
    receiver_dedupes: bool | None = setting(None, FLAG)
    """Whether the receiver processes a repeated `webhook-id` only once. The default is true."""
    folder: str | None = setting(None, _PATH)
    """Folder that receives mails as files."""
    settle_seconds: float | None = setting(None, number(0, 86_400))
    """How long after an attempt the answer "not found" is not conclusive. Defaults: postmark 300,
    others 60."""
    retention_seconds: float | None = setting(None, number(3_600, 10 * 366 * 86_400))
    """How long the provider remembers accepted messages; later, "not found" is not conclusive.
    Defaults: postmark 604800, resend and slack 86400, webhook unlimited."""
    allow_private: bool = setting(False, FLAG)
    """Allow a server in a private network, and plain HTTP."""
    connect_seconds: float = setting(10.0, number(0.1, 600))
    """Timeout for connecting."""
    read_seconds: float = setting(60.0, number(0.1, 600))
    """Timeout for reading a response."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        refuse(
            "Invalid ChannelSettings",
            [*self._strangers(), *self._missing(), *self._unsafe()],
        )

    def _strangers(self) -> list[str]:
        """Return keys that are set although the channel's kind does not use them."""
        known = keys_of_channel_kind(self.kind)
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
            # Messages posted to their own address never include a credential.
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


def keys_of_channel_kind(kind: str) -> frozenset[str]:
    """Return the settings keys that a built-in kind of channel uses."""
    return _EVERY | _OF_KIND[kind]


def channel_settings_class(kind: object) -> type[CommonChannelSettings] | str:
    """Return the settings class of a channel kind, or an error message."""
    if not isinstance(kind, str) or kind not in channel_kinds():
        return f"must be one of {', '.join(channel_kinds())}"
    found: type[CommonChannelSettings] = channel_kinds()[kind].settings
    return found
