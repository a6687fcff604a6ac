"""The statements that end steps, release their dependents and wake waiting jobs.

They run in the transaction in which jobs end, once for a whole group of jobs.
"""

from __future__ import annotations

from holdfast.engine.state_hook import AWAITS, STEP
from holdfast.store import Statements, StateStatement

SQL = Statements("holdfast.workflows", "settle.sql")
WAIT_SQL = Statements("holdfast.workflows", "wait.sql")

END_STEPS = StateStatement(
    None,
    SQL.lock_workflows,
    states=frozenset({"completed", "failed", "canceled"}),
    marker=STEP,
    further=(
        # Most groups of a mapped step end here: no step has ended.
        (SQL.count_items, SQL.end_items, SQL.end_steps),
        (
            SQL.judge_workflows,
            SQL.release_steps,
            SQL.insert_released,
            SQL.start_released,
            SQL.end_workflows,
        ),
    ),
)

# An event may have arrived after the handler looked for it and before the job was snoozed.
WAKE_EARLY = StateStatement(
    None, WAIT_SQL.wake_received, states=frozenset({"queued"}), marker=AWAITS
)

STATEMENTS = (END_STEPS, WAKE_EARLY)
