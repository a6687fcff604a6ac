"""The states of a job and the transitions between them. Pure.

``holdfast jobs list`` imports this module without the rest of the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """The state of a job."""

    QUEUED = "queued"
    PROCESSING = "processing"
    BATCH_SUBMITTED = "batch_submitted"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"

    @classmethod
    def read(cls, word: str) -> State:
        """Parse a stored state; two names of older records are mapped."""
        return cls(_LEGACY.get(word, word))

    @property
    def is_terminal(self) -> bool:
        """True if a job in this state never changes again."""
        return self in (State.COMPLETED, State.FAILED, State.CANCELED)

    @property
    def rank(self) -> int:
        """How far the state is within one claim."""
        return _RANK[self]


_LEGACY = {"running": "processing", "succeeded": "completed"}
_RANK = {
    State.QUEUED: 0,
    State.PROCESSING: 1,
    State.BATCH_SUBMITTED: 2,
    State.COMPLETED: 3,
    State.FAILED: 3,
    State.CANCELED: 3,
}

# The transitions that the triggers of 0004 allow; a test compares the two. Three of them lead back
# to queued (retry, stale claim, release), and each closes the claim.
TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.QUEUED: frozenset({State.PROCESSING, State.CANCELED}),
    State.PROCESSING: frozenset(
        {State.QUEUED, State.BATCH_SUBMITTED, State.COMPLETED, State.FAILED, State.CANCELED}
    ),
    State.BATCH_SUBMITTED: frozenset({State.QUEUED, State.COMPLETED, State.FAILED, State.CANCELED}),
    State.COMPLETED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELED: frozenset(),
}
