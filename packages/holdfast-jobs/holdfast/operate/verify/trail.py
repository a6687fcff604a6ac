"""I33 and I34: audit events are complete and in order, and every action names its actor."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.clock import ms
from holdfast.operate.audit import SLACK
from holdfast.operate.verify.check import Check, VerifyContext, Violation, selects
from holdfast.store import Statements

SQL = Statements("holdfast.operate.verify", "trail.sql")


def _find_incomplete(context: VerifyContext) -> Iterator[Violation]:
    yield from context.find(SQL.find_incomplete)
    # A search by time relies on this order.
    yield from context.find(SQL.find_out_of_order, tolerance_ms=ms(SLACK))


CHECKS = (
    # The extension "seal" adds the check of the seals.
    Check(
        "I33",
        "The audit matches its seals and has no gaps, empty fields or events out of order.",
        _find_incomplete,
    ),
    Check(
        "I34",
        "Every event names its actor, and operator actions a sufficient role.",
        selects(SQL.find_unattributed, SQL.find_roles),
    ),
)
