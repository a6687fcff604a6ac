"""The channel behind ``alerts.webhook``: posts the document of an alert to one address.

The address stays in the settings, because many receivers know their senders by it alone. It is
never stored with a delivery.
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
    """The channel as if a section described it. An alert sent twice is better than none."""
    return ChannelSettings(
        kind="webhook",
        on_unknown="resend",
        # Plain http is for a server in a network of the operator's own.
        allow_private=alerts.allow_private or (alerts.webhook or "").startswith("http:"),
        connect_seconds=TIMEOUT_SECONDS,
        read_seconds=TIMEOUT_SECONDS,
        max_parallel=1,
    )


def channel_secrets(alerts: AlertSettings) -> dict[str, Credential | None]:
    """What is secret about it: the address, and the key that signs."""
    secret = alerts.webhook_secret
    return {
        "address": Credential(alerts.webhook or ""),
        "secret": Credential(secret) if secret else None,
    }


class AlertWebhook(Webhook):
    """Posts the data of a message, and nothing else, to the address in the settings."""

    def __init__(self, alerts: AlertSettings, clock: Clock) -> None:
        key = signing_key(alerts.webhook_secret)
        keys = SigningKeys((key,) if key else ())
        super().__init__(ALERT_WEBHOOK, channel_settings(alerts), None, keys, clock)
        self._url = alerts.webhook or ""

    def _posted(self, message: Message) -> tuple[str, dict[str, Any]]:
        return self._url, dict(message.data)

    def _problem(self, message: Message) -> str | None:
        return None
