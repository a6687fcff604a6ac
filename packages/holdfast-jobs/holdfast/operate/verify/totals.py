"""I37: stored totals match the counted rows."""

from __future__ import annotations

from holdfast.operate.verify.check import Check, selects
from holdfast.store import Statements

SQL = Statements("holdfast.operate.verify", "totals.sql")

CHECKS = (
    Check(
        "I37",
        "A number that is kept is the number that is counted.",
        selects(SQL.find_miscounted_replays, SQL.find_miscounted_runs),
    ),
)
