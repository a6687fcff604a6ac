"""I27 and I28: the dead letters of failed jobs, and their replays."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.engine.classify import LAST_ERROR_LIMIT, STACK_LIMIT
from holdfast.operate.verify.check import Check, VerifyContext, Violation, selects
from holdfast.store import Statements

SQL = Statements("holdfast.operate.verify", "letters.sql")

# A context has about twenty short fields.
CONTEXT_LIMIT = 16_384


def _find_letters(context: VerifyContext) -> Iterator[Violation]:
    yield from context.find(SQL.find_unwritten)
    yield from context.find(SQL.find_misplaced)
    limits = {"stack": STACK_LIMIT, "error": LAST_ERROR_LIMIT, "context": CONTEXT_LIMIT}
    yield from context.find(SQL.find_incomplete, **limits)


CHECKS = (
    Check(
        "I27",
        "Every failed job has exactly one complete dead letter, and no other job has one.",
        _find_letters,
    ),
    Check(
        "I28",
        "A replay links its dead letter to its job and records actor, reason and start stage.",
        selects(SQL.find_unlinked, SQL.find_unexplained, SQL.find_strayed, SQL.find_unended),
    ),
)
