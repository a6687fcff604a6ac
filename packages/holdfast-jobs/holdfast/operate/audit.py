"""The audit: list the events of jobs, queues, schedules and other objects.

The extension ``seal`` adds methods in a subclass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from holdfast.actor import Actor, ActorType, Role, read_actor
from holdfast.arguments import checked, identifier, instance, instant, name, text, uuid, whole
from holdfast.clock import read_instant, write_instant
from holdfast.document import decode
from holdfast.engine.audit import subject_id
from holdfast.errors import Forbidden, JobNotFound, RowInvalid
from holdfast.ids import read_uuid
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.page import LONGEST_PAGE, Page, page_of, read_filter, read_id
from holdfast.operate.refusal import InvalidAction
from holdfast.store import Row, Statements, Tx

SQL = Statements("holdfast.operate", "audit_trail.sql")

NEWEST = 2**62

# Ids and timestamps increase together, except for concurrent statements and a clock that was set
# back. A search by time includes events up to this far outside of the span.
SLACK = timedelta(minutes=5)

Ranges = Callable[[Tx, str | None, int, int], Iterator[tuple[int, int]]]
"""The ranges of ids, exclusive at both ends and newest first, that contain a tenant's events."""


def whole_range(_tx: Tx, _org_id: str | None, above: int, before: int) -> Iterator[tuple[int, int]]:
    """Yield one range: without seals, the index by tenant or a scan finds the events."""
    yield above, before


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
    def from_row(cls, row: Row) -> AuditEvent:
        try:
            given: dict[str, Any] = {
                "actor": Actor(ActorType(row["actor_type"]), row["actor_id"]),
                "at": read_instant(row["at"]),
                "detail": None if row["detail"] is None else decode(row["detail"]),
            }
        except ValueError as exc:
            raise RowInvalid(
                f"Event {row['id']} cannot be decoded. Run 'holdfast audit verify'.",
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
        """Return the filter in stored form; raises InvalidAction with every bad field."""
        checks = {
            "org_id": uuid,
            "job_id": identifier,
            "actor": read_actor,
            **dict.fromkeys(("correlation_id", "request_id"), text),
            "name": name,
            **dict.fromkeys(("since", "until"), instant),
        }
        return read_filter(self, checks)


@checked(
    InvalidAction,
    checks={
        "before": whole(most=2**63 - 1),
        "correlation_id": text,
        "request_id": text,
        "wanted": instance(AuditFilter),
    },
)
@dataclass(frozen=True, slots=True)
class AuditTrail:
    """The audit events that the actor of *context* may see."""

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
            raise InvalidAction(
                {"limit": f"must be from 1 to {LONGEST_PAGE}; use next for more events"}
            )
        who = None if wanted.actor is None else read_actor(wanted.actor)
        texts = {name: getattr(wanted, name) for name in ("correlation_id", "request_id", "name")}
        asked: dict[str, Any] = {
            **{key: _text(key, value) for key, value in texts.items()},
            **read_span(wanted.since, wanted.until),
            "org_id": self._tenant(Action.READ_AUDIT, wanted.org_id),
            "actor_type": None if who is None else who.type,
            "actor_id": None if who is None else _text("actor", who.id),
            "limit": limit + 1,
            "before": before,
            # A group of events is found by all filters but its jobs' request.
            "reach": NEWEST if wanted.request_id is not None else limit + 1,
        }
        if wanted.job_id is not None:
            asked["job_id"], asked["job_org"] = self._job(wanted.job_id, asked["org_id"])
        ranges = self._ranges()
        rows = self.context.store.read(lambda tx: _find(tx, asked, ranges))
        return page_of([AuditEvent.from_row(row) for row in rows], limit, lambda event: event.id)

    def _ranges(self) -> Ranges:
        """Return how to find a tenant's events without an indexed filter."""
        return whole_range

    def _tenant(self, action: Action, org_id: str | None) -> str | None:
        """Return the tenant to read, None for all. Raises Forbidden, audited."""
        tenant = self.context.org_id if org_id is None else read_id("org_id", org_id)
        if tenant is None:
            self._check_all(action)
        else:
            self.context.check(action, org_id=tenant, subject=f"audit:{tenant}")
        return tenant

    def _check_all(self, action: Action) -> None:
        """Raise Forbidden, audited, unless *action* is allowed on the audit of every tenant."""
        subject = "audit:all"
        self.context.check(action, org_id=None, subject=subject)
        if self.context.role is not Role.ADMIN:
            error = Forbidden("Only an admin works on the audit of every tenant. Name one: --org.")
            self.context.refuse(action, error, org_id=None, subject=subject)

    def _job(self, job_id: str, org_id: str | None) -> tuple[str, str | None]:
        """Return the id in stored form, and the tenant of its events."""
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
            # An actor who may read every tenant only mistyped the id: nothing to audit.
            if context.org_id is None:
                raise error
            subject = f"job:{job_id[:100]}"
            context.refuse(Action.READ_AUDIT, error, org_id=context.org_id, subject=subject)
        return known_id, None if found is None else str(found["org_id"])


def _text(name: str, value: str | None) -> str | None:
    if value is not None and not (1 <= len(value) <= 500 and "\0" not in value):
        raise InvalidAction({name: "must be text of 1 to 500 characters"})
    return value


def read_span(since: datetime | None, until: datetime | None) -> dict[str, str | None]:
    """Return a time span in stored form. Raises InvalidAction."""
    for bound, moment in (("since", since), ("until", until)):
        if moment is not None and moment.tzinfo is None:
            says = "has no time zone; write it like 2026-01-05T09:00:00Z"
            raise InvalidAction({bound: says})
    if since is not None and until is not None and since >= until:
        raise InvalidAction({"since": "must be before until"})
    return {
        "since": None if since is None else write_instant(since),
        "until": None if until is None else write_instant(until),
    }


def _find(tx: Tx, asked: Mapping[str, Any], ranges: Ranges) -> list[Row]:
    """Return the events, by the most selective index that the filters allow."""
    job_id, correlation_id = asked.get("job_id"), asked["correlation_id"]
    if job_id is not None:
        jobs = [{"id": job_id, "org_id": asked["job_org"]}]
        return tx.many(SQL.list_of_jobs, **asked, jobs=jobs, by_correlation=None)
    if correlation_id is not None:
        jobs = _subjects(tx, correlation_id, asked["org_id"])
        return tx.many(SQL.list_of_jobs, **asked, jobs=jobs, by_correlation=correlation_id)
    if asked["actor_type"] not in (None, ActorType.SYSTEM):
        return tx.many(SQL.list_of_person, **asked)
    span = {name: asked[name] for name in ("since", "until")}
    above, before = id_bounds(tx, span, asked["before"])
    found: list[Row] = []
    for low, high in ranges(tx, asked["org_id"], above, before):
        limit = asked["limit"] - len(found)
        bounds = {"above": low, "before": high, "limit": limit}
        found += tx.many(SQL.list_between, **{**asked, **bounds})
        if len(found) >= asked["limit"]:
            break
    return found


def _subjects(tx: Tx, correlation_id: str, org_id: str | None) -> list[dict[str, str | None]]:
    """Return the subjects that a correlation may name: a job's own id, or another object."""
    subjects: list[dict[str, str | None]] = [{"id": subject_id(correlation_id), "org_id": None}]
    with suppress(ValueError):
        job_id = read_uuid(correlation_id)
        found = tx.maybe(SQL.find_subject, job_id=job_id, org_id=org_id)
        subjects.append({"id": job_id, "org_id": None if found is None else str(found["org_id"])})
    return subjects


def id_bounds(tx: Tx, span: Mapping[str, str | None], before: int) -> tuple[int, int]:
    """Return the exclusive id bounds of a time span. Compare the timestamps too."""
    above = 0
    since, until = span["since"], span["until"]
    if since is not None:
        early = write_instant(read_instant(since) - SLACK)
        above = tx.one(SQL.find_first_at, instant=early)["low"]
    if until is not None:
        late = write_instant(read_instant(until) + SLACK)
        before = min(before, tx.one(SQL.find_first_at, instant=late)["low"] + 1)
    return above, before
