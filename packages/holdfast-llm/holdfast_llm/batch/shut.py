"""Jobs that could not be sent whichever run took them, so that a full run passes them over.

A run takes a bounded number of jobs, the oldest first. Without this, jobs of an account that
cannot be used would come first in every run, and keep all others waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.document import decode
from holdfast.errors import ConfigError
from holdfast.store import Row, Tx
from holdfast_llm.batch.budget import limit_of, spent_over_budget
from holdfast_llm.batch.circuit import find_open_circuits
from holdfast_llm.batch.intent import SQL
from holdfast_llm.batch.lane import BatchLane
from holdfast_llm.batch.price import Prices
from holdfast_llm.provider.route import Route


def find_shut(lane: BatchLane, queues: Sequence[str], prices: Prices) -> list[tuple[str, str, str]]:
    """What waits in *queues* for an account that is unusable or a budget that allows nothing.

    Each is a tenant, a provider and a model: none of its jobs can be sent now.
    """

    def look(tx: Tx) -> tuple[list[Row], set[str], set[str]]:
        rows = tx.many(SQL.list_waiting_routes, queues=[{"queue": name} for name in queues])
        orgs = {str(row["org_id"]) for row in rows}
        return rows, find_open_circuits(tx), set(spent_over_budget(tx, lane.settings, orgs))

    rows, circuits, spent = lane.store.read(look)
    return [
        (str(row["org_id"]), row["provider"], row["model"])
        for row in rows
        if str(row["org_id"]) in spent
        or not _can_send(lane, prices, circuits, str(row["org_id"]), decode(row["decision"]))
    ]


def _can_send(
    lane: BatchLane, prices: Prices, circuits: set[str], org_id: str, decision: dict[str, Any]
) -> bool:
    try:
        route = Route.read(decision)
        account = lane.accounts.of(route)
    except ValueError:
        # The job is wrong itself and ends when it is taken.
        return True
    except ConfigError:
        return False
    if account.key in circuits:
        return False
    day = lane.store.clock.now().date()
    return limit_of(lane.settings, org_id) is None or (
        prices.of(route.provider, route.model, route.execution_mode, day) is not None
    )
