"""Bulk actions on dead letters by filter, with a dry run.

A bulk takes the same steps for each item as single calls. It works page by page, each page in a
transaction with a fixed number of statements. Skipped items are reported with the reason. An
interrupted bulk can be repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.actor import Role
from holdfast.errors import Forbidden, QueueFull
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.bulk_page import BulkCount, BulkPage
from holdfast.operate.bulk_steps import RECOVERY, Decision, Walk, take_steps
from holdfast.operate.dead_letter import DeadLetter, DeadLetterState, Standing
from holdfast.operate.dead_letter_input import (
    LONGEST_REASON,
    LONGEST_REFERENCE,
    DeadLetterFilter,
    place_of,
    read_kind,
    read_place,
    read_texts,
)
from holdfast.operate.page import NEWEST
from holdfast.operate.refusal import InvalidAction, NothingMatches
from holdfast.operate.replay import SQL, Replays, make_replays
from holdfast.store import Row, Tx

LIMIT = 1_000
LONGEST = 10_000
# Each replay has its own shared columns, and SQLite joins those of a page to its jobs row by row:
# pages of 200 made 210 replays a second, pages of 50 made 360.
PAGE = 50
# The maximum number of items listed; all are counted.
NAMED = 100

SUBJECT = "dead_letters"

Progress = Callable[[int, int], None]
"""Called after each page with the number of items that are done and that were ready."""


@dataclass(frozen=True, slots=True)
class BulkRequest:
    """The arguments of a bulk action. An empty filter needs *everything* and *confirm*."""

    wanted: DeadLetterFilter
    decision: Decision
    is_dry_run: bool
    everything: bool
    confirm: int | None
    limit: int
    on_progress: Progress | None = None


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
    # How many of the items that are done were replayed.
    replayed: int = 0


def perform(
    context: OperatorContext, name: str, steps: Sequence[Action], ask: BulkRequest
) -> BulkAnswer:
    """Take *steps* for every item that matches *ask* and is in a required state.

    *name* is the action in the answer. The first step is the action of a refusal.
    """
    pages = letter_pages(context, name, steps, ask)
    groups = pages.find_groups()
    try:
        _check_size(pages.ask, sum(groups.values()))
    except (InvalidAction, NothingMatches) as error:
        context.refuse(steps[0], error, org_id=pages.org_id, subject=SUBJECT)
    return pages.run(groups)


def letter_pages(
    context: OperatorContext,
    name: str,
    steps: Sequence[Action],
    ask: BulkRequest,
    detail: Mapping[str, Any] | None = None,
) -> LetterPages:
    """Return the pages of steps that *context* may take. Refusals are audited."""
    action = steps[0]
    try:
        ask = _read(ask)
        org_id = context.org_id or ask.wanted.org_id
        if ask.wanted.org_id not in (None, org_id):
            # Another tenant's items are reported as not found.
            raise NothingMatches(str(ask.wanted))
    except (InvalidAction, NothingMatches) as error:
        context.refuse(action, error, org_id=context.org_id, subject=SUBJECT)
    for step in steps:
        context.check(step, org_id=org_id, subject=SUBJECT)
    if org_id is None and context.role is not Role.ADMIN:
        refusal = Forbidden(
            f"{name} across tenants requires the role admin; pass org_id for one tenant."
        )
        context.refuse(action, refusal, org_id=None, subject=SUBJECT)
    return LetterPages(context, name, Walk(tuple(steps), ask.decision), ask, org_id, detail or {})


def read_steps(steps: Sequence[str] | None) -> tuple[Action, ...]:
    """Return steps of the workflow in its order; without *steps* all of them."""
    if steps is None:
        return RECOVERY
    is_list = isinstance(steps, (list, tuple, set, frozenset)) and bool(steps)
    if not is_list or any(step not in tuple(RECOVERY) for step in steps):
        raise InvalidAction({"steps": f"must be a list of {', '.join(RECOVERY)}"})
    return tuple(step for step in RECOVERY if step in steps)


def _read(ask: BulkRequest) -> BulkRequest:
    """Return the validated request; raises InvalidAction."""
    wanted, given = ask.wanted.check(), ask.decision
    (reason,) = read_texts(reason=(given.reason, LONGEST_REASON))
    kind = None if given.kind is None else read_kind(given.kind)
    if given.evidence_ref is not None:
        read_texts(evidence_ref=(given.evidence_ref, LONGEST_REFERENCE))
    if not 1 <= ask.limit <= LONGEST:
        raise InvalidAction({"limit": f"must be from 1 to {LONGEST}"})
    if wanted.state is not None and DeadLetterState(wanted.state).is_ended:
        raise InvalidAction({"state": f"{wanted.state} dead letters cannot be changed"})
    return replace(ask, wanted=wanted, decision=replace(given, reason=reason, kind=kind))


def _check_size(ask: BulkRequest, matched: int) -> None:
    """Raise for a filter without matches, and for an empty filter without confirmation."""
    if matched == 0:
        raise NothingMatches(str(ask.wanted) or "everything")
    if ask.wanted.given:
        return
    if not ask.everything:
        says = "is empty and would match everything; add a condition, or pass --all --confirm COUNT"
        raise InvalidAction({"filter": says})
    if not ask.is_dry_run and ask.confirm != matched:
        says = f"matches {matched} dead letters; pass --confirm {matched}"
        raise InvalidAction({"confirm": says})


@dataclass(frozen=True, slots=True)
class LetterPages:
    """The pages of a bulk action on dead letters."""

    context: OperatorContext
    name: str
    walk: Walk
    ask: BulkRequest
    org_id: str | None
    detail: Mapping[str, Any] = field(default_factory=dict)
    subject: str = SUBJECT

    def count(self) -> BulkCount:
        """Count the items that match, and those in a required state."""
        groups = self.find_groups()
        ready = sum(found for item, found in groups.items() if self._why_not(item) is None)
        return BulkCount(sum(groups.values()), ready)

    def first_cursor(self) -> str | None:
        """The cursor before the newest item that matches now."""
        rows = self.context.store.read(lambda tx: self._rows(tx, 1, None))
        return place_of({**rows[0], "job_id": NEWEST}) if rows else None

    def act(self, tx: Tx, cursor: str) -> BulkPage:
        """Take the steps with the items of one page."""
        rows, replays, taken = self._act_in(tx, PAGE, cursor, self.context.ids.take(PAGE))

        def announce() -> None:
            if replays is not None:
                replays.announce(self.context)

        following = place_of(rows[-1]) if len(rows) == PAGE else None
        counts = {"done": len(taken), "skipped": len(rows) - len(taken)}
        return BulkPage(following, counts, announce)

    def finish(self) -> None:
        """Nothing follows."""

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
        first = self.context.store.read(lambda tx: self._rows(tx, NAMED, None))
        named = [
            _name(DeadLetter.from_row(row), why=self._why_not(Standing.from_row(row)))
            for row in first
        ]
        answer = BulkAnswer(
            self.name,
            self.ask.is_dry_run,
            sum(groups.values()),
            ready,
            0,
            tuple(LeftOut(why, letters) for why, letters in left.most_common()),
            tuple(named),
        )
        if self.ask.is_dry_run or not ready:
            return answer
        done, stopped = self._act(ready)
        left_out = [item for item in named if item["why"] is not None]
        told = (*done[:NAMED], *left_out)
        replayed = sum(1 for item in done if item["replay_job_id"] is not None)
        return replace(answer, done=len(done), named=told, stopped=stopped, replayed=replayed)

    def _act(self, ready: int) -> tuple[list[dict[str, Any]], str | None]:
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
            if taken and self.ask.on_progress is not None:
                self.ask.on_progress(len(done), min(ready, self.ask.limit))
            if len(page) < size:
                return done, None
            before = place_of(page[-1])
        if len(done) < ready:
            return done, f"The limit of {self.ask.limit} was reached. Repeat it for the rest."
        return done, None

    def _act_on_page(self, size: int, before: str | None) -> tuple[list[Row], list[dict[str, Any]]]:
        # Taken before the transaction: a retried transaction inserts the same jobs.
        ids = self.context.ids.take(size)
        rows, replays, taken = self.context.store.write(
            lambda tx: self._act_in(tx, size, before, ids)
        )
        if replays is not None:
            replays.announce(self.context)
        return rows, taken

    def _act_in(
        self, tx: Tx, size: int, before: str | None, ids: Sequence[str]
    ) -> tuple[list[Row], Replays | None, list[dict[str, Any]]]:
        """Take the steps with one page; return its rows, its replays and the changed items."""
        rows = self._rows(tx, size, before)
        found = [(DeadLetter.from_row(row), Standing.from_row(row)) for row in rows]
        fit = [pair for pair in found if self._why_not(pair[1]) is None]
        if not fit:
            return rows, None, []
        changed, ready = take_steps(tx, self.context, fit, self.walk, self._detail)
        after = {(one.org_id, one.job_id): _name(one) for one in changed}
        replays = self._replay(tx, ready, ids) if ready else None
        for made in () if replays is None else replays.made:
            key = made["org_id"], made["job_id"]
            one = next(one for one in ready if (one.org_id, one.job_id) == key)
            replaying = replace(one, state=DeadLetterState.REPLAYING)
            after[key] = _name(replaying, replay=made["replay_job_id"])
        return rows, replays, list(after.values())

    def _replay(self, tx: Tx, letters: Sequence[DeadLetter], ids: Sequence[str]) -> Replays:
        return make_replays(
            tx,
            self.context,
            letters,
            ids=ids[: len(letters)],
            reason=self.walk.decision.reason,
            full_restart=self.walk.decision.full_restart,
            detail=self._detail,
        )

    @property
    def _detail(self) -> dict[str, Any]:
        """Return the audit detail that links each item to its bulk."""
        return {"filter": str(self.ask.wanted) or "everything", **self.detail}

    def _rows(self, tx: Tx, size: int, before: str | None) -> list[Row]:
        params = self.ask.wanted.params(self.org_id) | read_place(before)
        return tx.many(SQL.list_letters, **params, limit=size, with_ended=0)

    def _why_not(self, standing: Standing) -> str | None:
        return self.walk.why_not(standing, self.context.registry.handlers.get(standing.job_type))


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
