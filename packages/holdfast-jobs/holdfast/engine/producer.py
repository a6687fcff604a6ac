"""Producers: the permission to enqueue jobs of one type."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.errors import Forbidden


@dataclass(frozen=True, slots=True, eq=False)
class Producer:
    """The permission to enqueue jobs of one type, for the code that owns the job type.

    Declare it as ``producer=`` of a job type and pass it as ``producer=`` to each enqueue. Every
    other enqueue raises EnqueueRefused, which names *call* as the function to use. Two producers
    with the same text are different.
    """

    call: str


class EnqueueRefused(Forbidden):
    """Only the producer of the job type may enqueue its jobs; *call* names it. Use the call that
    the error names."""

    def __init__(self, job_type: str, call: str | None = None) -> None:
        self.job_type, self.call = job_type, call
        use = f"Use {call} instead." if call else "The table job_type_rule names the call to use."
        super().__init__(
            f"Nothing was enqueued: only its producer enqueues jobs of type {job_type!r}. {use}"
        )
