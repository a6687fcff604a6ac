"""The application that an operator works on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, Unpack

from holdfast.engine.enqueue import Enqueued
from holdfast.engine.limits import Queues
from holdfast.engine.request import InsertRows, JobRequest, Options
from holdfast.engine.schedule.rows import Scheduling
from holdfast.extension import Extensions


class OperatedApp(Scheduling, Protocol):
    """The application that an operator works on."""

    extensions: Extensions

    @property
    def queues(self) -> Queues: ...

    @property
    def known_queues(self) -> list[str]: ...

    def enqueue(
        self,
        job_type: str,
        payload: Mapping[str, Any],
        *,
        org_id: str | None = None,
        conn: Any = None,
        **options: Unpack[Options],
    ) -> Enqueued: ...

    def enqueue_many(
        self,
        job_type: str,
        payloads: Iterable[Mapping[str, Any] | JobRequest],
        *,
        org_id: str | None = None,
        conn: Any = None,
        **options: Unpack[Options],
    ) -> list[Enqueued]: ...

    def announce(
        self, batches: Sequence[InsertRows], enqueued: Sequence[Enqueued], *, is_committed: bool
    ) -> None: ...
