"""A dead letter for operators: its state, replays and notes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from holdfast.clock import read_instant
from holdfast.document import decode


class DeadLetterState(StrEnum):
    """The state of a dead letter. The same values as the rule dead_letter_state_known."""

    OPEN = "open"
    TRIAGED = "triaged"
    REMEDIATED = "remediated"
    VALIDATED = "validated"
    REPLAYING = "replaying"
    REPLAYED = "replayed"
    RESOLVED = "resolved"
    DISCARDED = "discarded"
    FIXED_FORWARD = "fixed_forward"

    @property
    def is_ended(self) -> bool:
        return self in (
            DeadLetterState.RESOLVED,
            DeadLetterState.DISCARDED,
            DeadLetterState.FIXED_FORWARD,
        )


class DeadLetterKind(StrEnum):
    """The kind of problem: the result of a triage."""

    TRANSIENT = "transient"
    DATA = "data"
    AUTH_CONFIG = "auth_config"
    DEFECT = "defect"


CHECKLISTS: Mapping[DeadLetterKind, Mapping[str, str]] = {
    DeadLetterKind.TRANSIENT: {
        "upstream_recovered": "the upstream service has recovered",
        "capacity_verified": "the upstream service and the queue have capacity for the replay",
    },
    DeadLetterKind.DATA: {
        "source_corrected": "the source of the payload, or the mapping, is corrected",
    },
    DeadLetterKind.AUTH_CONFIG: {
        "credentials_fixed": "credentials are rotated or fixed",
        "permissions_fixed": "permissions are granted",
        "endpoints_fixed": "endpoints are correct",
    },
    DeadLetterKind.DEFECT: {
        "fix_deployed": "the fix is deployed",
        "fix_validated_in_staging": "the fix is validated in staging",
    },
}
"""The checklist to complete before a replay, by kind."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The properties that decide whether letters may be replayed; many may share them."""

    state: DeadLetterState
    job_type: str
    stage: str
    pipeline_version: str
    replay_refusal: str | None
    kind: DeadLetterKind | None = None
    error_class: str = ""
    is_escalated: bool = False
    is_verified: bool = False
    # Whether required deliveries of the completed replay are not sent.
    is_undelivered: bool = False

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Standing:
        return cls(**{name: _read(name, row[name]) for name in cls.__slots__})


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter in its current state. ``job_id`` is the failed job."""

    org_id: str
    job_id: str
    job_type: str
    queue: str
    stage: str
    error_class: str
    last_error: str
    last_stack: str
    sanitized_context: Any
    attempts: int
    first_failure_at: datetime
    last_failure_at: datetime
    created_at: datetime
    updated_at: datetime
    state: DeadLetterState
    version: int
    kind: DeadLetterKind | None
    checklist: Mapping[str, bool] | None
    evidence_ref: str | None
    is_safe_to_repeat: bool | None
    replay_count: int
    failed_replay_id: str | None
    escalated_at: datetime | None
    verified_at: datetime | None
    fixed_by: str | None
    ending: str | None
    ended_at: datetime | None
    # Of the last failed job, and of its category.
    max_attempts: int
    pipeline_version: str
    replay_refusal: str | None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> DeadLetter:
        return cls(**{name: _read(name, row[name]) for name in cls.__slots__})

    @property
    def standing(self) -> Standing:
        return Standing(
            self.state,
            self.job_type,
            self.stage,
            self.pipeline_version,
            self.replay_refusal,
            self.kind,
            self.error_class,
            self.escalated_at is not None,
            self.verified_at is not None,
        )


@dataclass(frozen=True, slots=True)
class Replay:
    """One replay of a dead letter; without an outcome it has not ended."""

    number: int
    replay_job_id: str
    full_restart: bool
    failed_stage: str
    stage: str
    reason: str
    actor_type: str
    actor_id: str
    requested_at: datetime
    outcome: str | None
    error_class: str | None
    ended_at: datetime | None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Replay:
        return cls(**{name: _read(name, row[name]) for name in cls.__slots__})


@dataclass(frozen=True, slots=True)
class Note:
    """A note about a dead letter."""

    id: str
    body: str
    actor_type: str
    actor_id: str
    created_at: datetime

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Note:
        return cls(**{name: _read(name, row[name]) for name in cls.__slots__})


def _read(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name.endswith("_at"):
        return read_instant(value)
    match name:
        case "state":
            return DeadLetterState(value)
        case "kind":
            return DeadLetterKind(value)
        case "checklist" | "sanitized_context":
            return decode(value)
        case "full_restart":
            return bool(value)
        case _ if name.startswith("is_"):
            # SQLite has no boolean type.
            return bool(value)
        case _:
            return value
