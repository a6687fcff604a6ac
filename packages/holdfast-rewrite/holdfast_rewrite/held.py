"""Held rewrites: the queue of a person who decides, with the texts, and the decisions.

The list has no text. Reading a text and deciding are for admins, and both are audited with the
actor. A rewrite is delivered only after approval; an edited one passes the gate again.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from holdfast.arguments import checked, text, whole
from holdfast.clock import read_instant
from holdfast.document import decode, encode
from holdfast.engine.audit import record_actions
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.short_ids import IdSpace
from holdfast.store import Row, Tx
from holdfast_rewrite.detect import Detector, local_detector
from holdfast_rewrite.draft import SQL, output_of
from holdfast_rewrite.enums import FailureCode, Mark
from holdfast_rewrite.erase import deed_of
from holdfast_rewrite.evaluate import Evaluation, evaluate
from holdfast_rewrite.failure import InvalidRewrite, RewriteNotFound
from holdfast_rewrite.judging import reject_drafts, tell_drafts
from holdfast_rewrite.model import RewriteRequest
from holdfast_rewrite.verdict import HoldReason
from holdfast_rewrite.work import SQL as WORK

T = TypeVar("T")
LONGEST_LIST = 1_000
LONGEST_REASON = 200
HELD = IdSpace("held rewrite", SQL.find_held_ids)


@dataclass(frozen=True, slots=True)
class HeldRewrite:
    """A held rewrite without its texts: why, since when, and what gate and judge found."""

    rewrite_request_id: str
    home_id: str
    reason: HoldReason
    held_at: datetime
    age_seconds: int
    gate: Mark
    # None without a verdict.
    findings: tuple[str, ...] | None
    no_verdict_code: str | None
    output_language: str
    lane: str
    rewrite_strength: str
    surface: str


@dataclass(frozen=True, slots=True)
class HeldTexts:
    """A held rewrite with its texts, for the person who decides."""

    rewrite_request_id: str
    home_id: str
    sender_user_id: str
    recipient_user_id: str
    reason: HoldReason
    held_at: datetime
    gate: Mark
    gate_codes: tuple[str, ...]
    findings: tuple[str, ...] | None
    no_verdict_code: str | None
    source_locale: str
    target_locale: str
    original_text: str | None = field(repr=False)
    rewritten_text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class HeldDecision:
    """The result of a decision."""

    rewrite_request_id: str
    decision: str
    status: str


@checked(InvalidRewrite, checks={"limit": whole(1, LONGEST_LIST), "text": text})
class HeldRewrites:
    """The rewrites that wait for a person, of one home or of all."""

    def __init__(self, context: OperatorContext, detector: Detector | None = None) -> None:
        self._context = context
        self._detector = detector

    def list(self, *, reason: str | None = None, limit: int = 50) -> Sequence[HeldRewrite]:
        """List held rewrites without text, oldest first. For operators."""
        context = self._context
        context.check(Action.READ_AUDIT, org_id=context.org_id, subject="rewrites:held")
        if reason is not None and reason not in tuple(HoldReason):
            raise InvalidRewrite({"reason": f"must be one of {', '.join(HoldReason)}"})
        params = {"org_id": context.org_id, "reason": reason, "limit": limit}
        rows = context.store.read(lambda tx: tx.many(SQL.list_held, **params))
        now = context.store.clock.now()
        return [_held(row, now) for row in rows]

    def show(self, rewrite_request_id: str) -> HeldTexts:
        """Return a held rewrite with both texts. For admins; audited."""

        def work(tx: Tx, row: Row) -> HeldTexts:
            self._record(tx, row, "rewrite_held_read", {})
            return _texts(row)

        return self._on_held(Action.READ_HELD, rewrite_request_id, work)

    def approve(self, rewrite_request_id: str, *, reason: str) -> HeldDecision:
        """Deliver a held rewrite as it is. For admins; audited with *reason*."""
        said = _reason(reason)

        def work(tx: Tx, row: Row) -> HeldDecision:
            return self._deliver(tx, row, "approve", output_of(row), {"reason": said})

        return self._on_held(Action.DECIDE_HELD, rewrite_request_id, work)

    def edit(self, rewrite_request_id: str, *, text: str, reason: str) -> HeldDecision:
        """Deliver an edited text instead. Raises InvalidRewrite if it fails the gate.

        For admins; audited with *reason*.
        """
        said = _reason(reason)
        # Count, validate and store the same normalized text.
        edited = unicodedata.normalize("NFC", text)

        def work(tx: Tx, row: Row) -> HeldDecision:
            found = self._gate(row, edited)
            output = {
                **output_of(row),
                "rewritten_text": edited,
                "lexicon_version": found.lexicon_version,
                "eval_result": encode(found.result.document),
            }
            detail = {"reason": said, "gate": found.verdict.value}
            return self._deliver(tx, row, "edit", output, detail)

        return self._on_held(Action.DECIDE_HELD, rewrite_request_id, work)

    def reject(self, rewrite_request_id: str, *, reason: str) -> HeldDecision:
        """Reject a held rewrite: it is never delivered, and its text is erased.

        For admins; audited with *reason*.
        """
        said = _reason(reason)

        def work(tx: Tx, row: Row) -> HeldDecision:
            actor = str(self._context.actor)
            reject_drafts(tx, [row], "reject", actor, FailureCode.HELD_REJECTED)
            self._record(tx, row, "rewrite_held_rejected", {"reason": said})
            return HeldDecision(row["rewrite_request_id"], "reject", "failed")

        return self._on_held(Action.DECIDE_HELD, rewrite_request_id, work)

    # -- one transaction each

    def _on_held(self, action: Action, rewrite_request_id: str, work: Callable[[Tx, Row], T]) -> T:
        """Run *work* on a draft that is still held, if the actor may take the action."""
        context = self._context
        request_id = rewrite_request_id
        subject = f"rewrite:{request_id}"
        params = {"id": request_id, "org_id": context.org_id}
        seen = context.store.write(lambda tx: tx.maybe(SQL.find_held, **params))
        org_id = context.org_id if seen is None else seen["org_id"]
        context.check(action, org_id=org_id, subject=subject)

        def step(tx: Tx) -> T:
            row = tx.maybe(SQL.find_held, **params)
            if row is None or row["state"] != "held" or row["rewritten_text"] is None:
                raise RewriteNotFound(request_id)
            # The audit has the verdict before the decision.
            if row["told_at"] is None:
                tell_drafts(tx, [row])
            return work(tx, row)

        return context.store.write(step)

    def _deliver(
        self, tx: Tx, row: Row, decision: str, output: dict[str, Any], detail: Mapping[str, object]
    ) -> HeldDecision:
        request_id = row["rewrite_request_id"]
        ids = {"org_id": row["org_id"], "id": request_id}
        decided = [{**ids, "decision": decision, "decided_by": str(self._context.actor)}]
        tx.many(SQL.decide_drafts, decided=decided)
        if tx.affected(SQL.complete_request, **ids) != 1:
            raise RewriteNotFound(request_id)
        tx.affected(WORK.insert_outputs, outputs=[output])
        name = "rewrite_held_approved" if decision == "approve" else "rewrite_held_edited"
        self._record(tx, row, name, detail)
        return HeldDecision(request_id, decision, "completed")

    def _record(self, tx: Tx, row: Row, name: str, detail: Mapping[str, object]) -> None:
        record_actions(tx, [deed_of(row, self._context.actor, name, dict(detail))])

    def _gate(self, row: Row, text: str) -> Evaluation:
        found = evaluate(
            RewriteRequest.read(decode(row["rewrite_request"])),
            rewritten_text=text,
            output_language=row["output_language"],
            detector=self._detector or local_detector(),
        )
        if found.verdict is Mark.FAIL:
            codes = [*found.result.violations, *found.result.flags]
            raise InvalidRewrite({"text": f"fails validation: {', '.join(codes)[:200]}"})
        return found


def _held(row: Row, now: datetime) -> HeldRewrite:
    held_at = read_instant(row["held_at"])
    return HeldRewrite(
        row["rewrite_request_id"],
        row["home_id"],
        HoldReason(row["hold_reason"]),
        held_at,
        int((now - held_at).total_seconds()),
        Mark(row["gate"]),
        _findings(row),
        row["no_verdict_code"],
        row["output_language"],
        row["lane"],
        row["rewrite_strength"],
        row["surface"],
    )


def _texts(row: Row) -> HeldTexts:
    result = decode(row["eval_result"])
    return HeldTexts(
        row["rewrite_request_id"],
        row["org_id"],
        row["sender_user_id"],
        row["recipient_user_id"],
        HoldReason(row["hold_reason"]),
        read_instant(row["held_at"]),
        Mark(row["gate"]),
        (*result.get("violations", ()), *result.get("flags", ())),
        _findings(row),
        row["no_verdict_code"],
        row["source_locale"],
        row["target_locale"],
        row["original_text"],
        row["rewritten_text"],
    )


def _findings(row: Row) -> tuple[str, ...] | None:
    return None if row["findings"] is None else tuple(decode(row["findings"]))


def _reason(reason: str) -> str:
    if not reason.strip():
        raise InvalidRewrite({"reason": "is required; it is recorded in the audit"})
    return reason.strip()[:LONGEST_REASON]
