"""The invariants of workflows and waiting jobs, I51 to I55."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.clock import write_instant
from holdfast.operate.verify.check import Check, VerifyContext, Violation, selects
from holdfast.operate.verify.timing import TOLERANCE
from holdfast.store import Statements

SQL = Statements("holdfast.workflows", "verify.sql")


def _find_asleep(context: VerifyContext) -> Iterator[Violation]:
    yield from context.find(SQL.find_asleep, ahead=write_instant(context.now + TOLERANCE))


CHECKS = (
    Check(
        "I51",
        "A step starts only after its dependencies have completed.",
        selects(SQL.find_early, SQL.find_early_jobs),
    ),
    Check(
        "I52",
        "A released step has one job for each of its items.",
        selects(SQL.find_twice, SQL.find_missing),
    ),
    Check(
        "I53",
        "The counters of a step match its jobs, and no end of a job was missed.",
        selects(SQL.find_miscounted, SQL.find_stuck_items),
    ),
    Check(
        "I54",
        "A running workflow has a running step, and no step waits without a reason.",
        selects(SQL.find_stuck, SQL.find_unreleased),
    ),
    Check("I55", "A job whose event has arrived is not deferred.", _find_asleep),
)
