"""The doctor: finds problems of a store and its workers, and reports the remedies."""

from __future__ import annotations

from holdfast.operate.doctor.examine import examine
from holdfast.operate.doctor.finding import Finding, Limits, Severity

__all__ = ["Finding", "Limits", "Severity", "examine"]
