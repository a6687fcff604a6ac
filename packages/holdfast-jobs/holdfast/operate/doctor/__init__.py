"""The doctor: looks for what is wrong with a store and its workers, and says what helps."""

from __future__ import annotations

from holdfast.operate.doctor.examine import examine
from holdfast.operate.doctor.finding import Finding, Limits, Severity

__all__ = ["Finding", "Limits", "Severity", "examine"]
