"""I29: all rows of a job belong to its tenant."""

from __future__ import annotations

from holdfast.operate.verify.check import Check, selects
from holdfast.store import Statements

SQL = Statements("holdfast.operate.verify", "tenancy.sql")

CHECKS = (
    Check(
        "I29",
        "A job and its related rows belong to one tenant.",
        selects(
            SQL.find_foreign_events,
            SQL.find_foreign_jobs,
            SQL.find_foreign_parts,
            SQL.find_orphans,
        ),
    ),
)
