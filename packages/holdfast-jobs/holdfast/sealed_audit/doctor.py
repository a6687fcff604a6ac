"""The doctor check of sealing."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.operate.doctor.finding import CheckContext, Finding, Severity, length
from holdfast.store import Statements

SQL = Statements("holdfast.sealed_audit", "telemetry.sql")


def check_sealing(context: CheckContext) -> Iterator[Finding]:
    """Check how far sealing is behind."""
    row = context.store.one(SQL.read_lag)
    lag = max(0.0, (row["unsealed_ms"] or 0.0) / 1000)
    seen = f"The oldest event without a seal is {length(lag)} old."
    if lag < context.limits.sealing.total_seconds():
        is_behind = row["unsealed_ms"] is not None
        yield Finding("sealing", Severity.OK, seen if is_behind else "Every event is sealed.")
        return
    yield Finding(
        "sealing",
        Severity.WARNING,
        f"{seen} Changes of events without a seal cannot be detected.",
        "Workers seal: start one. If one is running, a long transaction on the server delays it.",
        {"seconds": lag},
    )
