"""Deliveries: look at them, and decide what only a person may decide.

A delivery is held where nobody can say whether it went out, has failed where that is proven, and
is dropped where the channel's owner wants no repeat. Confirm says that it arrived, resend that it
goes out again, drop that it does not. What a person says of the tries is kept as evidence beside
the words of the channel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from holdfast.arguments import anything, checked, text
from holdfast.clock import read_instant
from holdfast.engine import audit
from holdfast.errors import Conflict
from holdfast.event import DeliveryChange
from holdfast.ids import read_uuid
from holdfast.operate.bring_back import bring_back
from holdfast.operate.letter_input import read_texts
from holdfast.operate.refusal import DeliveryRefused, InvalidAction
from holdfast.operate.watch import Action, Watch
from holdfast.outbox.delivery import Delivery, State
from holdfast.outbox.failure import DeliveryNotFound
from holdfast.outbox.wait import awaiting, wake_jobs
from holdfast.store import Row, Statements, Tx
from holdfast.store.query import Statement

SQL = Statements("holdfast.operate", "deliveries.sql")

NEWEST = "ffffffff-ffff-ffff-ffff-ffffffffffff"
LONGEST_PAGE = 1_000
LONGEST_REASON = 200

_PROVIDER_ID = re.compile(r"[!-~]{1,300}")


@dataclass(frozen=True, slots=True)
class Try:
    """One try of a delivery, and what came of it."""

    number: int
    reason: str
    worker_id: str
    began_at: datetime
    ended_at: datetime | None
    # Of a channel with a commit point, such as the final dot of SMTP: whether it was passed.
    phase: str | None
    outcome: str | None
    code: str | None
    provider_id: str | None


@dataclass(frozen=True, slots=True)
class Word:
    """Something that was said of a delivery, and by whom."""

    source: str
    verdict: str
    after_attempt: int
    provider_id: str | None
    code: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class DeliveryView:
    """A delivery, every try of it, and what was ever said of it. No text and no address."""

    delivery: Delivery
    attempts: tuple[Try, ...]
    evidence: tuple[Word, ...]


@checked(
    InvalidAction,
    checks={"channel": text, "provider_id": text, "reason": anything, "state": text},
)
class Deliveries:
    """The deliveries that *watch* may see, and what it may decide about them."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    # -- looking

    def list(
        self,
        *,
        state: str | None = None,
        channel: str | None = None,
        job_id: str | None = None,
        with_ended: bool = False,
        limit: int = 50,
        before: str = NEWEST,
    ) -> tuple[Delivery, ...]:
        """Deliveries, newest first: those that are not over, unless asked for more."""
        self.watch.check(Action.LOOK, org_id=self.watch.org_id, subject="deliveries")
        if type(limit) is not int or not 1 <= limit <= LONGEST_PAGE:
            raise InvalidAction({"limit": f"must be a whole number from 1 to {LONGEST_PAGE}"})
        if state is not None and state not in tuple(State):
            raise InvalidAction({"state": f"must be one of {', '.join(State)}"})
        params = {
            "org_id": self.watch.org_id,
            "state": state,
            "channel": channel,
            "job_id": None if job_id is None else _id("job_id", job_id),
            "with_ended": int(with_ended),
            "limit": limit,
            "before": _id("before", before),
        }
        rows = self.watch.store.read(lambda tx: tx.many(SQL.list_deliveries, **params))
        return tuple(Delivery.of(row) for row in rows)

    def show(self, delivery_id: str) -> DeliveryView:
        """One delivery with its tries and what was said of it."""
        key = self._locate(Action.LOOK, delivery_id)

        def look(tx: Tx) -> DeliveryView:
            return DeliveryView(
                _find(tx, key),
                tuple(Try(**_read(Try, row)) for row in tx.many(SQL.list_attempts, **key)),
                tuple(Word(**_read(Word, row)) for row in tx.many(SQL.list_evidence, **key)),
            )

        return self.watch.store.read(look)

    # -- deciding

    def confirm(self, delivery_id: str, *, reason: str, provider_id: str | None = None) -> Delivery:
        """Say that a delivery arrived: it counts as sent, and is not sent again.

        *provider_id* is the channel's name for it, where somebody found it there.
        """
        if provider_id is not None and not _PROVIDER_ID.fullmatch(provider_id):
            raise InvalidAction({"provider_id": "must be up to 300 characters without spaces"})
        return self._decide(Action.CONFIRM_DELIVERY, delivery_id, reason, provider_id)

    def resend(self, delivery_id: str, *, reason: str) -> Delivery:
        """Say that a delivery goes out again, whatever became of the tries so far."""
        return self._decide(Action.RESEND_DELIVERY, delivery_id, reason, None)

    def drop(self, delivery_id: str, *, reason: str) -> Delivery:
        """Say that a delivery does not go out, whether it waits for a try or for a person."""
        return self._decide(Action.DROP_DELIVERY, delivery_id, reason, None)

    def _decide(
        self, action: Action, delivery_id: str, reason: str, provider_id: str | None
    ) -> Delivery:
        key = self._locate(action, delivery_id)
        subject = f"delivery:{key['id']}"
        made = _MADE[action]

        def work(tx: Tx) -> Delivery:
            found = _find(tx, key)
            if found.state not in made.states:
                says = f"only what is {' or '.join(made.states)} can be {made.change}"
                raise DeliveryRefused(key["id"], found.state, says)
            given: dict[str, Any] = {**key, "fence": found.fence}
            if action is Action.CONFIRM_DELIVERY:
                given |= {"provider_id": provider_id, "actor": _name_of(self.watch)}
            if not tx.affected(made.statement, **given):
                raise DeliveryRefused(key["id"], found.state, made.says)
            if made.verdict is not None:
                tx.affected(SQL.insert_word, **key, verdict=made.verdict, provider_id=provider_id)
            detail = {"role": self.watch.role, "reason": reason, "was": found.state}
            if provider_id is not None:
                detail["provider_id"] = provider_id
            audit.record_actions(tx, [found.deed(self.watch.actor, made.change, detail)])
            moved = _find(tx, key)
            queues.extend(wake_jobs(tx, awaiting([tx.one(SQL.find_waiting, **key)])))
            return moved

        queues: list[str] = []
        try:
            (reason,) = read_texts(reason=(reason, LONGEST_REASON))
            moved = self.watch.store.write(work)
        except (Conflict, InvalidAction) as exc:
            self.watch.refuse(action, exc, org_id=key["org_id"], subject=subject)
        self.watch.store.announce(queues)
        bring_back(replace(self.watch, org_id=key["org_id"]))
        self.watch.events.emit(moved.changed(made.change))
        return moved

    def _locate(self, action: Action, delivery_id: str) -> dict[str, str]:
        """Whose delivery it is, if *watch* may do *action* to it.

        One that nobody has and another tenant's are not found alike.
        """
        subject = f"delivery:{str(delivery_id)[:100]}"
        org_id = None
        try:
            known_id = read_uuid(delivery_id)
        except ValueError:
            known_id = ""
        if known_id:
            row = self.watch.store.read(lambda tx: tx.maybe(SQL.find_org, id=known_id))
            org_id = None if row is None else str(row["org_id"])
        if org_id is None or self.watch.org_id not in (None, org_id):
            error = DeliveryNotFound(str(delivery_id)[:100])
            if self.watch.org_id is None and action is Action.LOOK:
                raise error
            self.watch.refuse(action, error, org_id=self.watch.org_id, subject=subject)
        self.watch.check(action, org_id=org_id, subject=subject)
        return {"org_id": org_id, "id": known_id}


_UNDECIDED = (State.HELD, State.FAILED, State.DROPPED)
_MOVED = "its channel has it after all, its text was erased, or somebody moved it"


@dataclass(frozen=True, slots=True)
class _Made:
    """What a decision writes, what it is called, and why it may be refused."""

    statement: Statement
    change: DeliveryChange
    # What it says of the tries so far, if anything.
    verdict: str | None
    states: tuple[State, ...] = _UNDECIDED
    says: str = _MOVED


_MADE = {
    Action.CONFIRM_DELIVERY: _Made(SQL.confirm_delivery, DeliveryChange.CONFIRMED, "confirmed"),
    Action.RESEND_DELIVERY: _Made(SQL.resend_delivery, DeliveryChange.RESENT, "resend"),
    Action.DROP_DELIVERY: _Made(
        SQL.drop_delivery,
        DeliveryChange.DROPPED,
        None,
        (State.PENDING, State.HELD),
        "a worker is at it, or somebody moved it; look at it again in a minute",
    ),
}


def _find(tx: Tx, key: dict[str, str]) -> Delivery:
    row = tx.maybe(SQL.find_delivery, **key)
    if row is None:
        raise DeliveryNotFound(key["id"])
    return Delivery.of(row)


def _read(kind: type, row: Row) -> dict[str, Any]:
    return {
        item.name: read_instant(row[item.name])
        if (item.name == "at" or item.name.endswith("_at")) and row[item.name] is not None
        else row[item.name]
        for item in fields(kind)
    }


def _name_of(watch: Watch) -> str:
    return f"{watch.actor.type}:{watch.actor.id}"


def _id(name: str, text: str) -> str:
    try:
        return read_uuid(text)
    except ValueError:
        raise InvalidAction({name: "must be an id, as list prints it"}) from None
