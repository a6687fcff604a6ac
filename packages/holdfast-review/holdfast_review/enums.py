"""The enums of the review critic."""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

from holdfast.engine.job import State

JOB_TYPE = "review.process"
# A part of a change that is sent to batch processing.
PART_JOB_TYPE = "review.criticise"
FETCH, LLM, NOTIFY = STAGES = ("fetch", "llm", "notify")


class ReviewProgress(StrEnum):
    """The progress of a review, as its submitter sees it."""

    IN_PROGRESS = "in_progress"
    # It failed and will be retried.
    RETRYABLE_FAILED = "retryable_failed"
    SUCCEEDED = "succeeded"
    # It failed, and only an operator can replay it.
    FAILED = "failed"


def progress_of(
    state: State, attempt_count: int, *, is_retried: bool = False
) -> ReviewProgress | None:
    """Return the progress of a job in *state*; None for a canceled one.

    *is_retried* is true for a failed job that will be replayed automatically because the delivery
    that it lacked is being sent again.
    """
    match state:
        case State.QUEUED:
            return (
                ReviewProgress.IN_PROGRESS
                if attempt_count == 0
                else ReviewProgress.RETRYABLE_FAILED
            )
        case State.PROCESSING | State.BATCH_SUBMITTED:
            return ReviewProgress.IN_PROGRESS
        case State.COMPLETED:
            return ReviewProgress.SUCCEEDED
        case State.FAILED:
            return ReviewProgress.RETRYABLE_FAILED if is_retried else ReviewProgress.FAILED
        case State.CANCELED:
            return None
    assert_never(state)


class SourceKind(StrEnum):
    """Where a change comes from."""

    GIT = "git"
    PATCH = "patch"


class Severity(StrEnum):
    """How severe a finding is, least severe first."""

    INFO = "info"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class Confidence(StrEnum):
    """How confident the critic is of a finding."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Answer(StrEnum):
    """The answer to a review request."""

    CREATED = "created"
    # The key is known: the original job is returned, whatever else was requested.
    SAME_KEY = "same_key"
    # This version of the changelist already has a job, under another key.
    SAME_VERSION = "same_version"
