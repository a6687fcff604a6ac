"""The checks of artifacts for the invariants I29, I36 and I49."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.clock import write_instant
from holdfast.operate.verify.check import Check, VerifyContext, Violation, selects
from holdfast.operate.verify.timing import TOLERANCE
from holdfast.store import Statements

SQL = Statements("holdfast.artifacts", "verify.sql")


def _find_ahead(context: VerifyContext) -> Iterator[Violation]:
    yield from context.find(SQL.find_ahead, ahead=write_instant(context.now + TOLERANCE))


CHECKS = (
    Check("I29", "An artifact belongs to the tenant of its job.", selects(SQL.find_foreign)),
    Check("I36", "No artifact timestamp is in the future.", _find_ahead),
    Check("I49", "Artifacts match their events.", selects(SQL.find_changed)),
)
