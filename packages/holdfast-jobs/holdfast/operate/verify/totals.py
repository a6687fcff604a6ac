"""I37: stored totals match the counted rows."""

from __future__ import annotations

from holdfast.operate.verify.check import Check, selects
from holdfast.store import Statements

SQL = Statements("holdfast.operate.verify", "totals.sql")

CHECKS = (
    Check(
        "I37",
        "Stored counts equal counted rows.",
        selects(SQL.find_miscounted_replays, SQL.find_miscounted_runs),
    ),
)
