"""A final check for any test: the store has no violations."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from holdfast import Holdfast
from holdfast.operate.verify.run import Report, checks_of, verify, verify_with


def report_of(hf: Holdfast, only: Collection[str] = (), **options: Any) -> Report:
    """The findings of an admin."""
    context = hf.operate(actor="user:tester", role="admin").context
    return verify(context, only=only, **options)


def violations(report: Report) -> dict[str, list[str]]:
    """The violations, by check."""
    return {
        finding.id: [f"{item.subject} {item.detail}" for item in finding.violations]
        or [finding.why]
        for finding in report.violated
    }


# They compare rows and definitions with their recorded digests, so they mostly repeat the findings
# of other checks. test_verify_planted.py tests them.
OF_RECORDS = frozenset({"I42", "I43", "I44", "I45", "I46", "I47", "I48", "I49"})


def by_rule(report: Report) -> dict[str, list[str]]:
    """The violations found by the other checks, each of which has one rule."""
    return {check: told for check, told in violations(report).items() if check not in OF_RECORDS}


# They read the catalog of the database, which no test changes: 0.2 of 0.5 s on PostgreSQL.
OF_SCHEMA = frozenset({"I30", "I38", "I47"})


def data_report_of(hf: Holdfast, **options: Any) -> Report:
    """The findings of an admin about the rows; the schema is not checked."""
    context = hf.operate(actor="user:tester", role="admin").context
    checks = [check for check in checks_of(context) if check.id not in OF_SCHEMA]
    return verify_with(checks, context, **options)


def assert_sound(hf: Holdfast) -> None:
    """Fail, naming every violation, unless all invariants about rows hold."""
    found = violations(data_report_of(hf))
    assert found == {}, found
