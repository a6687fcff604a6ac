"""Crashes of a process between two steps, injected from outside.

A FailPoint is before or after a transaction, named by a statement of it, or a call of a provider or
a channel. ``install`` calls a function of the test at every point that an application reaches;
``kill_at`` ends the process there, as ``kill -9`` does.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from enum import StrEnum
from pathlib import Path

from holdfast import Holdfast
from holdfast.testing_faults import OUTBOX_POINTS, FailPoint, inject
from holdfast_llm.batch.service import BatchService
from holdfast_llm.testing import BATCH_POINTS, inject_service

__all__ = ["BatchPoint", "FailPoint", "OutboxPoint", "inject", "install", "install_kill", "watched"]

BatchPoint = StrEnum("BatchPoint", {name.upper(): name for name in BATCH_POINTS})  # type: ignore[misc]
OutboxPoint = StrEnum(  # type: ignore[misc]
    "OutboxPoint",
    {name.partition(".")[2].upper(): name for name in OUTBOX_POINTS if name != "send"},
)


# A context manager that is garbage-collected is closed.
_INSTALLED: list[ExitStack] = []


def points_of(kind: type[StrEnum]) -> Mapping[str, FailPoint]:
    every = {**BATCH_POINTS, **OUTBOX_POINTS}
    return {point: every[point.value] for point in kind}


def install(
    hf: Holdfast, kind: type[StrEnum], reached: Callable[[StrEnum], None]
) -> Callable[[], None]:
    """Call *reached* at every point of *kind* from now on; the returned object ends that."""
    stack = ExitStack()
    _INSTALLED.append(stack)
    stack.enter_context(inject(hf, points_of(kind), lambda name: reached(kind(name))))
    return stack.close


def watched(
    service: BatchService, reached: Callable[[StrEnum], None]
) -> AbstractContextManager[BatchService]:
    """A batch service that calls *reached* at every point."""
    points = points_of(BatchPoint)
    return inject_service(service, points, lambda name: reached(BatchPoint(name)))


def install_kill(hf: Holdfast, point: StrEnum, *, nth: int = 1, note: Path | None = None) -> None:
    """Kill this process the nth time that it reaches *point*; first write the point to *note*."""
    seen = 0

    def reached(at: StrEnum) -> None:
        nonlocal seen
        if at is not point:
            return
        seen += 1
        if seen >= nth:
            if note is not None:
                note.write_text(str(at))
            os.kill(os.getpid(), signal.SIGKILL)

    install(hf, type(point), reached)
