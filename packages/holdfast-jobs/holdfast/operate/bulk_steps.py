"""The steps of the dead letter workflow for many items at once.

The statements of one operator apply to every item: one reason, one kind of failure, one reference
to the evidence. Each item gets the same audit events as by single calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.document import encode
from holdfast.engine import audit
from holdfast.engine.handler import Handler
from holdfast.errors import Failure, Transient
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.dead_letter import CHECKLISTS, DeadLetter, DeadLetterKind, DeadLetterState
from holdfast.operate.dead_letter import Standing as Standing
from holdfast.operate.dead_letter_input import LONGEST_REFERENCE
from holdfast.operate.dead_letter_plan import BEGINS, never_replayed, why_not_from, words_of
from holdfast.operate.replay import SQL, step_of
from holdfast.store import Tx

RECOVERY = (
    Action.TRIAGE,
    Action.REMEDIATE,
    Action.VALIDATE,
    Action.REPLAY,
    Action.VERIFY_REPLAY,
    Action.RESOLVE,
)
"""The workflow in its order."""

_AFTER: Mapping[Action, DeadLetterState] = {
    Action.TRIAGE: DeadLetterState.TRIAGED,
    Action.REMEDIATE: DeadLetterState.REMEDIATED,
    Action.VALIDATE: DeadLetterState.VALIDATED,
    Action.REPLAY: DeadLetterState.REPLAYING,
    Action.VERIFY_REPLAY: DeadLetterState.REPLAYED,
    Action.RESOLVE: DeadLetterState.RESOLVED,
    Action.DISCARD: DeadLetterState.DISCARDED,
}
_EVENTS: Mapping[Action, str] = {
    Action.TRIAGE: "dead_letter.triaged",
    Action.REMEDIATE: "dead_letter.remediated",
    Action.VALIDATE: "dead_letter.validated",
    Action.VERIFY_REPLAY: "dead_letter.verified",
    Action.RESOLVE: "dead_letter.resolved",
    Action.DISCARD: "dead_letter.discarded",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """What an operator states about every item of a bulk.

    Without *kind* only transient failures are triaged. Without *done* the whole checklist of the
    kind is confirmed. Without *evidence_ref* the reason is the evidence.
    """

    reason: str
    kind: DeadLetterKind | None = None
    done: frozenset[str] | None = None
    evidence_ref: str | None = None
    full_restart: bool = False


@dataclass(frozen=True, slots=True)
class Walk:
    """The steps of one bulk, in their order."""

    steps: tuple[Action, ...]
    decision: Decision

    def next_step(self, item: Standing) -> Action | None:
        """Return the step that the bulk takes next for items like this."""
        for step in self.steps:
            if step is Action.DISCARD and item.state is not DeadLetterState.REPLAYING:
                return step
            if step is not Action.DISCARD and item.state is BEGINS[step]:
                # A verified replay is resolved; one that is not is verified first.
                done = item.is_verified if step is Action.VERIFY_REPLAY else False
                missing = not item.is_verified if step is Action.RESOLVE else False
                if not (done or missing):
                    return step
        return None

    def why_not(self, item: Standing, handler: Handler | None) -> str | None:
        """Return why the bulk skips items like this; None if it does not."""
        step = self.next_step(item)
        if Action.REPLAY in self.steps and item.state not in _REPLAYED:
            never = never_replayed(item)
            if never is not None:
                return never
        match step:
            case None:
                return self._why_none(item)
            case Action.TRIAGE:
                return self._why_not_triaged(item) or self._why_not_replayed(item, handler)
            case Action.REMEDIATE:
                return self._why_not_remediated(item) or self._why_not_replayed(item, handler)
            case Action.VALIDATE | Action.REPLAY:
                return self._why_not_replayed(item, handler)
            case Action.VERIFY_REPLAY if item.is_undelivered:
                return "its replay completed, but deliveries are not sent"
            case _:
                return None

    def _why_none(self, item: Standing) -> str:
        if item.state is DeadLetterState.REPLAYING:
            return "a replay is running"
        first = self.steps[0]
        if first is Action.RESOLVE and item.state is DeadLetterState.REPLAYED:
            return "replayed, not verified"
        begins = BEGINS[first]
        if len(self.steps) == 1 and item.state is not begins:
            return f"{words_of(item.state)}, not {words_of(begins)}"
        return f"{words_of(item.state)}, which these steps do not change"

    def _why_not_triaged(self, item: Standing) -> str | None:
        if self.decision.kind is not None:
            return None
        if item.is_escalated:
            return "its replay failed the same way; fix the cause, then pass its kind: --kind"
        if not is_transient(item.error_class):
            return (
                f"{item.error_class} is not a transient failure; fix the cause, then pass its"
                " kind: --kind data, auth_config or defect"
            )
        return None

    def _why_not_remediated(self, item: Standing) -> str | None:
        done, kind = self.decision.done, item.kind
        if done is None or kind is None:
            return None
        missing = [name for name in CHECKLISTS[kind] if name not in done]
        if missing:
            return f"of kind {kind}; not confirmed: {', '.join(missing)}"
        return None

    def _why_not_replayed(self, item: Standing, handler: Handler | None) -> str | None:
        if Action.REPLAY not in self.steps:
            return None
        return why_not_from(item, handler, full_restart=self.decision.full_restart)


_REPLAYED = (DeadLetterState.REPLAYING, DeadLetterState.REPLAYED)


def is_transient(error_class: str) -> bool:
    """Whether a known failure with this error class is a transient one."""
    return error_class in _classes(Transient)


def _classes(kind: type[Failure]) -> set[str]:
    found = {kind.error_class}
    for below in kind.__subclasses__():
        found |= _classes(below)
    return found


def take_steps(
    tx: Tx,
    context: OperatorContext,
    letters: Sequence[tuple[DeadLetter, Standing]],
    walk: Walk,
    detail: Mapping[str, Any],
) -> tuple[list[DeadLetter], list[DeadLetter]]:
    """Take the steps before a replay, or after it.

    Return the letters that changed as they are now, and those of them that are ready to be
    replayed. Letters that were changed meanwhile are skipped.
    """
    found = {(one.org_id, one.job_id): (one, standing) for one, standing in letters}
    changed: dict[tuple[str, str], DeadLetter] = {}
    for step in walk.steps:
        if step is Action.REPLAY:
            continue
        taken = {key: one for key, (one, item) in found.items() if walk.next_step(item) is step}
        if not taken:
            continue
        moved = _write(tx, context, step, list(taken.values()), walk.decision, detail)
        for key in taken:
            if key not in moved:
                found.pop(key)
                changed.pop(key, None)
                continue
            changed[key] = moved[key]
            found[key] = (moved[key], moved[key].standing)
    ready = [one for one, item in found.values() if walk.next_step(item) is Action.REPLAY]
    return list(changed.values()), ready


def _write(
    tx: Tx,
    context: OperatorContext,
    step: Action,
    letters: Sequence[DeadLetter],
    decision: Decision,
    detail: Mapping[str, Any],
) -> dict[tuple[str, str], DeadLetter]:
    """Take one step for these letters; return them as they are after it, by key."""
    changes = {(one.org_id, one.job_id): _change(step, one, decision) for one in letters}
    told = {"reason": decision.reason[:200], "role": context.role, **detail}
    rows = tx.many(SQL.step_letters, steps=[row for _, row, _ in changes.values()])
    moved = {(str(row["org_id"]), str(row["job_id"])) for row in rows}
    entries = [
        audit.Entry(after.org_id, after.job_id, _EVENTS[step], after.attempts, {**own, **told})
        for key, (after, _, own) in changes.items()
        if key in moved
    ]
    audit.record(tx, context.actor, entries)
    return {key: after for key, (after, _, _) in changes.items() if key in moved}


def _change(
    step: Action, letter: DeadLetter, decision: Decision
) -> tuple[DeadLetter, dict[str, Any], dict[str, Any]]:
    """Return the letter after a step, the row that writes it, and the detail of its audit event."""
    state = _AFTER[step]
    after = replace(letter, state=state, version=letter.version + 1)
    match step:
        case Action.TRIAGE:
            kind = decision.kind or DeadLetterKind.TRANSIENT
            after = replace(
                after, kind=kind, checklist=None, evidence_ref=None, is_safe_to_repeat=None
            )
            row = step_of(letter, state, to_kind=kind, list=None, evidence=None, is_safe=None)
            own = {"kind": kind, "error_class": letter.error_class, "stage": letter.stage}
            return after, row, {**own, "attempts": letter.attempts}
        case Action.REMEDIATE:
            assert letter.kind is not None
            done = dict.fromkeys(CHECKLISTS[letter.kind], True)
            row = step_of(letter, state, list=encode(done))
            return replace(after, checklist=done), row, {"done": sorted(done)}
        case Action.VALIDATE:
            evidence = (decision.evidence_ref or decision.reason)[:LONGEST_REFERENCE]
            after = replace(after, evidence_ref=evidence, is_safe_to_repeat=True)
            row = step_of(letter, state, evidence=evidence, is_safe=True)
            return after, row, {"evidence_ref": evidence, "is_safe_to_repeat": True}
        case Action.VERIFY_REPLAY:
            # Only whether there is one matters for the next step.
            after = replace(after, verified_at=letter.updated_at)
            row = step_of(letter, state, verifies=1)
            return after, row, {"replay": letter.replay_count}
        case Action.RESOLVE:
            row = step_of(letter, state, last_words=decision.reason)
            return after, row, {"notes": decision.reason[:200]}
        case _:
            return after, step_of(letter, state, last_words=decision.reason), {}
