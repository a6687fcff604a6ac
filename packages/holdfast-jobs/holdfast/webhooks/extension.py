"""The declaration of the webhooks extension, without its implementation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.extension import Extension
from holdfast.store import Component
from holdfast.webhooks.settings import WebhookSettings

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.engine.worker.housekeeping import Chore


class WebhooksExtension(Extension):
    """Posts committed changes to the endpoints of tenants, signed."""

    name = "webhooks"
    is_default = True
    component = Component("webhooks", "holdfast.webhooks", needs={"core": 19})
    settings = {"webhooks": WebhookSettings}
    audit_events = frozenset(
        {
            "webhook.added",
            "webhook.paused",
            "webhook.removed",
            "webhook.resumed",
            "webhook.rotated",
        }
    )
    command_group = "Operations"
    commands = {"webhooks": "holdfast.webhooks.commands:webhooks"}
    api = "holdfast.webhooks.api:router"
    nouns = {"webhooks": "holdfast.webhooks.operator:OperatorWebhooks"}

    def install(self, app: Holdfast) -> None:
        """Add the channel that posts to endpoints. It is made when the first message is sent."""
        from holdfast.channel.channel import OnUnknown
        from holdfast.outbox.channel_set import ExtensionChannel
        from holdfast.webhooks.channel import CHANNEL, EventWebhook, channel_settings

        settings: WebhookSettings = app.settings.webhooks
        app.outbox.extension_channels[CHANNEL] = ExtensionChannel(
            lambda: EventWebhook(settings, lambda: app.store, app.clock),
            channel_settings(settings),
            OnUnknown.RESEND,
        )

    def maintenance(self, app: Holdfast) -> Sequence[Chore]:
        """Hand changes to webhooks, in a separate thread."""
        from holdfast.engine.worker.housekeeping import Chore
        from holdfast.webhooks.pump import pump

        every = min(1.0, app.settings.rescue_seconds)
        return [Chore("webhooks", every, lambda: pump(app), lambda: pump(app))]
