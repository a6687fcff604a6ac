"""One line for the end of any story: the store is as it must be."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from holdfast import Holdfast
from holdfast.operate.verify.run import Report, verify


def report_of(hf: Holdfast, only: Collection[str] = (), **options: Any) -> Report:
    """What an admin finds."""
    watch = hf.operate(actor="user:tester", role="admin").watch
    return verify(watch, only=only, **options)


def violations(report: Report) -> dict[str, list[str]]:
    """What is wrong, by check."""
    return {
        finding.id: [f"{item.subject} {item.detail}" for item in finding.violations]
        or [finding.why]
        for finding in report.violated
    }


def assert_sound(hf: Holdfast) -> None:
    """Fail, naming every violation, unless all invariants hold."""
    assert violations(report_of(hf)) == {}
