"""I35 and I36: ticks of schedules, and timestamps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from holdfast.clock import ms, write_instant
from holdfast.operate.verify.check import Check, VerifyContext, Violation
from holdfast.store import Statement, Statements

SQL = Statements("holdfast.operate.verify", "timing.sql")

# The maximum clock offset before a worker stops claiming.
TOLERANCE = timedelta(seconds=60)
# A run starts in the transaction after the one that took its tick.
TAKING = timedelta(minutes=15)


def _find_ticks(context: VerifyContext) -> Iterator[Violation]:
    keep = timedelta(days=context.settings.retention.keep_runs_days)
    yield from context.find(SQL.find_repeated)
    yield from context.find(SQL.find_idle, since=write_instant(context.now - TAKING))
    # A run ends before its tick does, and is pruned before it.
    yield from context.find(SQL.find_runless, kept_since=write_instant(context.now - keep))


def find_ahead_in(context: VerifyContext, statement: Statement) -> Iterator[Violation]:
    """Yield violations later than ``:ahead``, the latest plausible time."""
    return context.find(statement, ahead=write_instant(context.now + TOLERANCE))


def _find_instants(context: VerifyContext) -> Iterator[Violation]:
    yield from find_ahead_in(context, SQL.find_ahead)
    yield from find_ahead_in(context, SQL.find_ahead_beside)
    yield from context.find(SQL.find_backwards, tolerance_ms=ms(TOLERANCE))


CHECKS = (
    Check(
        "I35",
        "Every schedule tick has one job or run, or a reason for having none.",
        _find_ticks,
    ),
    Check(
        "I36",
        "No timestamp is in the future, and timestamps are in order.",
        _find_instants,
    ),
)
