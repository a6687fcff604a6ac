"""The desk of an operator: every action there is, for one person in one role."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.operate.watch import Watch


@dataclass(frozen=True, slots=True)
class Desk:
    """What *watch* can see and do."""

    watch: Watch
