"""The events of the complaint rewrite."""

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


@dataclass(frozen=True, slots=True)
class RewriteJudged(ExtensionEvent):
    """The model judge answered, or gave no verdict.

    *verdict* is clean, findings or none; *codes* are the findings. It never contains a quote.
    """

    rewrite_request_id: str
    org_id: str
    verdict: str
    codes: tuple[str, ...] = ()

    @property
    def log_name(self) -> str:
        return "rewrite.judged"

    @property
    def log_level(self) -> int:
        return logging.INFO
