"""I19 and parts of I14 and I29: reviews, compared with their jobs and deliveries."""

from __future__ import annotations

from holdfast.operate.verify.check import Check, selects
from holdfast.store import Statements

SQL = Statements("holdfast_review", "verify.sql")

CHECKS = (
    Check(
        "I14",
        "A recipient is notified once per version of a changelist, in increasing order.",
        selects(SQL.find_overtaken, SQL.find_outdated),
    ),
    Check(
        "I19",
        "A review succeeds only when all required recipients are notified.",
        selects(SQL.find_unserved, SQL.find_uninvited, SQL.find_behind),
    ),
    Check(
        "I29",
        "A job and its related rows belong to one tenant.",
        selects(SQL.find_foreign_reviews),
    ),
)
