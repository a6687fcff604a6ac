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
class BulkResult:
    """What a bulk did, or would do."""

    action: str
    dry_run: bool
    matched: int
    ready: int
    done: int
    remaining: int
    skipped: tuple[SkippedItems, ...]
    stopped: str | None


@dataclass(frozen=True, slots=True)
class SkippedItems:
    """How many items were skipped, and why."""

    why: str
    items: int
