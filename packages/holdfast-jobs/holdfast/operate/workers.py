"""Workers: the running ones and those that died recently.

A worker serves every tenant, so a context of one tenant is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.arguments import checked
from holdfast.engine.worker.heartbeat import WorkerRow, list_workers
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.refusal import InvalidAction


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker and its last heartbeat. *is_gone* if it sent none for a minute."""

    worker_id: str
    state: str
    is_gone: bool
    queues: tuple[str, ...]
    job_types: tuple[str, ...]
    host: str
    process_id: int
    version: str
    started_at: datetime
    seen_at: datetime
    settled_at: datetime | None
    unsettled: int
    longest_ms: int
    longest_type: str | None

    @classmethod
    def from_worker(cls, worker: WorkerRow) -> WorkerView:
        return cls(
            worker.worker_id,
            worker.state,
            worker.is_gone,
            tuple(sorted(worker.queues)),
            tuple(sorted(worker.job_types)),
            worker.host,
            worker.process_id,
            worker.version,
            worker.started_at,
            worker.seen_at,
            worker.settled_at,
            worker.unsettled,
            worker.longest_ms,
            worker.longest_type,
        )


@checked(InvalidAction)
class Workers:
    """The workers of an application."""

    def __init__(self, context: OperatorContext) -> None:
        self.context = context

    def list(self) -> Sequence[WorkerView]:
        """Running workers and those that died within a day, a thousand at most."""
        self.context.check(Action.LOOK, org_id=None, subject="workers")
        return [WorkerView.from_worker(row) for row in self.context.store.read(list_workers)]
