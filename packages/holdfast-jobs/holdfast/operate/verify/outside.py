"""I14 to I21: deliveries, compared with their attempts and evidence."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256

from holdfast.clock import write_instant
from holdfast.operate.verify.check import Check, VerifyContext, Violation, selects
from holdfast.store import Statements

SQL = Statements("holdfast.operate.verify", "outside.sql")

# The reconciler runs every five minutes; after this long it is certainly not running.
PATIENCE = timedelta(hours=1)


def _find_forsaken(context: VerifyContext) -> Iterator[Violation]:
    yield from context.find(SQL.find_forsaken, left_since=write_instant(context.now - PATIENCE))


def _find_unintended(context: VerifyContext) -> Iterator[Violation]:
    for statement in (SQL.find_unintended, SQL.find_shared_tokens, SQL.find_altered):
        yield from context.find(statement)
    for row in context.tx.stream(SQL.list_contents, org_id=context.org_id):
        if sha256(row["content"].encode()).hexdigest() != row["content_hash"]:
            detail = "the content does not match its stored hash"
            yield Violation(str(row["org_id"]), row["subject"], detail)


CHECKS = (
    Check(
        "I14",
        "A recipient is notified once per version of a changelist, in increasing order.",
        selects(SQL.find_repeated),
    ),
    Check(
        "I15",
        "A delivery is sent if and only if it has a send time and a notification id.",
        selects(SQL.find_half_marked),
    ),
    Check(
        "I16",
        "Every sent delivery was intended first, with the token of its kind.",
        _find_unintended,
    ),
    Check("I17", "An attempt without an outcome is being reconciled.", _find_forsaken),
    Check(
        "I18",
        "A delivery has one provider id unless it is flagged.",
        selects(SQL.find_doubled),
    ),
    Check(
        "I20",
        "A delivery fails permanently only after reconciliation.",
        selects(SQL.find_unproven),
    ),
    Check(
        "I21",
        "Every resend has a reason.",
        selects(SQL.find_unjustified, SQL.find_miscounted),
    ),
)
