"""The payload of a rewrite job: as stored in its row, and as executed.

The row holds ids and codes. The complete payload, including the text, is assembled in memory for
the execution and dropped afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast_rewrite.enums import JOB_TYPE, Lane, Status, Strength, Surface
from holdfast_rewrite.model import ClassifierResult, Document, RewriteRequest


@dataclass(frozen=True, slots=True)
class RowPayload(Document):
    """The stored payload: ids and codes, never text."""

    rewrite_request_id: str
    home_id: str
    sender_user_id: str
    recipient_user_id: str
    recipient_snapshot_id: str
    recipient_preference_snapshot_id: str
    surface: Surface
    rewrite_strength: Strength
    source_locale: str
    target_locale: str
    lane: Lane

    @classmethod
    def from_request(cls, request: RewriteRequest) -> RowPayload:
        """Build it from a request."""
        return cls(
            request.rewrite_request_id,
            request.home_id,
            request.sender_user_id,
            request.recipient_user_id,
            request.recipient_snapshot_id,
            request.recipient_preference_snapshot_id,
            request.surface,
            request.rewrite_strength,
            request.source_locale,
            request.target_locale,
            request.lane,
        )

    @property
    def unit_key(self) -> str:
        """Return the execution unit: one message for one recipient."""
        return f"{self.rewrite_request_id}:{self.recipient_user_id}"


@dataclass(frozen=True, slots=True)
class JobPayload(Document):
    """A rewrite job as it is executed, in memory only."""

    job_type: str
    job_id: str
    rewrite_request_id: str
    home_id: str
    sender_user_id: str
    recipient_user_id: str
    recipient_snapshot_id: str
    recipient_preference_snapshot_id: str
    source_locale: str
    target_locale: str
    lane: Lane
    provider_batch_id: str | None
    routing_decision: dict[str, Any]
    rewrite_request: RewriteRequest
    classifier_result: ClassifierResult
    execution_mode: str
    attempt: int
    max_attempts: int
    status: Status

    @classmethod
    def from_row(
        cls,
        row: RowPayload,
        request: RewriteRequest,
        *,
        job_id: str,
        provider_batch_id: str | None,
        routing_decision: dict[str, Any],
        attempt: int,
        max_attempts: int,
        status: Status,
    ) -> JobPayload:
        return cls(
            JOB_TYPE,
            job_id,
            row.rewrite_request_id,
            row.home_id,
            row.sender_user_id,
            row.recipient_user_id,
            row.recipient_snapshot_id,
            row.recipient_preference_snapshot_id,
            row.source_locale,
            row.target_locale,
            row.lane,
            provider_batch_id,
            routing_decision,
            request,
            request.classifier_result,
            str(routing_decision["execution_mode"]),
            attempt,
            max_attempts,
            status,
        )
