"""The channel of ``alerts.webhook``: posts the JSON document of an alert to one URL.

The URL stays in the settings, because many receivers authenticate senders by it alone. It is never
stored with a delivery.
"""

from __future__ import annotations

from typing import Any

from holdfast.channel.message import Message
from holdfast.channel.signing_keys import SigningKeys
from holdfast.channel.webhook import Webhook
from holdfast.clock import Clock
from holdfast.config import AlertSettings, ChannelSettings, signing_key
from holdfast.outbound.credential import Credential

# No section [channels.NAME] can have this name.
ALERT_WEBHOOK = "alerts.webhook"
TIMEOUT_SECONDS = 5.0


def channel_settings(alerts: AlertSettings) -> ChannelSettings:
    """Channel settings for the webhook. A duplicate alert is better than a lost one."""
    return ChannelSettings(
        kind="webhook",
        on_unknown="resend",
        # Plain http is allowed for a server in the operator's own network.
        allow_private=alerts.allow_private or (alerts.webhook or "").startswith("http:"),
        connect_seconds=TIMEOUT_SECONDS,
        read_seconds=TIMEOUT_SECONDS,
        max_parallel=1,
    )


def channel_secrets(alerts: AlertSettings) -> dict[str, Credential | None]:
    """The secrets of the channel: the URL and the signing key."""
    secret = alerts.webhook_secret
    return {
        "address": Credential(alerts.webhook or ""),
        "secret": Credential(secret) if secret else None,
    }


class AlertWebhook(Webhook):
    """Posts only the data of a message to the configured URL."""

    def __init__(self, alerts: AlertSettings, clock: Clock) -> None:
        key = signing_key(alerts.webhook_secret)
        keys = SigningKeys((key,) if key else ())
        super().__init__(ALERT_WEBHOOK, channel_settings(alerts), None, keys, clock)
        self._url = alerts.webhook or ""

    def _posted(self, message: Message) -> tuple[str, dict[str, Any]]:
        return self._url, dict(message.data)

    def _problem(self, message: Message) -> str | None:
        return None
