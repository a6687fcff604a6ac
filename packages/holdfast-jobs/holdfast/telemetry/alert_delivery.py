"""Alert delivery: an alert becomes a message in the outbox and is sent through a channel.

The first alert of a fingerprint in a quiet period is one message, whichever process raises it. A
message that the channel does not accept stays in the outbox, and the run ``outbox_reconciler``
sends it again. If the database cannot store a message, the channel is called once without it.
"""

from __future__ import annotations

from importlib.util import find_spec

from holdfast.app import Holdfast
from holdfast.channel.alert_webhook import ALERT_WEBHOOK
from holdfast.channel.channel import Accepted
from holdfast.channel.message import Message
from holdfast.clock import write_instant
from holdfast.errors import ConfigError, UpstreamError
from holdfast.ids import IdSource
from holdfast.outbox.delivery import Content, State
from holdfast.outbox.intend import LARGEST_VERSION, OutgoingMessage
from holdfast.telemetry.alert import Alert, Kind

# Alerts are about the whole installation: their deliveries belong to no tenant.
ALERT_ORG = "00000000-0000-0000-0000-000000000000"
RECIPIENT = "operator"


class AlertDelivery:
    """A target: stores an alert in the outbox and sends it at once.

    Raises UpstreamError if the channel does not accept it.
    """

    def __init__(self, hf: Holdfast, channel: str, address: str) -> None:
        self.channel = channel
        self._hf = hf
        self._address = address
        # Separate, so that job ids are the same with and without alerts.
        self._ids = IdSource(hf.clock)

    def __call__(self, alert: Alert) -> None:
        if alert.kind is Kind.DELIVERY and alert.subject.get("channel") == self.channel:
            # The channel would have to report its own failure.
            return
        intent = self._intent(alert)
        try:
            delivery_id = self._store(intent)
        except Exception:
            self._send_directly(intent, alert)
            return
        if delivery_id is not None:
            self._send(delivery_id)

    def _intent(self, alert: Alert) -> OutgoingMessage:
        data = {
            "type": f"holdfast.alert.{alert.kind}",
            "timestamp": write_instant(alert.at),
            "data": alert.document(),
        }
        subject, version = f"alert {alert.fingerprint} to {self.channel}", 1
        if alert.count == 1:
            quiet = self._hf.settings.alerts.quiet_seconds
            version = int(alert.at.timestamp() // quiet) % LARGEST_VERSION + 1
        else:
            # A count is of this process only, so the message gets a subject of its own.
            subject = f"{subject} {self._ids.new()}"
        line = f"[{alert.severity}] {alert.summary}"
        told = "".join(f"{name}: {value}\n" for name, value in alert.document().items())
        content = Content(line, told, data=data)
        return OutgoingMessage(subject, RECIPIENT, version, self.channel, self._address, content)

    def _store(self, intent: OutgoingMessage) -> str | None:
        """Store the message; return its delivery id, or None if another process has stored it."""
        outbox = self._hf.outbox
        (stored,) = self._hf.store.write(lambda tx: outbox.enlist(tx, [intent], org_id=ALERT_ORG))
        if not stored.created:
            return None
        outbox.emit_events([stored])
        return stored.id

    def _send(self, delivery_id: str) -> None:
        outbox = self._hf.outbox
        outbox.deliver([delivery_id], org_id=ALERT_ORG)
        (found,) = outbox.find([delivery_id], org_id=ALERT_ORG)
        if found.state is not State.SENT:
            raise UpstreamError(
                "The alert channel did not accept an alert; it stays in the outbox.",
                delivery_id=delivery_id,
                state=str(found.state),
                reason=found.reason or "",
            )

    def _send_directly(self, intent: OutgoingMessage, alert: Alert) -> None:
        channel = self._hf.outbox.channels.get(self.channel)
        content = intent.content
        sent = channel and channel.send(
            Message(
                token=f"msg_{self._ids.new().replace('-', '')}",
                address=self._address,
                subject=content.subject,
                text=content.text,
                data=content.data,
                at=alert.at,
                org_id=ALERT_ORG,
            )
        )
        if not isinstance(sent, Accepted):
            reason = getattr(sent, "reason", "channel_unusable")
            raise UpstreamError("The alert channel did not accept an alert.", reason=reason)


def configured_deliveries(hf: Holdfast) -> list[AlertDelivery]:
    """The deliveries that ``[alerts]`` configures. Raises ConfigError."""
    settings, found = hf.settings.alerts, list[AlertDelivery]()
    if settings.channel is not None:
        if not hf.outbox.channels.knows(settings.channel):
            raise ConfigError(
                f"alerts.channel is {settings.channel!r}, and there is no section"
                f" [channels.{settings.channel}]."
            )
        found.append(AlertDelivery(hf, settings.channel, settings.address or RECIPIENT))
    if settings.webhook is not None:
        if find_spec("httpcore2") is None:
            raise ConfigError(
                "alerts.webhook needs the extra: pip install 'holdfast-jobs[channels]'."
            )
        found.append(AlertDelivery(hf, ALERT_WEBHOOK, RECIPIENT))
    if found:
        hf.outbox.declare()
    return found
