"""I1 to I10: the lifecycle of a job, compared with its audit events."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from holdfast.clock import write_instant
from holdfast.engine.maintenance import Grace
from holdfast.operate.verify.check import Check, VerifyContext, Violation, selects
from holdfast.store import Statement, Statements

SQL = Statements("holdfast.operate.verify", "lifecycle.sql")

# A rescue runs once per rescue interval; after two intervals one was certainly missed. After a
# start or an outage it first lets live workers renew.
PATIENCE = 2


def _find_stale(context: VerifyContext) -> Iterator[Violation]:
    return find_stale_in(context, SQL.find_stale)


def find_stale_in(context: VerifyContext, statement: Statement) -> Iterator[Violation]:
    """Yield the violations of a statement about leases that expired before ``:stale_since``."""
    settings = context.settings
    seconds = PATIENCE * settings.rescue_seconds + Grace.for_lease(settings.lease_seconds).seconds
    patience = timedelta(seconds=seconds)
    return context.find(statement, stale_since=write_instant(context.now - patience))


CHECKS = (
    Check(
        "I1",
        "The job's state matches its event history.",
        selects(SQL.find_untold, SQL.find_unrecorded, SQL.find_leaps, SQL.find_doubled),
    ),
    Check(
        "I2",
        "Attempt numbers never decrease within a stage.",
        selects(SQL.find_attempts_going_back),
    ),
    Check(
        "I3",
        "A finished job has one final event and no later events.",
        selects(SQL.find_ends),
    ),
    Check(
        "I4",
        "A job without an outcome is in exactly one place, and one with an outcome in none.",
        selects(SQL.find_nowhere, SQL.find_elsewhere, SQL.find_misplaced),
    ),
    Check(
        "I5",
        "No lease has been expired for longer than two rescue intervals plus the grace period.",
        _find_stale,
    ),
    Check(
        "I6",
        "Attempt counts match the event history and stay within max_attempts.",
        selects(SQL.find_miscounted, SQL.find_uneven_attempts, SQL.find_miscounted_stages),
    ),
    Check(
        "I7",
        "The lease token equals the number of claims.",
        selects(SQL.find_tokens, SQL.find_wrong_claims, SQL.find_lost_tokens),
    ),
    Check(
        "I8",
        "A retry is not due before the failure that caused it.",
        selects(SQL.find_early),
    ),
    Check(
        "I9",
        "Columns written by enqueue have not changed.",
        selects(SQL.find_changed),
    ),
    Check(
        "I10",
        "A completed job has a result, a failed job an error, and both a finish time.",
        selects(SQL.find_half_ended),
    ),
)
