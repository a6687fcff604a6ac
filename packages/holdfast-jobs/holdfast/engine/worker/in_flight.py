"""A claimed job in this process, waiting or running, alone or with others."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from holdfast.engine.completion import Completion
from holdfast.engine.context import CancelToken
from holdfast.engine.execute import Execution
from holdfast.engine.job import Claimed, ClaimId


# Compared by identity: a lost claim may still run beside the next claim of the same job.
@dataclass(slots=True, eq=False)
class InFlight:
    """A claimed job in this process, waiting or running."""

    job: Claimed
    token: CancelToken
    claimed_at: float
    renewed_at: float
    execution: Execution | None = None
    started_at: float | None = None
    # How long the last stage ran; None if the job was released before it started.
    ran_seconds: float | None = None
    # The outcome that the running stage has recorded itself.
    completion: Completion | None = None
    # The task of an asynchronous handler.
    task: asyncio.Task[None] | None = None
    # The jobs that one call of the handler takes together.
    group: Group | None = None

    @property
    def claim_id(self) -> ClaimId:
        return self.job.claim_id

    @property
    def together(self) -> list[InFlight]:
        """The claims that are executed by the same call: this one, or its group."""
        return [self] if self.group is None else self.group.members

    def interrupt(self, *, lease_lost: bool = False) -> None:
        """Ask the handler to stop. An asynchronous one gets CancelledError at its next await."""
        is_first = not self.token.is_set
        self.token.set(lease_lost=lease_lost)
        # Read once: the task may end meanwhile.
        task = self.task
        if self.group is not None and not self.group.is_stopped:
            # The call still works for other jobs; the outcome of this one is discarded or canceled.
            return
        if is_first and task is not None:
            # A closed loop has no task left to cancel.
            with suppress(RuntimeError):
                task.get_loop().call_soon_threadsafe(task.cancel)


@dataclass(slots=True, eq=False)
class Group:
    """Claims of one tenant that are executed by one call of their handler. Not empty."""

    members: list[InFlight]

    def __post_init__(self) -> None:
        for member in self.members:
            member.group = self

    @property
    def leader(self) -> InFlight:
        """The member that represents the group in the executor pool."""
        return self.members[0]

    @property
    def is_stopped(self) -> bool:
        """Whether every member was asked to stop."""
        return all(member.token.is_set for member in self.members)
