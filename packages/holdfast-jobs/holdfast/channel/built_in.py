"""The channel kinds that come with Holdfast, registered like any other kind."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import ClassVar, cast

from holdfast.channel.address import problem, text_problem
from holdfast.channel.channel import Channel
from holdfast.channel.kind import ChannelKind
from holdfast.clock import Clock
from holdfast.config import ChannelSettings, CommonChannelSettings
from holdfast.errors import ConfigError
from holdfast.outbound.credential import Credential

Secrets = Mapping[str, Credential | None]


class BuiltInKind(ChannelKind):
    """Base of the built-in kinds. They share one settings class with the keys of all of them."""

    settings: ClassVar[type[CommonChannelSettings]] = ChannelSettings

    def problem(
        self, settings: ChannelSettings, address: str, subject: str, text: str
    ) -> str | None:
        return problem(settings, address, subject)


class SmtpKind(BuiltInKind):
    """Mail by SMTP."""

    def open(self, name: str, settings: ChannelSettings, secrets: Secrets, clock: Clock) -> Channel:
        from holdfast.channel.smtp import Smtp

        return Smtp(name, settings, secrets["credential"], clock)


class MailboxKind(BuiltInKind):
    """Mail as files in a folder."""

    def open(self, name: str, settings: ChannelSettings, secrets: Secrets, clock: Clock) -> Channel:
        from holdfast.channel.mailbox import Mailbox

        return Mailbox(name, settings, clock)


class WebhookKind(BuiltInKind):
    """Signed webhooks, and gateways with the same interface."""

    def open(self, name: str, settings: ChannelSettings, secrets: Secrets, clock: Clock) -> Channel:
        need_http(name)
        from holdfast.channel.signing_keys import make_signing_keys
        from holdfast.channel.webhook import Webhook

        keys = make_signing_keys(name, secrets)
        return Webhook(name, settings, secrets["credential"], keys, clock)


class PostmarkKind(BuiltInKind):
    """Mail by Postmark."""

    def open(self, name: str, settings: ChannelSettings, secrets: Secrets, clock: Clock) -> Channel:
        need_http(name)
        from holdfast.channel.postmark import Postmark

        return Postmark(name, settings, _needed(secrets), clock)


class ResendKind(BuiltInKind):
    """Mail by Resend."""

    def open(self, name: str, settings: ChannelSettings, secrets: Secrets, clock: Clock) -> Channel:
        need_http(name)
        from holdfast.channel.resend import Resend

        return Resend(name, settings, _needed(secrets), clock)


class SlackKind(BuiltInKind):
    """Messages in Slack."""

    def problem(
        self, settings: ChannelSettings, address: str, subject: str, text: str
    ) -> str | None:
        from holdfast.channel.slack import LONGEST_TEXT, written

        found = problem(settings, address, subject)
        return found or text_problem(written(subject, text), LONGEST_TEXT)

    def open(self, name: str, settings: ChannelSettings, secrets: Secrets, clock: Clock) -> Channel:
        need_http(name)
        from holdfast.channel.slack import Slack

        return Slack(name, settings, _needed(secrets), clock)


def _needed(secrets: Secrets) -> Credential:
    """Return the credential of a kind that requires one."""
    return cast(Credential, secrets["credential"])


def need_http(name: str) -> None:
    if find_spec("httpcore2") is None:
        raise ConfigError(
            f"The channel {name} needs the extra channels. Install it: "
            "pip install 'holdfast-jobs[channels]'."
        )
