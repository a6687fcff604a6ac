"""Methods of the operator API that need seals: verify, cover, export and seal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from holdfast.arguments import checked, each, instance
from holdfast.engine.audit import record_action
from holdfast.errors import Forbidden
from holdfast.event import AuditTampered
from holdfast.operate.audit import AuditTrail, Ranges, id_bounds, read_span, whole_range
from holdfast.operate.authorization import Action
from holdfast.operate.dead_letter_input import read_texts
from holdfast.operate.refusal import InvalidAction
from holdfast.sealed_audit.chain import SQL, Anchor, Tampering, check_seals
from holdfast.sealed_audit.export import export_lines
from holdfast.sealed_audit.extension import SealExtension
from holdfast.sealed_audit.seal import seal_once
from holdfast.store import Row, Tx
from holdfast.store.read_limit import shared_reads

SEAL_LIMIT = 5_000
LONGEST_REASON = 500

# Number of seals read at once, and the maximum gap between two that count as one range.
REACH_SEALS = 50
REACH_GAP = 5_000


@dataclass(frozen=True, slots=True)
class Cover:
    """How many events are sealed. Changes of the others cannot be detected."""

    seals: int
    sealed: int
    unsealed: int


@dataclass(frozen=True, slots=True)
class Sealing:
    """The result of sealing: *is_whole* if it covers every event that existed at its start."""

    events: int
    unsealed: int
    is_whole: bool


@checked(InvalidAction, checks={"anchors": each(instance(Anchor))})
class SealedAudit(AuditTrail):
    """The audit events that the actor of *context* may see, with their seals."""

    __slots__ = ()

    def verify(
        self, *, org_id: str | None = None, anchors: Sequence[Anchor] = ()
    ) -> Iterator[Tampering]:
        """Yield every difference between the events and their seals, of one tenant or of all.

        *anchors* are heads of chains that were stored outside the database.
        """
        tenant = self._tenant(Action.READ_AUDIT, org_id)
        for anchor in anchors:
            if tenant not in (None, anchor.org_id):
                error = Forbidden(f"An anchor of another tenant than {tenant} cannot be compared.")
                self.context.refuse(
                    Action.READ_AUDIT, error, org_id=tenant, subject=f"audit:{anchor.org_id}"
                )
        self._enable()
        key = self.context.settings.audit_key
        found = check_seals(self.context.store.read, tenant, key=key, anchors=anchors)
        return self._with_alerts(found)

    def _with_alerts(self, found: Iterator[Tampering]) -> Iterator[Tampering]:
        """Yield the differences; record an alert event for the first of each tenant."""
        alerted: set[str] = set()
        for place in found:
            if place.org_id not in alerted:
                alerted.add(place.org_id)
                event = AuditTampered(place.org_id, place.problem, place.seal, place.seq)
                self.context.events.emit(event)
            yield place

    def cover(self, *, org_id: str | None = None) -> Cover:
        """Return how many events of one tenant or of all are sealed, and how many are not yet."""
        tenant = self._tenant(Action.READ_AUDIT, org_id)
        self._enable()
        row = self.context.store.one(SQL.count_cover, org_id=tenant)
        return Cover(row["seals"], row["sealed"], row["unsealed"])

    def export(
        self,
        *,
        org_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        reason: str = "",
    ) -> Iterator[str]:
        """Yield the audit of one tenant or of all as lines of JSON with its seals, oldest first.

        :func:`check_export` verifies them. Only admins may export. The export is audited first.
        """
        tenant = self._tenant(Action.EXPORT_AUDIT, org_id)
        self._enable()
        context, span = self.context, read_span(since, until)
        subject = f"audit:{tenant or 'all'}"
        why = read_texts(reason=(reason, LONGEST_REASON))[0] if reason else ""

        def work(tx: Tx) -> Row:
            detail = {**span, "role": context.role, **({"reason": why} if why else {})}
            at = {} if tenant is None else {"org_id": tenant}
            record_action(
                tx, context.actor, subject=subject, name="audit.exported", detail=detail, **at
            )
            return tx.one(SQL.count_cover, org_id=tenant)

        newest = context.store.write(work)["newest"]
        above, before = context.store.read(lambda tx: id_bounds(tx, span, newest + 1))
        reach = context.store.one(SQL.read_reach)
        head = {"org_id": tenant, **span, "is_keyed": bool(context.settings.audit_key)}
        return export_lines(
            context.store.read, head, above=above, upto=before - 1, sealed_to=reach["newest"]
        )

    def seal(self) -> Sealing:
        """Seal all present events, up to the first one that a running transaction precedes."""
        context = self.context
        self._check_all(Action.VERIFY)
        self._enable()
        target = context.store.one(SQL.count_cover, org_id=None)["newest"]
        events = 0
        while True:
            before = context.store.one(SQL.read_cursor)
            events += seal_once(context.store, context.settings, context.events, SEAL_LIMIT)
            after = context.store.one(SQL.read_cursor)
            # A pass without progress is blocked by a transaction or by another pass.
            if after["sealed_to"] >= target or after == before:
                break
        unsealed = context.store.one(SQL.count_cover, org_id=None)["unsealed"]
        return Sealing(events, unsealed, after["sealed_to"] >= target)

    def _enable(self) -> None:
        """Enable the extension: SQLite creates its tables now, PostgreSQL must have them."""
        self.context.app.extensions.get(SealExtension.name)

    def _ranges(self) -> Ranges:
        name = SealExtension.name
        is_enabled = name in self.context.app.extensions
        if is_enabled or name in self.context.store.component_versions():
            with shared_reads():
                sealed_to = self.context.store.one(SQL.read_cursor)["sealed_to"]
            return partial(sealed_ranges, sealed_to)
        return whole_range


def sealed_ranges(
    sealed_to: int, tx: Tx, org_id: str | None, above: int, before: int
) -> Iterator[tuple[int, int]]:
    """Yield the ranges that the seals of a tenant cover, and the one after *sealed_to*.

    With them, events need no index by tenant. Ranges that nearly touch are joined.
    """
    if org_id is None:
        yield above, before
        return
    low, high = max(above, sealed_to), before
    while True:
        page = tx.many(
            SQL.list_reach, org_id=org_id, above=above, before=min(before, low + 1),
            limit=REACH_SEALS,
        )  # fmt: skip
        for seal in page:
            if seal["high"] < low - REACH_GAP:
                if low < high:
                    yield low, high
                high = min(before, seal["high"] + 1)
            low = min(low, max(above, seal["low"] - 1))
        if len(page) < REACH_SEALS:
            yield low, high
            return
