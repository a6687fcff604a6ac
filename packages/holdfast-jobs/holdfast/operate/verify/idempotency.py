"""I12 and I13: one job for a key and for an execution unit."""

from __future__ import annotations

from holdfast.operate.verify.check import Check, selects
from holdfast.store import Statements

SQL = Statements("holdfast.operate.verify", "idempotency.sql")

CHECKS = (
    Check(
        "I12",
        "An idempotency key belongs to one job of its job type and tenant.",
        selects(SQL.find_shared_keys, SQL.find_foreign_keys),
    ),
    Check(
        "I13",
        "At most one of a job and its replays is active in an execution unit.",
        selects(SQL.find_crowded_units),
    ),
)
