"""The channel of webhooks: posts a change to its endpoint, signed as Standard Webhooks defines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.channel.channel import Rejected, Sent
from holdfast.channel.message import Message
from holdfast.channel.signing_keys import Keys, SigningKeys, signature_header
from holdfast.channel.webhook import Webhook
from holdfast.clock import Clock
from holdfast.config import ChannelSettings, signing_key
from holdfast.store import Statements, Store
from holdfast.webhooks.settings import WebhookSettings

SQL = Statements("holdfast.webhooks", "webhooks.sql")

# No section [channels.NAME] can have this name.
CHANNEL = "feed.webhook"


def channel_settings(webhooks: WebhookSettings) -> ChannelSettings:
    """Channel settings for endpoints. A receiver recognizes a repeat by its ``webhook-id``."""
    return ChannelSettings(
        kind="webhook",
        on_unknown="resend",
        allow_private=webhooks.allow_private,
        connect_seconds=webhooks.connect_seconds,
        read_seconds=webhooks.read_seconds,
        max_parallel=webhooks.max_parallel,
    )


class EventWebhook(Webhook):
    """Posts the data of a message. Its text is the id of the endpoint."""

    def __init__(self, settings: WebhookSettings, store: Callable[[], Store], clock: Clock) -> None:
        super().__init__(CHANNEL, channel_settings(settings), None, SigningKeys(), clock)
        self._store = store

    def send(self, message: Message) -> Sent:
        """Post a message once, if its endpoint still exists with the same URL."""
        keys = self._endpoint_keys(message)
        if keys is None:
            return Rejected("endpoint_removed", is_permanent=True)
        return super().send(message)

    def _posted(self, message: Message) -> tuple[str, dict[str, Any]]:
        return message.address, dict(message.data)

    def _signed(self, message: Message, url: str, body: bytes) -> dict[str, str]:
        stamp, token = str(int(self._clock.now().timestamp())), message.token
        # Read again for each attempt: a rotation applies to messages that wait.
        keys = self._endpoint_keys(message) or ()
        return {
            "webhook-id": token,
            "webhook-timestamp": stamp,
            "webhook-signature": signature_header(keys, token, stamp, body),
        }

    def _endpoint_keys(self, message: Message) -> Keys | None:
        endpoint = {"org_id": message.org_id, "id": message.text}
        row = self._store().maybe(SQL.find_secrets, **endpoint)
        if row is None or row["url"] != message.address:
            return None
        secrets = (row["secret"], row["previous_secret"])
        return tuple(signing_key(one) for one in secrets if one is not None)
