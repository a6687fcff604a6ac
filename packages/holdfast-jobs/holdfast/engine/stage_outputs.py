"""The stored outputs and checkpoints of jobs that are claimed again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from holdfast.document import decode
from holdfast.engine.job import Claimed
from holdfast.store import Row, Statements, Store

SQL = Statements("holdfast.engine", "job.sql")


def with_stages(store: Store, claimed: list[Claimed]) -> list[Claimed]:
    """Add stored outputs and checkpoints to the jobs that ran before."""
    begun = [
        {"org_id": job.org_id, "id": job.id}
        for job in claimed
        if job.lease_token > 1 or job.replay_of is not None
    ]
    if not begun:
        return claimed
    stored: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in store.many(SQL.list_stages, jobs=begun):
        stored[row["org_id"], row["job_id"]].append(row)
    return [
        _with_stored(job, rows) if (rows := stored.get((job.org_id, job.id))) else job
        for job in claimed
    ]


def _with_stored(job: Claimed, rows: Iterable[Row]) -> Claimed:
    outputs: dict[str, Any] = {}
    checkpoint: Any = None
    for row in rows:
        if row["output"] is not None:
            outputs[row["stage"]] = decode(row["output"])
        elif row["stage"] == job.stage and row["checkpoint"] is not None:
            checkpoint = decode(row["checkpoint"])
    return replace(job, outputs=outputs, checkpoint=checkpoint)
