"""Replays jobs that failed because of a missing delivery, once the delivery is marked sent.

The dead letter goes through the same audited steps that an operator takes. The replay begins at the
failed stage and finds all deliveries sent.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.bulk_steps import Decision, Walk, take_steps
from holdfast.operate.dead_letter import DeadLetter, DeadLetterKind
from holdfast.operate.replay import Replays, make_replays
from holdfast.store import Statements, Tx

SQL = Statements("holdfast.operate", "deliveries.sql")

# Each replay has its own shared columns; see bulk.py for the cost of a page.
PAGE = 50
REASON = "all required deliveries are sent"
WALK = Walk(
    (Action.TRIAGE, Action.REMEDIATE, Action.VALIDATE, Action.REPLAY),
    Decision(REASON, DeadLetterKind.TRANSIENT),
)


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
        handlers = context.registry.handlers
        letters = [
            (letter, letter.standing)
            for letter in _list(tx, context, min(limit, PAGE))
            if WALK.why_not(letter.standing, handlers.get(letter.job_type)) is None
        ]
        if not letters:
            return None
        _, ready = take_steps(tx, context, letters, WALK, {})
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
