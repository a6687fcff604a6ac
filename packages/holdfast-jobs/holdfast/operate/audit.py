"""The audit, for those who ask: what happened, is it still what was sealed, and a copy to keep.

A tenant's events are looked for where its seals say that it has any, and behind the newest seal. So
nothing that a job writes has to carry an index by tenant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from holdfast.actor import Actor, ActorType, Role, read_actor
from holdfast.arguments import checked, each, identifier, instance, instant, name, text, uuid, whole
from holdfast.clock import read_instant, write_instant
from holdfast.document import decode
from holdfast.engine.audit import SQL as AUDIT_SQL
from holdfast.engine.audit import record_action, seal_events, subject_id
from holdfast.engine.chain import Anchor as Anchor
from holdfast.engine.chain import Tampering as Tampering
from holdfast.engine.chain import check_seals
from holdfast.errors import ConfigError, Forbidden, JobNotFound, RowInvalid
from holdfast.event import AuditTampered
from holdfast.ids import read_uuid
from holdfast.operate.audit_export import export_lines
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.letter_input import read_texts
from holdfast.operate.page import LONGEST_PAGE, Page, page_of, read_filter, read_id
from holdfast.operate.refusal import InvalidAction
from holdfast.store import Row, Statements, Tx

SQL = Statements("holdfast.operate", "audit_trail.sql")

NEWEST = 2**62
SEAL_LIMIT = 5_000
LONGEST_REASON = 500

# Ids and instants grow together, but for statements that ran at the same time and for a clock that
# was set back: so much farther is looked.
SLACK = timedelta(minutes=5)
# Seals that are read at once, and how near to each other what they cover counts as one stretch.
REACH_SEALS = 50
REACH_GAP = 5_000


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One event of the audit."""

    id: int
    org_id: str
    project_id: str | None
    job_id: str
    job_type: str
    name: str
    attempt: int
    actor: Actor
    request_id: str
    correlation_id: str
    at: datetime
    detail: Mapping[str, Any] | None

    @classmethod
    def of(cls, row: Row) -> AuditEvent:
        try:
            given: dict[str, Any] = {
                "actor": Actor(ActorType(row["actor_type"]), row["actor_id"]),
                "at": read_instant(row["at"]),
                "detail": None if row["detail"] is None else decode(row["detail"]),
            }
        except ValueError as exc:
            raise RowInvalid(
                f"Event {row['id']} cannot be read: it was not written by us. 'holdfast audit"
                " verify' says more.",
                event_id=row["id"],
            ) from exc
        return cls(**given, **{name: row[name] for name in cls.__slots__ if name not in given})


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which events to list; a field that is None matches every event."""

    org_id: str | None = None
    job_id: str | None = None
    actor: Actor | str | None = None
    correlation_id: str | None = None
    request_id: str | None = None
    name: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def check(self) -> AuditFilter:
        """The same in stored form; raises InvalidAction with every bad field."""
        checks = {
            "org_id": uuid,
            "job_id": identifier,
            "actor": read_actor,
            **dict.fromkeys(("correlation_id", "request_id"), text),
            "name": name,
            **dict.fromkeys(("since", "until"), instant),
        }
        return read_filter(self, checks)


@dataclass(frozen=True, slots=True)
class Cover:
    """How much of the audit is under seals. What is not yet cannot be proven."""

    seals: int
    sealed: int
    unsealed: int


@dataclass(frozen=True, slots=True)
class Sealing:
    """What was sealed. It is whole if it covers every event there was when it began."""

    events: int
    unsealed: int
    is_whole: bool


@checked(
    InvalidAction,
    checks={
        "anchors": each(instance(Anchor)),
        "before": whole(most=2**63 - 1),
        "correlation_id": text,
        "request_id": text,
        "wanted": instance(AuditFilter),
    },
)
@dataclass(frozen=True, slots=True)
class AuditTrail:
    """The audit as *context* may see it."""

    context: OperatorContext

    def query(
        self,
        *,
        org_id: str | None = None,
        job_id: str | None = None,
        actor: Actor | str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
        name: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        before: int = NEWEST,
    ) -> Sequence[AuditEvent]:
        """:meth:`list` with the fields of the filter as keywords, without the cursor."""
        wanted = AuditFilter(org_id, job_id, actor, correlation_id, request_id, name, since, until)
        return [*self._list(wanted, limit, before)]

    def list(
        self, wanted: AuditFilter | None = None, *, limit: int = 50, before: int = NEWEST
    ) -> Page[AuditEvent]:
        """Events, newest first; *before* is the id of the last event of the page before.

        An operator reads one tenant's events, an admin also those of all. Raises JobNotFound for a
        job without events and for another tenant's. A filter by job, correlation or person uses an
        index; one by request, name or worker reads every event of the tenant and the time span.
        """
        return self._list((wanted or AuditFilter()).check(), limit, before)

    def _list(self, wanted: AuditFilter, limit: int, before: int) -> Page[AuditEvent]:
        if not 1 <= limit <= LONGEST_PAGE:
            raise ConfigError(f"Ask for 1 to {LONGEST_PAGE} events; the next page follows them.")
        who = None if wanted.actor is None else read_actor(wanted.actor)
        texts = {name: getattr(wanted, name) for name in ("correlation_id", "request_id", "name")}
        asked: dict[str, Any] = {
            **{key: _text(key, value) for key, value in texts.items()},
            **_span(wanted.since, wanted.until),
            "org_id": self._tenant(Action.READ_AUDIT, wanted.org_id),
            "actor_type": None if who is None else who.type,
            "actor_id": None if who is None else _text("actor", who.id),
            "limit": limit + 1,
            "before": before,
        }
        if wanted.job_id is not None:
            asked["job_id"] = self._job(wanted.job_id, asked["org_id"])
        rows = self.context.store.read(lambda tx: _find(tx, asked))
        return page_of([AuditEvent.of(row) for row in rows], limit, lambda event: event.id)

    def verify(
        self, *, org_id: str | None = None, anchors: Sequence[Anchor] = ()
    ) -> Iterator[Tampering]:
        """Every place that is not as it was sealed, as it is found, of one tenant or of all.

        *anchors* are heads of chains that were kept elsewhere.
        """
        tenant = self._tenant(Action.READ_AUDIT, org_id)
        for anchor in anchors:
            if tenant not in (None, anchor.org_id):
                error = Forbidden(f"An anchor of another tenant than {tenant} cannot be compared.")
                self.context.refuse(
                    Action.READ_AUDIT, error, org_id=tenant, subject=f"audit:{anchor.org_id}"
                )
        key = self.context.settings.audit_key
        return self._told(check_seals(self.context.store.read, tenant, key=key, anchors=anchors))

    def _told(self, found: Iterator[Tampering]) -> Iterator[Tampering]:
        """What is found, and the first of every tenant to whoever subscribed: it is an alert."""
        told: set[str] = set()
        for place in found:
            if place.org_id not in told:
                told.add(place.org_id)
                event = AuditTampered(place.org_id, place.problem, place.seal, place.seq)
                self.context.events.emit(event)
            yield place

    def cover(self, *, org_id: str | None = None) -> Cover:
        """How many events are under seals, of one tenant or of all, and how many are not yet."""
        tenant = self._tenant(Action.READ_AUDIT, org_id)
        row = self.context.store.read(lambda tx: tx.one(SQL.count_cover, org_id=tenant))
        return Cover(row["seals"], row["sealed"], row["unsealed"])

    def export(
        self,
        *,
        org_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        reason: str = "",
    ) -> Iterator[str]:
        """The audit as lines of JSON with its seals, oldest first; :func:`check_export` reads them.

        For admins, of one tenant or of all. That it was exported is written down first.
        """
        tenant = self._tenant(Action.EXPORT_AUDIT, org_id)
        context, span = self.context, _span(since, until)
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
        above, before = context.store.read(lambda tx: _bounds(tx, span, newest + 1))
        reach = context.store.read(lambda tx: tx.one(AUDIT_SQL.read_reach))
        head = {"org_id": tenant, **span, "is_keyed": bool(context.settings.audit_key)}
        return export_lines(
            context.store.read, head, above=above, upto=before - 1, sealed_to=reach["newest"]
        )

    def seal(self) -> Sealing:
        """Seal every event there is now, as far as no running transaction stands before it."""
        context = self.context
        self._check_all(Action.VERIFY)
        target = context.store.read(lambda tx: tx.one(SQL.count_cover, org_id=None))["newest"]
        events = 0
        while True:
            before = context.store.read(lambda tx: tx.one(AUDIT_SQL.read_cursor))
            passed = seal_events(context.store, limit=SEAL_LIMIT, key=context.settings.audit_key)
            for head in passed.seals:
                context.events.emit(head)
            events += passed.events
            after = context.store.read(lambda tx: tx.one(AUDIT_SQL.read_cursor))
            # A pass that changes nothing waits for somebody's transaction, or for another pass.
            if after["sealed_to"] >= target or after == before:
                break
        unsealed = context.store.read(lambda tx: tx.one(SQL.count_cover, org_id=None))["unsealed"]
        return Sealing(events, unsealed, after["sealed_to"] >= target)

    def _tenant(self, action: Action, org_id: str | None) -> str | None:
        """The tenant that is asked about, None for all, if it may be."""
        tenant = self.context.org_id if org_id is None else read_id("org_id", org_id)
        if tenant is None:
            self._check_all(action)
        else:
            self.context.check(action, org_id=tenant, subject=f"audit:{tenant}")
        return tenant

    def _check_all(self, action: Action) -> None:
        """Raise Forbidden, audited, unless this may be done to the audit of every tenant."""
        subject = "audit:all"
        self.context.check(action, org_id=None, subject=subject)
        if self.context.role is not Role.ADMIN:
            error = Forbidden("Only an admin works on the audit of every tenant. Name one: --org.")
            self.context.refuse(action, error, org_id=None, subject=subject)

    def _job(self, job_id: str, org_id: str | None) -> str:
        context, found = self.context, None
        try:
            known_id = read_uuid(job_id)
        except ValueError:
            known_id = ""
        else:
            asked = {"job_id": known_id, "org_id": org_id}
            found = context.store.read(lambda tx: tx.maybe(SQL.find_subject, **asked))
        if found is None:
            error = JobNotFound(job_id[:100])
            # Who may see everything has only mistaken the id.
            if context.org_id is None:
                raise error
            subject = f"job:{job_id[:100]}"
            context.refuse(Action.READ_AUDIT, error, org_id=context.org_id, subject=subject)
        return known_id


def _text(name: str, value: str | None) -> str | None:
    if value is not None and not (1 <= len(value) <= 500 and "\0" not in value):
        raise ConfigError(f"The audit is asked for {name} by text of 1 to 500 characters.")
    return value


def _span(since: datetime | None, until: datetime | None) -> dict[str, str | None]:
    for bound, moment in (("since", since), ("until", until)):
        if moment is not None and moment.tzinfo is None:
            raise ConfigError(f"{bound} has no time zone; write it like 2026-01-05T09:00:00Z.")
    if since is not None and until is not None and since >= until:
        raise ConfigError("since must be before until; the span has no instant in it.")
    return {
        "since": None if since is None else write_instant(since),
        "until": None if until is None else write_instant(until),
    }


def _find(tx: Tx, asked: Mapping[str, Any]) -> list[Row]:
    """The events by the shortest way in that the filters allow."""
    job_id, correlation_id = asked.get("job_id"), asked["correlation_id"]
    if job_id is not None:
        return tx.many(SQL.list_of_jobs, **asked, jobs=[{"id": job_id}], by_correlation=None)
    if correlation_id is not None:
        jobs = _subjects(correlation_id)
        return tx.many(SQL.list_of_jobs, **asked, jobs=jobs, by_correlation=correlation_id)
    if asked["actor_type"] not in (None, ActorType.SYSTEM):
        return tx.many(SQL.list_of_person, **asked)
    span = {name: asked[name] for name in ("since", "until")}
    above, before = _bounds(tx, span, asked["before"])
    found: list[Row] = []
    for low, high in _reach(tx, asked["org_id"], above, before):
        bounds = {"above": low, "before": high, "limit": asked["limit"] - len(found)}
        found += tx.many(SQL.list_between, **{**asked, **bounds})
        if len(found) >= asked["limit"]:
            break
    return found


def _subjects(correlation_id: str) -> list[dict[str, str]]:
    """What a correlation stands for by itself: a job's own id, or a thing that is no job."""
    ids = {subject_id(correlation_id)}
    with suppress(ValueError):
        ids.add(read_uuid(correlation_id))
    return [{"id": known_id} for known_id in sorted(ids)]


def _bounds(tx: Tx, span: Mapping[str, str | None], before: int) -> tuple[int, int]:
    """Between which ids the events of a span of time are; the instants themselves decide."""
    above = 0
    since, until = span["since"], span["until"]
    if since is not None:
        early = write_instant(read_instant(since) - SLACK)
        above = tx.one(SQL.find_first_at, instant=early)["low"]
    if until is not None:
        late = write_instant(read_instant(until) + SLACK)
        before = min(before, tx.one(SQL.find_first_at, instant=late)["low"] + 1)
    return above, before


def _reach(tx: Tx, org_id: str | None, above: int, before: int) -> Iterator[tuple[int, int]]:
    """The stretches of ids, open at both ends, in which there are events of a tenant; newest first.

    A seal says between which ids its events are. Stretches that nearly touch are joined.
    """
    if org_id is None:
        yield above, before
        return
    sealed_to = tx.one(AUDIT_SQL.read_cursor)["sealed_to"]
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
