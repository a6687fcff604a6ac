"""Counters of deliveries: state changes, reasons of sends, and problems."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from holdfast.event import DeliveryAlert, DeliveryChange, DeliveryChanged, DeliveryTrouble
from holdfast.outbox.delivery import Reason
from holdfast.telemetry.label import OTHER, Labels

SENDS = frozenset(Reason)


class DeliveryCounts:
    """Three counters. A send is counted when it is marked, by its reason."""

    def __init__(self, registry: CollectorRegistry, labels: Labels) -> None:
        self._labels = labels
        self._changes = Counter(
            "holdfast_deliveries_total",
            "State changes of deliveries.",
            ("channel", "change"),
            registry=registry,
        )
        self._sends = Counter(
            "holdfast_delivery_sends_total",
            "Deliveries accepted by their channel, by the reason of the send.",
            ("channel", "reason"),
            registry=registry,
        )
        self._alerts = Counter(
            "holdfast_delivery_alerts_total",
            "Problems with deliveries and channels.",
            ("what",),
            registry=registry,
        )
        for what in DeliveryTrouble:
            self._alerts.labels(what)

    def count(self, event: DeliveryChanged) -> None:
        """Count one change; unknown codes become ``other``."""
        channel = self._labels.channel(event.channel)
        self._changes.labels(channel, event.change).inc()
        if event.change is DeliveryChange.SENT:
            reason = event.reason if event.reason in SENDS else OTHER
            self._sends.labels(channel, reason or OTHER).inc()

    def count_alert(self, event: DeliveryAlert) -> None:
        """Count one delivery alert."""
        self._alerts.labels(event.what).inc(event.count)
