"""Metrics and gauges of sealing."""

from __future__ import annotations

from typing import Any

from holdfast.event import AuditSealed, Event, Only, Subscriber
from holdfast.store import Statements, Tx
from holdfast.telemetry.gauges import Gauge, GaugeSet, Reading, seconds_of
from holdfast.telemetry.label import Labels

SQL = Statements("holdfast.sealed_audit", "telemetry.sql")

UNSEALED = Gauge("holdfast_audit_unsealed_events", "Audit events that are not sealed yet.")
UNSEALED_AGE = Gauge(
    "holdfast_audit_unsealed_age_seconds", "Age of the oldest audit event that is not sealed yet."
)


def count_seals(registry: Any) -> Subscriber:
    """Return a subscriber that counts seals."""
    from prometheus_client import Counter

    seals = Counter("holdfast_audit_seals_total", "Seals written.", registry=registry)

    def count(_event: Event) -> None:
        seals.inc()

    return Only((AuditSealed,), count)


def read_lag(tx: Tx, _labels: Labels) -> Reading:
    """Read how far the seals are behind the audit."""
    row = tx.one(SQL.read_lag)
    return {
        UNSEALED.name: {(): float(row["unsealed"])},
        UNSEALED_AGE.name: {(): seconds_of(row["unsealed_ms"])},
    }


GAUGES = GaugeSet((UNSEALED, UNSEALED_AGE), read_lag)
