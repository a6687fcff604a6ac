"""The invariants of a store, checked on one snapshot."""

from __future__ import annotations

from holdfast.operate.verify import (
    catalog,
    definitions,
    idempotency,
    letters,
    lifecycle,
    outside,
    privacy,
    records,
    tenancy,
    timing,
    totals,
    trail,
)
from holdfast.operate.verify.check import Check

CHECKS: tuple[Check, ...] = (
    *lifecycle.CHECKS,
    *idempotency.CHECKS,
    *outside.CHECKS,
    *letters.CHECKS,
    *tenancy.CHECKS,
    catalog.OPEN,
    *privacy.CHECKS,
    *trail.CHECKS,
    *timing.CHECKS,
    *totals.CHECKS,
    catalog.DRIFT,
    *records.CHECKS,
    definitions.DEFINITIONS,
    records.GAPS,
    records.SETTINGS,
)

__all__ = ["CHECKS", "Check"]
