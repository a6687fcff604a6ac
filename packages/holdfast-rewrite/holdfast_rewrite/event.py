"""The event of the complaint rewrite."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from holdfast.event import ExtensionEvent


@dataclass(frozen=True, slots=True)
class RewriteMoved(ExtensionEvent):
    """A rewrite request advanced a step or ended.

    *step* is its progress, *code* the reason for a failure. Undecided fields are None. It never
    contains text of a message.
    """

    rewrite_request_id: str
    org_id: str
    step: str
    surface: str | None
    strength: str | None = None
    lane: str | None = None
    code: str | None = None

    @property
    def log_name(self) -> str:
        return f"rewrite.{self.step}"

    @property
    def log_level(self) -> int:
        return logging.WARNING if self.step == "failed" else logging.INFO
