"""Drafts: rewrites that passed the gate and wait for the verdict of a judge or a person."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast.document import encode
from holdfast.store import Row, Statements
from holdfast_rewrite.enums import Mark
from holdfast_rewrite.output import Output
from holdfast_rewrite.verdict import HoldReason

SQL = Statements("holdfast_rewrite", "draft.sql")

# The columns that a draft and its output share.
_SHARED = (
    "org_id",
    "rewrite_request_id",
    "recipient_user_id",
    "rewritten_text",
    "output_language",
    "provider",
    "model",
    "prompt_version",
    "policy_version",
    "lexicon_version",
    "eval_result",
)


@dataclass(frozen=True, slots=True)
class Draft:
    """A rewrite to store as a draft. Without a reason to hold it, a judge decides."""

    output: Output = field(repr=False)
    gate: Mark
    reason: HoldReason | None = None

    @property
    def state(self) -> str:
        """The state of the draft, and the step of its request."""
        return "judging" if self.reason is None else "held"

    @property
    def row(self) -> dict[str, Any]:
        return {
            **_shared(self.output.row),
            "state": self.state,
            "gate": self.gate.value,
            "findings": None,
            "hold_reason": self.reason,
        }

    @property
    def judged_row(self) -> dict[str, Any]:
        """The row of a rewrite whose identical predecessor has a verdict without findings."""
        without_text = {"state": "stored", "rewritten_text": None, "findings": encode([])}
        return {**self.row, **without_text, "hold_reason": None}


def _shared(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in _SHARED}


def output_of(draft: Row) -> dict[str, Any]:
    """Return the row of the output that a draft becomes."""
    return {**_shared(dict(draft)), "target_locale": draft["output_language"]}
