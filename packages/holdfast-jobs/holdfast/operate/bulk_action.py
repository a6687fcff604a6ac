"""Bulk actions that run as jobs: what one does, how its job stores it, and how far it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar

from holdfast.actor import Actor, ActorType, Role
from holdfast.clock import read_instant
from holdfast.document import decode
from holdfast.engine.audit import PLATFORM_ORG
from holdfast.engine.job import State
from holdfast.operate import bulk, cancel_all, delivery_bulk
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.bulk_page import BulkPages
from holdfast.operate.bulk_steps import RECOVERY, Decision
from holdfast.operate.dead_letter_input import DeadLetterFilter
from holdfast.operate.delivery_filter import DeliveryFilter
from holdfast.operate.jobs import JobFilter
from holdfast.operate.refusal import InvalidAction
from holdfast.store import Row

RECOVER = "recover"
_LETTER_STEPS: Mapping[str, tuple[Action, ...]] = {
    RECOVER: RECOVERY,
    **{str(step): (step,) for step in RECOVERY},
    str(Action.DISCARD): (Action.DISCARD,),
}


@dataclass(frozen=True, slots=True)
class LetterAction:
    """A step for every dead letter that matches. ``recover`` takes all steps that apply."""

    action: str
    wanted: DeadLetterFilter
    reason: str
    kind: str | None = None
    done: Collection[str] | None = None
    evidence_ref: str | None = None
    full_restart: bool = False
    subject: ClassVar[str] = bulk.SUBJECT

    def pages(self, context: OperatorContext, detail: Mapping[str, Any]) -> BulkPages:
        """Validate and authorize the action."""
        steps = _LETTER_STEPS.get(self.action)
        if steps is None:
            raise InvalidAction({"action": f"must be one of {', '.join(_LETTER_STEPS)}"})
        done = None if self.done is None else frozenset(self.done)
        decision = Decision(self.reason, self.kind, done, self.evidence_ref, self.full_restart)  # type: ignore[arg-type]
        ask = bulk.BulkRequest(self.wanted, decision, False, False, None, bulk.LIMIT)
        return bulk.letter_pages(context, self.action, steps, ask, detail)

    def document(self) -> dict[str, Any]:
        """The action for the payload of its job."""
        wanted = {
            name: value.total_seconds() if isinstance(value, timedelta) else _plain(value)
            for name, value in self.wanted.given.items()
        }
        done = None if self.done is None else sorted(self.done)
        given = {"kind": self.kind, "done": done, "evidence_ref": self.evidence_ref}
        return {"filter": wanted, **given, "full_restart": self.full_restart}

    @classmethod
    def from_document(cls, found: Mapping[str, Any]) -> LetterAction:
        wanted = dict(found["filter"])
        if "older_than" in wanted:
            wanted["older_than"] = timedelta(seconds=wanted["older_than"])
        if "since" in wanted:
            wanted["since"] = read_instant(wanted["since"])
        return cls(
            found["action"],
            DeadLetterFilter(**wanted),
            found["reason"],
            found["kind"],
            found["done"],
            found["evidence_ref"],
            found["full_restart"],
        )


@dataclass(frozen=True, slots=True)
class DeliveryAction:
    """A decision about every held or failed delivery that matches."""

    action: str
    wanted: DeliveryFilter
    reason: str
    subject: ClassVar[str] = delivery_bulk.SUBJECT

    def pages(self, context: OperatorContext, detail: Mapping[str, Any]) -> BulkPages:
        """Validate and authorize the action."""
        if self.action not in delivery_bulk.DECISIONS:
            known = ", ".join(delivery_bulk.DECISIONS)
            raise InvalidAction({"action": f"must be one of {known}"})
        request = delivery_bulk.BulkRequest(self.wanted, self.reason)
        return delivery_bulk.delivery_pages(context, Action(self.action), request, detail)

    def document(self) -> dict[str, Any]:
        """The action for the payload of its job."""
        return {"filter": {name: _plain(value) for name, value in self.wanted.given.items()}}

    @classmethod
    def from_document(cls, found: Mapping[str, Any]) -> DeliveryAction:
        wanted = dict(found["filter"])
        for name in {"since", "until"} & set(wanted):
            wanted[name] = read_instant(wanted[name])
        return cls(found["action"], DeliveryFilter(**wanted), found["reason"])


@dataclass(frozen=True, slots=True)
class CancelAction:
    """A cancel of every waiting or running job that matches."""

    wanted: JobFilter
    reason: str
    action: ClassVar[str] = str(Action.CANCEL)
    subject: ClassVar[str] = cancel_all.SUBJECT

    def pages(self, context: OperatorContext, detail: Mapping[str, Any]) -> BulkPages:
        """Validate and authorize the action."""
        own: Any = {"detail": detail, "without": detail.get("bulk_action")}
        return cancel_all.cancel_pages(context, self.wanted, reason=self.reason, **own)

    def document(self) -> dict[str, Any]:
        """The action for the payload of its job."""
        given = {name: value for name, value in asdict(self.wanted).items() if value is not None}
        return {"filter": {name: str(value) for name, value in given.items()}}

    @classmethod
    def from_document(cls, found: Mapping[str, Any]) -> CancelAction:
        return cls(JobFilter(**found["filter"]), found["reason"])


BulkRequest = LetterAction | DeliveryAction | CancelAction
_KINDS: Mapping[str, type[LetterAction] | type[DeliveryAction] | type[CancelAction]] = {
    kind.subject: kind for kind in (LetterAction, DeliveryAction, CancelAction)
}


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)


@dataclass(frozen=True, slots=True)
class StoredAction:
    """The payload of the job of a bulk action: who asked for what, and where it begins."""

    request: BulkRequest
    role: Role
    # The tenant that the person acts for; None for all.
    org_id: str | None
    matched: int
    ready: int
    is_capped: bool
    start: str | None

    def payload(self) -> dict[str, Any]:
        """Write the payload."""
        request = self.request
        return {
            "subject": request.subject,
            "action": request.action,
            "reason": request.reason,
            **request.document(),
            "role": self.role.value,
            "org_id": self.org_id,
            "matched": self.matched,
            "ready": self.ready,
            "is_capped": self.is_capped,
            "start": self.start,
        }

    @classmethod
    def from_payload(cls, found: Mapping[str, Any]) -> StoredAction:
        """Read a payload."""
        return cls(
            _KINDS[found["subject"]].from_document(found),
            Role(found["role"]),
            found["org_id"],
            found["matched"],
            found["ready"],
            found["is_capped"],
            found["start"],
        )


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """The checkpoint of a bulk action: the next page, and counts of the pages before."""

    cursor: str | None
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def done(self) -> int:
        """The number of items that the action changed."""
        return sum(self.counts.get(name, 0) for name in ("done", "canceled", "requested"))

    @property
    def skipped(self) -> int:
        """The number of items that it did not change."""
        return sum(self.counts.get(name, 0) for name in ("skipped", "too_late", "refused"))

    def after(self, cursor: str | None, counts: Mapping[str, int]) -> BulkProgress:
        """The progress after a page."""
        names = {*self.counts, *counts}
        added = {name: self.counts.get(name, 0) + counts.get(name, 0) for name in sorted(names)}
        return BulkProgress(cursor, added)

    def document(self) -> dict[str, Any]:
        return {"cursor": self.cursor, "counts": dict(self.counts)}

    @classmethod
    def from_document(cls, found: Mapping[str, Any]) -> BulkProgress:
        return cls(found["cursor"], found["counts"])


@dataclass(frozen=True, slots=True)
class BulkAction:
    """A bulk action and its progress. *state* is that of its job, *id* the id of the job."""

    id: str
    # The tenant that its items belong to; None for all.
    org_id: str | None
    subject: str
    action: str
    filter: str
    reason: str
    actor: Actor
    role: Role
    state: State
    matched: int
    ready: int
    is_capped: bool
    done: int
    skipped: int
    counts: Mapping[str, int]
    error: str | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    # The payload of its job.
    request: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.state.is_terminal

    @classmethod
    def from_rows(cls, job: Mapping[str, Any], stages: Sequence[Row]) -> BulkAction:
        """Read the record of the job and its stages."""
        stored = StoredAction.from_payload(job["payload"])
        saved = [row["checkpoint"] for row in stages if row["checkpoint"] is not None]
        progress = BulkProgress.from_document(decode(saved[-1])) if saved else BulkProgress(None)
        finished = job["finished_at"]
        org_id = str(job["org_id"])
        return cls(
            str(job["id"]),
            stored.request.wanted.org_id or (None if org_id == PLATFORM_ORG else org_id),
            stored.request.subject,
            stored.request.action,
            str(stored.request.wanted),
            stored.request.reason,
            Actor(ActorType(job["actor_type"]), job["actor_id"]),
            stored.role,
            State(job["state"]),
            stored.matched,
            stored.ready,
            stored.is_capped,
            progress.done,
            progress.skipped,
            progress.counts,
            job["last_error"],
            read_instant(job["created_at"]),
            read_instant(job["updated_at"]),
            None if finished is None else read_instant(finished),
            job["payload"],
        )
