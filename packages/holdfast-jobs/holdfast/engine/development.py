"""Development mode: failures are printed on the terminal with message and traceback.

Messages and tracebacks may quote private data, so they are never stored or logged. In development
they are what an engineer needs. ``holdfast worker --dev`` and HOLDFAST_DEV=1 turn it on; nothing
that is stored or logged changes.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Protocol, TextIO

from holdfast.redact import visible

VARIABLE = "HOLDFAST_DEV"
_LONGEST_LINE = 500


class FailedJob(Protocol):
    """The job that failed."""

    @property
    def id(self) -> str: ...

    @property
    def job_type(self) -> str: ...

    @property
    def attempt(self) -> int: ...

    @property
    def max_attempts(self) -> int: ...


class _Mode:
    """Whether failures are printed in this process, and where."""

    def __init__(self) -> None:
        self.output: TextIO | None = None


_mode = _Mode()


def is_requested() -> bool:
    """Whether the environment asks for development mode."""
    return os.environ.get(VARIABLE, "").lower() in ("1", "true", "yes", "on")


def enable(output: TextIO | None = None) -> None:
    """Print failures of this process from now on, by default on standard error."""
    _mode.output = output or sys.stderr


def disable() -> None:
    """Print nothing more, unless the environment asks for it."""
    _mode.output = None


def report(
    exc: BaseException, job: FailedJob, *, stage: str, error_class: str, status: object = None
) -> None:
    """Print a failed attempt, if the mode is on. Never raises."""
    output = _mode.output or (sys.stderr if is_requested() else None)
    if output is None:
        return
    try:
        answer = "" if status is None else f", upstream status {status}"
        head = (
            f"--- {job.job_type} {job.id} failed at stage {stage}, attempt {job.attempt} of"
            f" {job.max_attempts}: {error_class}{answer}"
        )
        lines = [head, *"".join(traceback.format_exception(exc)).splitlines(), "---"]
        # A message may contain control sequences of an upstream.
        output.write("".join(f"{visible(line)[:_LONGEST_LINE]}\n" for line in lines))
        output.flush()
    except Exception:  # noqa: S110
        # Printing must not change the outcome of a job.
        pass
