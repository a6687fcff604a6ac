"""Replays jobs that failed because of a missing delivery, once the delivery is marked sent.

The dead letter goes through the same audited steps that an operator takes. The replay begins at the
failed stage and finds all deliveries sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from holdfast.engine import audit
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.dead_letter import CHECKLISTS, DeadLetter, DeadLetterKind, DeadLetterState
from holdfast.operate.dead_letter_plan import why_not_in_bulk
from holdfast.operate.replay import SQL as LETTERS
from holdfast.operate.replay import Replays, make_replays, step_of
from holdfast.store import Statements, Tx

SQL = Statements("holdfast.operate", "deliveries.sql")

# Each replay has its own shared columns; see bulk.py for the cost of a page.
PAGE = 50
REASON = "all required deliveries are sent"


class BringBack:
    """Brings back the jobs of one application."""

    def __init__(self, context: Callable[[], OperatorContext]) -> None:
        self._context = context

    def count(self, limit: int = PAGE) -> int:
        """Count the jobs that could be brought back now, up to *limit*."""
        context = self._context()
        return len(context.store.read(lambda tx: _list(tx, context, limit)))

    def run(self, limit: int = PAGE) -> int:
        """Bring back at most *limit* jobs; return how many."""
        return bring_back(self._context(), limit=limit)


def bring_back(context: OperatorContext, *, limit: int = PAGE) -> int:
    """Replay the dead letters of *context* that only lacked a delivery; return how many."""
    if not context.store.read(lambda tx: _list(tx, context, 1)):
        return 0
    ids = context.ids.take(min(limit, PAGE))

    def work(tx: Tx) -> Replays | None:
        letters = [
            letter
            for letter in _list(tx, context, min(limit, PAGE))
            if _why_not(context, letter) is None
        ]
        if not letters:
            return None
        ready = _validate(tx, context, letters)
        given = ids[: len(ready)]
        return make_replays(tx, context, ready, ids=given, reason=REASON, full_restart=False)

    replays = context.store.write(work)
    if replays is None:
        return 0
    replays.announce(context)
    return len(replays.made)


def _list(tx: Tx, context: OperatorContext, limit: int) -> list[DeadLetter]:
    return [
        DeadLetter.from_row(row)
        for row in tx.many(SQL.list_undone, org_id=context.org_id, limit=limit)
    ]


def _why_not(context: OperatorContext, letter: DeadLetter) -> str | None:
    """Return why a validated letter is not replayed."""
    handler = context.registry.handlers.get(letter.job_type)
    validated = replace(letter.standing, state=DeadLetterState.VALIDATED)
    return why_not_in_bulk(Action.REPLAY, validated, handler, full_restart=False)


def _validate(tx: Tx, context: OperatorContext, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
    """Take letters through the steps before a replay; letters changed meanwhile are skipped."""
    found = list(letters)
    for state, step in (
        (DeadLetterState.OPEN, _triage),
        (DeadLetterState.TRIAGED, _remediate),
        (DeadLetterState.REMEDIATED, _prove),
    ):
        found = _step(tx, context, found, state, step)
    return found


def _step(
    tx: Tx,
    context: OperatorContext,
    letters: Sequence[DeadLetter],
    begins: DeadLetterState,
    step: Callable[[DeadLetter], DeadLetter],
) -> list[DeadLetter]:
    moving = {(one.org_id, one.job_id): step(one) for one in letters if one.state is begins}
    if not moving:
        return list(letters)
    rows = [step_of(replace(one, version=one.version - 1), one.state) for one in moving.values()]
    moved = {
        (str(row["org_id"]), str(row["job_id"]))
        for row in tx.many(LETTERS.step_letters, steps=rows)
    }
    told = {"reason": REASON, "role": context.role}
    audit.record(
        tx,
        context.actor,
        [
            audit.Entry(one.org_id, one.job_id, f"dead_letter.{one.state}", one.attempts, told)
            for key, one in moving.items()
            if key in moved
        ],
    )
    return [
        moving.get((one.org_id, one.job_id), one)
        for one in letters
        if one.state is not begins or (one.org_id, one.job_id) in moved
    ]


def _triage(letter: DeadLetter) -> DeadLetter:
    return replace(
        letter,
        state=DeadLetterState.TRIAGED,
        kind=DeadLetterKind.TRANSIENT,
        version=letter.version + 1,
    )


def _remediate(letter: DeadLetter) -> DeadLetter:
    assert letter.kind is not None
    done = dict.fromkeys(CHECKLISTS[letter.kind], True)
    return replace(
        letter, state=DeadLetterState.REMEDIATED, checklist=done, version=letter.version + 1
    )


def _prove(letter: DeadLetter) -> DeadLetter:
    return replace(
        letter,
        state=DeadLetterState.VALIDATED,
        evidence_ref=REASON,
        is_safe_to_repeat=True,
        version=letter.version + 1,
    )
