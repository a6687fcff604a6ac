"""Deliveries: list them, and make the decisions that need an operator.

A delivery is held if it is unknown whether it was sent, failed if it is proven that it was not, and
dropped if the channel's policy forbids a repeat. Confirm states that it arrived, resend sends it
again, drop discards it. An operator's statement is stored as evidence beside the channel's
responses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Required, TypedDict, Unpack

from holdfast.arguments import anything, checked, instance, text
from holdfast.clock import read_instant
from holdfast.errors import Conflict
from holdfast.ids import read_uuid
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.bring_back import bring_back
from holdfast.operate.dead_letter_input import read_texts
from holdfast.operate.delivery_bulk import (
    DECISIONS,
    LONGEST_REASON,
    BulkRequest,
    DeliveryBulkResult,
    decide,
    decide_all,
)
from holdfast.operate.delivery_filter import DeliveryFilter
from holdfast.operate.page import NEWEST, Page, check_limit, page_of
from holdfast.operate.refusal import DeliveryRefused, InvalidAction
from holdfast.operate.short_ids import DELIVERIES
from holdfast.outbox.delivery import Delivery as Delivery
from holdfast.outbox.failure import DeliveryNotFound
from holdfast.store import Row, Statements, Tx

SQL = Statements("holdfast.operate", "deliveries.sql")

_PROVIDER_ID = re.compile(r"[!-~]{1,300}")


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt of a delivery and its outcome."""

    number: int
    reason: str
    worker_id: str
    began_at: datetime
    ended_at: datetime | None
    # For a channel with a commit point, such as the final dot of SMTP: whether it was passed.
    phase: str | None
    outcome: str | None
    code: str | None
    provider_id: str | None


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """One piece of evidence about a delivery, with its source."""

    source: str
    verdict: str
    after_attempt: int
    provider_id: str | None
    code: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class DeliveryView:
    """A delivery with its attempts and evidence, without its text and address."""

    delivery: Delivery
    attempts: tuple[Try, ...]
    evidence: tuple[EvidenceRow, ...]


class BulkOptions(TypedDict, total=False):
    """The options of :meth:`Deliveries.confirm_all`, ``resend_all`` and ``drop_all``."""

    reason: Required[str]
    is_dry_run: bool
    # Required for an empty filter, together with the confirmed count.
    everything: bool
    confirm: int | None
    limit: int


@checked(
    InvalidAction,
    checks={
        "provider_id": text,
        "wanted": instance(DeliveryFilter),
        # Checked by the method, so that a refusal is audited.
        "reason": anything,
    },
)
class Deliveries:
    """The deliveries that *context* may see, and the decisions about them."""

    id_space = DELIVERIES

    def __init__(self, context: OperatorContext) -> None:
        self.context = context

    # -- reading

    def list(
        self,
        wanted: DeliveryFilter | None = None,
        *,
        with_ended: bool = False,
        limit: int = 50,
        before: str = NEWEST,
    ) -> Page[Delivery]:
        """Deliveries, newest first; ended ones only *with_ended*."""
        wanted = (wanted or DeliveryFilter()).check()
        org_id = self.context.tenant_for(Action.LOOK, wanted.org_id, subject="deliveries")
        params = wanted.params(org_id) | {
            "with_ended": int(with_ended),
            "limit": check_limit(limit) + 1,
            "before": before,
        }
        rows = self.context.store.read(lambda tx: tx.many(SQL.list_deliveries, **params))
        return page_of([Delivery.from_row(row) for row in rows], limit, lambda one: one.id)

    def show(self, delivery_id: str) -> DeliveryView:
        """Return one delivery with its attempts and evidence."""
        key = self._locate(Action.LOOK, delivery_id)

        def look(tx: Tx) -> DeliveryView:
            return DeliveryView(
                _find(tx, key),
                tuple(Try(**_read(Try, row)) for row in tx.many(SQL.list_attempts, **key)),
                tuple(
                    EvidenceRow(**_read(EvidenceRow, row))
                    for row in tx.many(SQL.list_evidence, **key)
                ),
            )

        return self.context.store.read(look)

    # -- decisions

    def confirm(self, delivery_id: str, *, reason: str, provider_id: str | None = None) -> Delivery:
        """Confirm that a delivery arrived: it counts as sent, and is not sent again.

        *provider_id* is the id of the message at the channel, if it is known.
        """
        if provider_id is not None and not _PROVIDER_ID.fullmatch(provider_id):
            raise InvalidAction({"provider_id": "must be up to 300 characters without spaces"})
        return self._decide(Action.CONFIRM_DELIVERY, delivery_id, reason, provider_id)

    def resend(self, delivery_id: str, *, reason: str) -> Delivery:
        """Send a delivery again, regardless of earlier attempts."""
        return self._decide(Action.RESEND_DELIVERY, delivery_id, reason, None)

    def drop(self, delivery_id: str, *, reason: str) -> Delivery:
        """Do not send a delivery, whether it is pending, held or failed."""
        return self._decide(Action.DROP_DELIVERY, delivery_id, reason, None)

    def confirm_all(self, wanted: DeliveryFilter, **how: Unpack[BulkOptions]) -> DeliveryBulkResult:
        """:meth:`confirm` every held or failed delivery that matches *wanted*."""
        return decide_all(self.context, Action.CONFIRM_DELIVERY, _request(wanted, how))

    def resend_all(self, wanted: DeliveryFilter, **how: Unpack[BulkOptions]) -> DeliveryBulkResult:
        """:meth:`resend` every held or failed delivery that matches *wanted*."""
        return decide_all(self.context, Action.RESEND_DELIVERY, _request(wanted, how))

    def drop_all(self, wanted: DeliveryFilter, **how: Unpack[BulkOptions]) -> DeliveryBulkResult:
        """:meth:`drop` every held or failed delivery that matches *wanted*."""
        return decide_all(self.context, Action.DROP_DELIVERY, _request(wanted, how))

    def _decide(
        self, action: Action, delivery_id: str, reason: str, provider_id: str | None
    ) -> Delivery:
        key = self._locate(action, delivery_id)
        subject = f"delivery:{key['id']}"
        made = DECISIONS[action]

        def work(tx: Tx) -> tuple[Delivery, list[str]]:
            found = _find(tx, key)
            if found.state not in made.states:
                says = f"only what is {' or '.join(made.states)} can be {made.change}"
                raise DeliveryRefused(key["id"], found.state, says)
            decided, queues = decide(
                tx, self.context, action, [found], reason=reason, provider_id=provider_id
            )
            if not decided:
                raise DeliveryRefused(key["id"], found.state, made.refused)
            return _find(tx, key), queues

        try:
            (reason,) = read_texts(reason=(reason, LONGEST_REASON))
            moved, queues = self.context.store.write(work)
        except (Conflict, InvalidAction) as exc:
            self.context.refuse(action, exc, org_id=key["org_id"], subject=subject)
        self.context.store.announce(queues)
        bring_back(replace(self.context, org_id=key["org_id"]))
        self.context.events.emit(moved.changed(made.change))
        return moved

    def _locate(self, action: Action, delivery_id: str) -> dict[str, str]:
        """Return the tenant and id of a delivery if *context* may do *action* on it.

        An unknown id and another tenant's delivery raise the same error.
        """
        subject = f"delivery:{str(delivery_id)[:100]}"
        org_id = None
        try:
            known_id = read_uuid(delivery_id)
        except ValueError:
            known_id = ""
        if known_id:
            row = self.context.store.read(lambda tx: tx.maybe(SQL.find_org, id=known_id))
            org_id = None if row is None else str(row["org_id"])
        if org_id is None or self.context.org_id not in (None, org_id):
            error = DeliveryNotFound(str(delivery_id)[:100])
            if self.context.org_id is None and action is Action.LOOK:
                raise error
            self.context.refuse(action, error, org_id=self.context.org_id, subject=subject)
        self.context.check(action, org_id=org_id, subject=subject)
        return {"org_id": org_id, "id": known_id}


def _request(wanted: DeliveryFilter, how: BulkOptions) -> BulkRequest:
    try:
        return BulkRequest(wanted, **how)
    except TypeError as exc:
        raise InvalidAction({"options": f"are invalid: {exc}"}) from None


def _find(tx: Tx, key: dict[str, str]) -> Delivery:
    row = tx.maybe(SQL.find_delivery, **key)
    if row is None:
        raise DeliveryNotFound(key["id"])
    return Delivery.from_row(row)


def _read(kind: type, row: Row) -> dict[str, Any]:
    return {
        item.name: read_instant(row[item.name])
        if (item.name == "at" or item.name.endswith("_at")) and row[item.name] is not None
        else row[item.name]
        for item in fields(kind)
    }
