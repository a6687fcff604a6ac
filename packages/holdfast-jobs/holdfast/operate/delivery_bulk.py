"""Confirm, resend or drop many deliveries at once, by a filter.

Each delivery is decided as a single call would decide it, with its own audit event. The work is
done page by page, each page in one transaction with a fixed number of statements. An interrupted
bulk can be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from holdfast.actor import Role
from holdfast.engine.audit import record_actions
from holdfast.errors import Forbidden
from holdfast.event import DeliveryChange
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.bring_back import bring_back
from holdfast.operate.bulk_page import BulkCount, BulkPage
from holdfast.operate.dead_letter_input import read_texts
from holdfast.operate.delivery_filter import DeliveryFilter
from holdfast.operate.page import NEWEST
from holdfast.operate.refusal import InvalidAction, NothingMatches
from holdfast.outbox.delivery import Delivery, State
from holdfast.outbox.wait import awaiting, wake_jobs
from holdfast.store import Row, Statements, Tx
from holdfast.store.query import Statement

SQL = Statements("holdfast.operate", "deliveries.sql")

LIMIT = 1_000
LONGEST = 10_000
LONGEST_REASON = 200
PAGE = 200
# The maximum number of deliveries listed; all are counted.
NAMED = 100
SUBJECT = "deliveries"


@dataclass(frozen=True, slots=True)
class Decision:
    """The writes of an operator's decision, and the deliveries that it applies to."""

    statement: Statement
    change: DeliveryChange
    # The evidence that it adds about earlier attempts, if any.
    verdict: str | None
    states: tuple[State, ...]
    refused: str


_UNDECIDED = (State.HELD, State.FAILED, State.DROPPED)
_MOVED = "its channel has it after all, its text was erased, or another operator changed it"
DECISIONS: Mapping[Action, Decision] = {
    Action.CONFIRM_DELIVERY: Decision(
        SQL.confirm_deliveries, DeliveryChange.CONFIRMED, "confirmed", _UNDECIDED, _MOVED
    ),
    Action.RESEND_DELIVERY: Decision(
        SQL.resend_deliveries, DeliveryChange.RESENT, "resend", _UNDECIDED, _MOVED
    ),
    Action.DROP_DELIVERY: Decision(
        SQL.drop_deliveries,
        DeliveryChange.DROPPED,
        None,
        (State.PENDING, State.HELD, State.FAILED),
        "a worker is processing it, or another operator changed it; try again in a minute",
    ),
}


@dataclass(frozen=True, slots=True)
class BulkRequest:
    """The arguments of a bulk. An empty filter needs *everything* and the right count."""

    wanted: DeliveryFilter
    reason: str
    is_dry_run: bool = False
    everything: bool = False
    confirm: int | None = None
    limit: int = LIMIT


@dataclass(frozen=True, slots=True)
class DeliveryGroup:
    """Deliveries with the same channel, state and reason."""

    channel: str
    state: str
    reason: str | None
    deliveries: int
    # The number that the decision applies to.
    ready: int


@dataclass(frozen=True, slots=True)
class DeliveryBulkResult:
    """The result of a bulk; for a dry run, what it would do."""

    action: str
    is_dry_run: bool
    matched: int
    ready: int
    done: int
    groups: tuple[DeliveryGroup, ...]
    # The first decided deliveries; for a dry run, the first matching ones.
    named: tuple[Mapping[str, Any], ...]


def decide_all(
    context: OperatorContext, action: Action, request: BulkRequest
) -> DeliveryBulkResult:
    """Apply *action* to every matching delivery that allows it."""
    pages = delivery_pages(context, action, request)
    groups = pages.find_groups()
    try:
        _check_size(pages.request, sum(group.deliveries for group in groups))
    except (InvalidAction, NothingMatches) as error:
        context.refuse(action, error, org_id=pages.org_id, subject=SUBJECT)
    return pages.run(groups)


def delivery_pages(
    context: OperatorContext,
    action: Action,
    request: BulkRequest,
    detail: Mapping[str, Any] | None = None,
) -> DeliveryPages:
    """Return the pages of a decision that *context* may make. Refusals are audited."""
    org_id = context.org_id
    try:
        request = _read(action, request)
        wanted_org = request.wanted.org_id
        org_id = context.org_id or wanted_org
        if wanted_org not in (None, org_id):
            # Another tenant's deliveries are reported as not found.
            raise NothingMatches(str(request.wanted), "delivery")
    except (InvalidAction, NothingMatches) as error:
        context.refuse(action, error, org_id=context.org_id, subject=SUBJECT)
    context.check(action, org_id=org_id, subject=SUBJECT)
    if org_id is None and context.role is not Role.ADMIN:
        refusal = Forbidden(
            f"{action} across tenants requires the role admin; pass org_id for one tenant."
        )
        context.refuse(action, refusal, org_id=None, subject=SUBJECT)
    return DeliveryPages(context, action, request, org_id, detail or {})


def _read(action: Action, request: BulkRequest) -> BulkRequest:
    """Return the validated request; raises InvalidAction."""
    wanted = request.wanted.check()
    (reason,) = read_texts(reason=(request.reason, LONGEST_REASON))
    for name in ("is_dry_run", "everything"):
        if type(getattr(request, name)) is not bool:
            raise InvalidAction({name: "must be True or False"})
    if request.confirm is not None and type(request.confirm) is not int:
        raise InvalidAction({"confirm": "must be a whole number"})
    if type(request.limit) is not int or not 1 <= request.limit <= LONGEST:
        raise InvalidAction({"limit": f"must be a whole number from 1 to {LONGEST}"})
    states = DECISIONS[action].states
    if wanted.state is not None and wanted.state not in states:
        says = f"only what is {' or '.join(states)} can be {DECISIONS[action].change}"
        raise InvalidAction({"state": says})
    return replace(request, wanted=wanted, reason=reason)


def _check_size(request: BulkRequest, matched: int) -> None:
    """Raise for a filter without matches, and for an empty one without confirmation."""
    if matched == 0:
        raise NothingMatches(str(request.wanted) or "everything", "delivery")
    if request.wanted.given:
        return
    if not request.everything:
        says = "is empty and would match everything; add a condition, or pass --all --confirm COUNT"
        raise InvalidAction({"filter": says})
    if not request.is_dry_run and request.confirm != matched:
        says = f"matches {matched} deliveries; pass --confirm {matched}"
        raise InvalidAction({"confirm": says})


@dataclass(frozen=True, slots=True)
class DeliveryPages:
    """The pages of a decision about deliveries."""

    context: OperatorContext
    action: Action
    request: BulkRequest
    org_id: str | None
    detail: Mapping[str, Any] = field(default_factory=dict)
    subject: str = SUBJECT

    @property
    def name(self) -> str:
        return self.action

    def count(self) -> BulkCount:
        """Count the deliveries that match, and those that the decision applies to."""
        groups = self.find_groups()
        matched = sum(group.deliveries for group in groups)
        return BulkCount(matched, sum(group.ready for group in groups))

    def first_cursor(self) -> str | None:
        """The cursor before the newest delivery that matches now."""
        rows = self.context.store.read(lambda tx: self._rows(tx, 1, NEWEST))
        return str(UUID(int=UUID(str(rows[0]["id"])).int + 1)) if rows else None

    def act(self, tx: Tx, cursor: str) -> BulkPage:
        """Decide about the deliveries of one page."""
        rows, decided, queues = self._decide_in(tx, PAGE, cursor)
        following = str(rows[-1]["id"]) if len(rows) == PAGE else None
        counts = {"done": len(decided), "skipped": len(rows) - len(decided)}
        return BulkPage(following, counts, lambda: self._announce(decided, queues))

    def finish(self) -> None:
        """Replay the jobs that failed because these deliveries were missing."""
        while bring_back(replace(self.context, org_id=self.org_id)):
            pass

    def find_groups(self) -> tuple[DeliveryGroup, ...]:
        rows = self.context.store.read(lambda tx: tx.many(SQL.group_deliveries, **self._params))
        return tuple(
            DeliveryGroup(
                row["channel"],
                row["state"],
                row["reason"],
                row["deliveries"],
                row["deliveries"] - self._left_out(row),
            )
            for row in rows
        )

    def run(self, groups: Sequence[DeliveryGroup]) -> DeliveryBulkResult:
        matched = sum(group.deliveries for group in groups)
        ready = sum(group.ready for group in groups)
        result = DeliveryBulkResult(
            self.action, self.request.is_dry_run, matched, ready, 0, tuple(groups), ()
        )
        if self.request.is_dry_run:
            rows = self.context.store.read(lambda tx: self._rows(tx, NAMED, NEWEST))
            return replace(result, named=tuple(_name(Delivery.from_row(row)) for row in rows))
        done, before = list[Delivery](), NEWEST
        while len(done) < self.request.limit:
            size = min(PAGE, self.request.limit - len(done))
            last, decided = self._decide_page(size, before)
            done += decided
            if last is None:
                break
            before = last
        if done:
            self._bring_back(done)
        named = tuple(_name(one) for one in done[:NAMED])
        return replace(result, done=len(done), named=named)

    def _decide_page(self, size: int, before: str) -> tuple[str | None, list[Delivery]]:
        """Decide one page; return the next cursor (None at the end) and the deliveries."""
        rows, decided, queues = self.context.store.write(
            lambda tx: self._decide_in(tx, size, before)
        )
        self._announce(decided, queues)
        return (str(rows[-1]["id"]) if len(rows) == size else None), decided

    def _decide_in(
        self, tx: Tx, size: int, before: str
    ) -> tuple[list[Row], list[Delivery], list[str]]:
        """Decide one page; return its rows, the decided deliveries and the queues to wake."""
        detail = {"filter": str(self.request.wanted) or "everything", **self.detail}
        rows = self._rows(tx, size, before)
        ready = [Delivery.from_row(row) for row in rows if not self._left_out(row)]
        decided, queues = decide(
            tx, self.context, self.action, ready, reason=self.request.reason, detail=detail
        )
        return rows, decided, queues

    def _announce(self, decided: Sequence[Delivery], queues: Sequence[str]) -> None:
        self.context.store.announce(queues)
        for one in decided:
            self.context.events.emit(one.changed(DECISIONS[self.action].change))

    def _bring_back(self, done: Sequence[Delivery]) -> None:
        """Replay the jobs that failed because these deliveries were missing."""
        for org_id in sorted({one.org_id for one in done}):
            while bring_back(replace(self.context, org_id=org_id)):
                pass

    def _left_out(self, row: Row) -> int:
        """Return how many deliveries of a row or group the decision does not apply to."""
        match self.action:
            case Action.RESEND_DELIVERY:
                return int(row["unsendable"])
            case Action.DROP_DELIVERY:
                return int(row["leased"])
            case _:
                return 0

    def _rows(self, tx: Tx, size: int, before: str) -> list[Row]:
        return tx.many(SQL.page_deliveries, **self._params, limit=size, before=before)

    @property
    def _params(self) -> dict[str, Any]:
        return self.request.wanted.params(self.org_id)


def decide(
    tx: Tx,
    context: OperatorContext,
    action: Action,
    deliveries: Sequence[Delivery],
    *,
    reason: str,
    provider_id: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> tuple[list[Delivery], list[str]]:
    """Decide about deliveries; those that changed since they were read are skipped.

    Returns the decided deliveries and the queues of the jobs that waited for them. The caller
    announces these queues after the commit.
    """
    made = DECISIONS[action]
    if not deliveries:
        return [], []
    moves = [{"home": one.org_id, "delivery_id": one.id, "was": one.fence} for one in deliveries]
    given: dict[str, Any] = {"moves": moves}
    if action is Action.CONFIRM_DELIVERY:
        actor = f"{context.actor.type}:{context.actor.id}"
        given |= {"provider_id": provider_id, "actor": actor}
    rows = tx.many(made.statement, **given)
    moved = {(str(row["org_id"]), str(row["id"])) for row in rows}
    decided = [one for one in deliveries if (one.org_id, one.id) in moved]
    named = [{"home": one.org_id, "delivery_id": one.id} for one in decided]
    if made.verdict is not None and named:
        said = {"verdict": made.verdict, "provider_id": provider_id}
        tx.affected(SQL.insert_words, **said, named=named)
    told = {"role": context.role, "reason": reason, **(detail or {})}
    if provider_id is not None:
        told["provider_id"] = provider_id
    deeds = [one.deed(context.actor, made.change, {**told, "was": one.state}) for one in decided]
    record_actions(tx, deeds)
    return decided, wake_jobs(tx, awaiting(rows))


def _name(delivery: Delivery) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "org_id": delivery.org_id,
        "channel": delivery.channel,
        "state": delivery.state,
        "reason": delivery.reason,
        "subject": delivery.subject,
        "recipient": delivery.recipient,
        "created_at": delivery.created_at,
    }
