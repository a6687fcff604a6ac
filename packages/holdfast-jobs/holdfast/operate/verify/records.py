"""I42 to I46, I48 and I49: stored rows match their audit events."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from holdfast.clock import write_instant
from holdfast.engine.audit import PLATFORM_ORG, subject_id
from holdfast.operate.verify.check import Check, VerifyContext, Violation, selects
from holdfast.store import Statements

SQL = Statements("holdfast.operate.verify", "records.sql")

# The longest lease that a setting allows, plus the maximum clock offset.
LONGEST_LEASE = timedelta(days=1, minutes=1)
# Number of deliveries whose events are read at once.
PAGE = 500
# Holdfast's timestamps have milliseconds, PostgreSQL's have microseconds.
ROUNDING = timedelta(seconds=1)


def _find_changed(context: VerifyContext) -> Iterator[Violation]:
    yield from context.find(SQL.find_changed_successes)
    yield from context.find(SQL.find_changed_states, due=write_instant(context.now + ROUNDING))
    longest = write_instant(context.now + LONGEST_LEASE)
    yield from context.find(SQL.find_changed_claims)
    yield from context.find(SQL.find_long_leases, longest=longest)
    yield from context.find(SQL.find_changed_attempts)
    yield from context.find(SQL.find_changed_errors)


def _find_changed_settings(context: VerifyContext) -> Iterator[Violation]:
    yield from context.find(SQL.find_changed_deliveries)
    yield from context.find(SQL.find_vanished_deliveries)
    yield from context.find(SQL.find_unrecorded_deliveries)
    yield from _find_moved_deliveries(context)
    if context.org_id is not None:
        return
    names = [row["subject"] for row in context.tx.many(SQL.list_pausable)]
    subjects = [{"subject": name, "id": subject_id(name)} for name in names]
    yield from context.find(SQL.find_changed_pauses, subjects=subjects)
    yield from context.find(SQL.find_changed_schedules, subjects=subjects)


def _find_moved_deliveries(context: VerifyContext) -> Iterator[Violation]:
    after = {"after_org": PLATFORM_ORG, "after_id": PLATFORM_ORG}
    while True:
        page = context.tx.many(SQL.list_deliveries, org_id=context.org_id, limit=PAGE, **after)
        if not page:
            return
        pages = [
            {
                "home": row["org_id"],
                "delivery_id": row["id"],
                "subject_id": subject_id(f"delivery:{row['id']}"),
            }
            for row in page
        ]
        yield from context.find(SQL.find_moved_deliveries, pages=pages)
        after = {"after_org": page[-1]["org_id"], "after_id": page[-1]["id"]}


CHECKS = (
    Check(
        "I42",
        "Every enqueued job is stored, or its pruning is recorded.",
        selects(SQL.find_vanished, SQL.find_half_pruned),
    ),
    Check(
        "I43",
        "Enqueued columns match the enqueue event.",
        selects(SQL.find_changed_enqueues),
    ),
    Check(
        "I44",
        "A job matches its last claim and its last event.",
        _find_changed,
    ),
    Check(
        "I45",
        "Finished stages match the event history.",
        selects(
            SQL.find_changed_stages,
            SQL.find_invented_stages,
            SQL.find_changed_takeovers,
        ),
    ),
    Check(
        "I46",
        "Dead letters, replays and notes match their last event.",
        selects(SQL.find_changed_letters),
    ),
)
SETTINGS = Check(
    "I49",
    "Artifacts, batch items, deliveries, schedules and pauses match their events.",
    _find_changed_settings,
)
GAPS = Check(
    "I48",
    "Audit event numbers have no gaps.",
    selects(SQL.find_missing_events),
    is_of_store=True,
)
