"""Bulk actions on dead letters by filter, with a dry run.

A bulk takes the same step for each item as a single call. It works page by page, each page in a
transaction with a fixed number of statements. Skipped items are reported with the reason. An
interrupted bulk can be repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.actor import Role
from holdfast.engine import audit
from holdfast.errors import Forbidden, QueueFull
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.dead_letter import DeadLetter, DeadLetterState, Standing
from holdfast.operate.dead_letter_input import (
    LONGEST_REASON,
    DeadLetterFilter,
    place_of,
    read_place,
    read_texts,
)
from holdfast.operate.dead_letter_plan import why_not_in_bulk
from holdfast.operate.refusal import InvalidAction, NothingMatches
from holdfast.operate.replay import SQL, Replays, make_replays, step_of
from holdfast.store import Row, Tx

LIMIT = 1_000
LONGEST = 10_000
# Each replay has its own shared columns, and SQLite joins those of a page to its jobs row by row:
# pages of 200 made 210 replays a second, pages of 50 made 360.
PAGE = 50
# The maximum number of items listed; all are counted.
NAMED = 100

SUBJECT = "dead_letters"


@dataclass(frozen=True, slots=True)
class BulkRequest:
    """The arguments of a bulk action. An empty filter needs *everything* and *confirm*."""

    wanted: DeadLetterFilter
    reason: str
    full_restart: bool
    is_dry_run: bool
    everything: bool
    confirm: int | None
    limit: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Skipped items and the reason."""

    why: str
    letters: int


@dataclass(frozen=True, slots=True)
class BulkAnswer:
    """The result of a bulk action; for a dry run, what it would do."""

    action: str
    is_dry_run: bool
    matched: int
    ready: int
    done: int
    left_out: tuple[LeftOut, ...]
    # The first items, by the id of the failed job, each with its result.
    named: tuple[Mapping[str, Any], ...]
    stopped: str | None = None


def perform(context: OperatorContext, action: Action, ask: BulkRequest) -> BulkAnswer:
    """Apply *action* to every item that matches *ask* and is in the required state."""
    try:
        ask = _read(ask)
        org_id = context.org_id or ask.wanted.org_id
        if ask.wanted.org_id not in (None, org_id):
            # Another tenant's items are reported as not found.
            raise NothingMatches(str(ask.wanted))
    except (InvalidAction, NothingMatches) as error:
        context.refuse(action, error, org_id=context.org_id, subject=SUBJECT)
    context.check(action, org_id=org_id, subject=SUBJECT)
    if org_id is None and context.role is not Role.ADMIN:
        refusal = Forbidden(f"{action} of many tenants at once is for an admin; name one: org_id.")
        context.refuse(action, refusal, org_id=None, subject=SUBJECT)
    bulk = _Bulk(context, action, ask, org_id)
    groups = bulk.find_groups()
    try:
        _check_size(ask, sum(groups.values()))
    except (InvalidAction, NothingMatches) as error:
        context.refuse(action, error, org_id=org_id, subject=SUBJECT)
    return bulk.run(groups)


def _read(ask: BulkRequest) -> BulkRequest:
    """Return the validated request; raises InvalidAction."""
    wanted = ask.wanted.check()
    (reason,) = read_texts(reason=(ask.reason, LONGEST_REASON))
    if not 1 <= ask.limit <= LONGEST:
        raise InvalidAction({"limit": f"must be from 1 to {LONGEST}"})
    if wanted.state is not None and DeadLetterState(wanted.state).is_ended:
        raise InvalidAction({"state": f"nothing is done to what is {wanted.state}"})
    return replace(ask, wanted=wanted, reason=reason)


def _check_size(ask: BulkRequest, matched: int) -> None:
    """Raise for a filter without matches, and for an empty filter without confirmation."""
    if matched == 0:
        raise NothingMatches(str(ask.wanted) or "everything")
    if ask.wanted.given:
        return
    if not ask.everything:
        says = "is empty and would match everything; name at least one condition, or say so"
        raise InvalidAction({"filter": says})
    if not ask.is_dry_run and ask.confirm != matched:
        says = f"everything is {matched} dead letters; confirm that number"
        raise InvalidAction({"confirm": says})


@dataclass(frozen=True, slots=True)
class _Bulk:
    """One bulk in progress."""

    context: OperatorContext
    action: Action
    ask: BulkRequest
    org_id: str | None

    def find_groups(self) -> dict[Standing, int]:
        """Count the matching items by standing, in one statement."""
        params = self.ask.wanted.params(self.org_id)
        rows = self.context.store.read(lambda tx: tx.many(SQL.group_letters, **params))
        return {Standing.from_row(row): row["letters"] for row in rows}

    def run(self, groups: Mapping[Standing, int]) -> BulkAnswer:
        left: Counter[str] = Counter()
        for standing, letters in groups.items():
            left[self._why_not(standing) or ""] += letters
        ready = left.pop("", 0)
        first = self.context.store.read(lambda tx: self._page(tx, NAMED, None))
        named = [_name(letter, why=self._why_not(letter.standing)) for letter in first]
        answer = BulkAnswer(
            self.action,
            self.ask.is_dry_run,
            sum(groups.values()),
            ready,
            0,
            tuple(LeftOut(why, letters) for why, letters in left.most_common()),
            tuple(named),
        )
        if self.ask.is_dry_run or not ready:
            return answer
        done, stopped = self._act()
        left_out = [item for item in named if item["why"] is not None]
        told = (*done[:NAMED], *left_out)
        return replace(answer, done=len(done), named=told, stopped=stopped)

    def _act(self) -> tuple[list[dict[str, Any]], str | None]:
        """Process page by page; return the results and the error that stopped it, if any."""
        done: list[dict[str, Any]] = []
        before: str | None = None
        while len(done) < self.ask.limit:
            size = min(PAGE, self.ask.limit - len(done))
            try:
                page, taken = self._act_on_page(size, before)
            except QueueFull as error:
                return done, str(error)
            done += taken
            if len(page) < size:
                break
            before = place_of(page[-1])
        return done, None

    def _act_on_page(self, size: int, before: str | None) -> tuple[list[Row], list[dict[str, Any]]]:
        ids = self.context.ids.take(size)

        def work(tx: Tx) -> tuple[list[Row], Replays | None, list[dict[str, Any]]]:
            rows = self._rows(tx, size, before)
            letters = [DeadLetter.from_row(row) for row in rows]
            ready = [letter for letter in letters if self._why_not(letter.standing) is None]
            if not ready:
                return rows, None, []
            if self.action is Action.DISCARD:
                return rows, None, self._discard(tx, ready)
            replays = make_replays(
                tx,
                self.context,
                ready,
                ids=ids[: len(ready)],
                reason=self.ask.reason,
                full_restart=self.ask.full_restart,
                detail=self._detail,
            )
            made = {(row["org_id"], row["job_id"]): row["replay_job_id"] for row in replays.made}
            named = [
                _name(letter, replay=made[letter.org_id, letter.job_id])
                for letter in ready
                if (letter.org_id, letter.job_id) in made
            ]
            return rows, replays, named

        rows, replays, taken = self.context.store.write(work)
        if replays is not None:
            replays.announce(self.context)
        return rows, taken

    def _discard(self, tx: Tx, letters: Sequence[DeadLetter]) -> list[dict[str, Any]]:
        steps = [
            step_of(letter, DeadLetterState.DISCARDED, last_words=self.ask.reason)
            for letter in letters
        ]
        rows = tx.many(SQL.step_letters, steps=steps)
        ended = {(row["org_id"], row["job_id"]) for row in rows}
        taken = [letter for letter in letters if (letter.org_id, letter.job_id) in ended]
        detail = {"reason": self.ask.reason[:200], "role": self.context.role, **self._detail}
        audit.record(
            tx,
            self.context.actor,
            [
                audit.Entry(
                    letter.org_id,
                    letter.job_id,
                    "dead_letter.discarded",
                    letter.attempts,
                    detail,
                )
                for letter in taken
            ],
        )
        return [_name(letter) for letter in taken]

    @property
    def _detail(self) -> dict[str, Any]:
        """Return the audit detail that links each item to its bulk."""
        return {"filter": str(self.ask.wanted) or "everything"}

    def _page(self, tx: Tx, size: int, before: str | None) -> list[DeadLetter]:
        return [DeadLetter.from_row(row) for row in self._rows(tx, size, before)]

    def _rows(self, tx: Tx, size: int, before: str | None) -> list[Row]:
        params = self.ask.wanted.params(self.org_id) | read_place(before)
        return tx.many(SQL.list_letters, **params, limit=size, with_ended=0)

    def _why_not(self, standing: Standing) -> str | None:
        handler = self.context.registry.handlers.get(standing.job_type)
        return why_not_in_bulk(self.action, standing, handler, full_restart=self.ask.full_restart)


def _name(
    letter: DeadLetter, *, why: str | None = None, replay: str | None = None
) -> dict[str, Any]:
    return {
        "job_id": letter.job_id,
        "org_id": letter.org_id,
        "job_type": letter.job_type,
        "error_class": letter.error_class,
        "state": letter.state,
        "why": why,
        "replay_job_id": replay,
    }
