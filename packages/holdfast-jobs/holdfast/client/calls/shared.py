"""Answers of several resources. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One event of the audit."""

    id: int
    org_id: str
    job_id: str
    job_type: str
    name: str
    attempt: int
    actor: str
    request_id: str
    correlation_id: str
    at: datetime
    detail: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class BulkActionView:
    """A bulk action and its progress. Its job has the same id."""

    id: str
    org_id: str | None
    subject: str
    action: str
    filter: str
    reason: str
    actor: str
    state: str
    matched: int
    ready: int
    is_capped: bool
    done: int
    skipped: int
    counts: Mapping[str, int]
    error: str | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class BulkPlan:
    """What a dry run found."""

    action: str
    dry_run: bool
    matched: int
    ready: int
    is_capped: bool
    skipped: tuple[SkippedItems, ...]


@dataclass(frozen=True, slots=True)
class SkippedItems:
    """How many items are skipped, and why."""

    why: str
    items: int
