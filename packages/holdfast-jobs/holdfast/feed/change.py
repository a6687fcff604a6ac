"""Changes: what the feed says about an audit event. Pure.

A change has ids, names, a state and a time. It never has a payload, a message or an error text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.clock import read_instant, write_instant
from holdfast.errors import InvalidArgument
from holdfast.feed.position import Position
from holdfast.ids import read_named_id, read_uuid
from holdfast.store import Row

# The state that a job, a delivery or a dead letter has after an event.
STATES: Mapping[str, str] = {
    "job.enqueued": "queued",
    "job.started": "processing",
    "job.advanced": "queued",
    "job.submitted": "batch_submitted",
    "job.succeeded": "completed",
    "job.deadlettered": "failed",
    "job.failed": "failed",
    "job.canceled": "canceled",
    "job.retried": "queued",
    "job.released": "queued",
    "job.snoozed": "queued",
    "job.woken": "queued",
    "delivery.intended": "pending",
    "delivery.sent": "sent",
    "delivery.backfilled": "sent",
    "delivery.confirmed": "sent",
    "delivery.held": "held",
    "delivery.dropped": "dropped",
    "delivery.failed": "failed",
    "delivery.requeued": "pending",
    "delivery.resent": "pending",
    "dead_letter.triaged": "triaged",
    "dead_letter.remediated": "remediated",
    "dead_letter.validated": "validated",
    "dead_letter.replayed": "replaying",
    "dead_letter.verified": "replayed",
    "dead_letter.resolved": "resolved",
    "dead_letter.discarded": "discarded",
    "dead_letter.fixed_forward": "fixed_forward",
    "dead_letter.reopened": "open",
    "queue.paused": "paused",
    "queue.resumed": "running",
    "schedule.paused": "paused",
    "schedule.resumed": "running",
    "rewrite_received": "queued",
    "rewrite_queued": "queued",
    "rewrite_enqueued": "queued",
    "rewrite_completed": "completed",
    "rewrite_revealed": "completed",
    "rewrite_failed": "failed",
    "rewrite_canceled": "canceled",
}

# Subjects without an id: all changes of a kind.
TOPICS: Mapping[str, tuple[str, ...]] = {
    "jobs": ("job.",),
    "dead_letters": ("job.deadlettered", "dead_letter."),
    "deliveries": ("delivery.",),
    "rewrites": ("rewrite_",),
}
MOST_SUBJECTS = 100
_KINDS_WITH_UUID = frozenset({"job", "delivery", "dead_letter", "rewrite", "review"})
_SUBJECT = re.compile(r"[a-z_]{1,40}:[!-~]{1,200}")


@dataclass(frozen=True, slots=True)
class Change:
    """One committed change."""

    id: int
    """The id of the audit event."""
    position: Position
    """The position after this change; a reader resumes from it."""
    org_id: str
    name: str
    """The name of the audit event, such as `job.succeeded`."""
    subject: str
    """The changed object, such as `job:…` or `queue:q:default`."""
    job_id: str | None
    job_type: str | None
    queue: str | None
    state: str | None
    """The state after the change; None if the event does not change it."""
    attempt: int | None
    at: datetime
    # Not part of the document.
    correlation_id: str = field(default="", repr=False)

    @property
    def topics(self) -> list[str]:
        """The kinds of changes that this one belongs to."""
        return [topic for topic, names in TOPICS.items() if self.name.startswith(names)]

    def document(self) -> dict[str, Any]:
        """The change as clients see it."""
        return {
            "id": str(self.id),
            "name": self.name,
            "subject": self.subject,
            "job_id": self.job_id,
            "job_type": self.job_type,
            "queue": self.queue,
            "state": self.state,
            "attempt": self.attempt,
            "org_id": self.org_id,
            "at": write_instant(self.at),
        }


def change_from(row: Row, position: Position) -> Change:
    """The change of one audit event."""
    name, event_id, kind = row["name"], str(row["job_id"]), row["job_type"]
    given = row["subject"]
    is_job = False
    if isinstance(given, str) and _SUBJECT.fullmatch(given):
        subject = given
    elif isinstance(given, str):
        subject = kind
    elif kind == "delivery" and name.startswith("delivery."):
        subject = f"delivery:{event_id}"
    elif name.startswith("dead_letter."):
        subject, is_job = f"dead_letter:{event_id}", True
    else:
        subject, is_job = f"job:{event_id}", True
    return Change(
        id=int(row["id"]),
        position=position,
        org_id=str(row["org_id"]),
        name=name,
        subject=subject,
        job_id=event_id if is_job else None,
        job_type=kind if is_job else None,
        queue=row["queue"] if is_job else None,
        state=STATES.get(name),
        attempt=row["attempt"] if is_job else None,
        at=read_instant(row["at"]),
        correlation_id=row["correlation_id"],
    )


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Which changes a reader gets: those of a tenant, and of some subjects.

    Without *org_id* it gets the changes of every tenant, without *subjects* those of all subjects.
    """

    org_id: str | None = None
    subjects: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    def matches(self, change: Change) -> bool:
        """Whether the reader gets this change."""
        if self.org_id is not None and change.org_id != self.org_id:
            return False
        if self.names and not any(matches_name(name, change.name) for name in self.names):
            return False
        return not self.subjects or any(_is_about(change, one) for one in self.subjects)


def read_filter(
    org_id: str | None, subjects: Iterable[str] = (), names: Collection[str] = ()
) -> ChangeFilter:
    """Validate a filter. Raises InvalidArgument."""
    errors: dict[str, str] = {}
    home = None
    if org_id is not None:
        try:
            home = read_named_id(org_id)
        except ValueError:
            errors["org_id"] = "must be a UUID or a name"
    wanted = list(subjects)
    if len(wanted) > MOST_SUBJECTS:
        errors["subject"] = f"must be at most {MOST_SUBJECTS} subjects"
    found = {_read_subject(one) for one in wanted}
    if None in found:
        known = ", ".join(TOPICS)
        errors["subject"] = f"must be {known}, or a kind and an id such as job:… or queue:q:default"
    if errors:
        raise InvalidArgument(errors)
    kept = frozenset(one for one in found if one is not None)
    return ChangeFilter(home, kept, frozenset(names))


def _read_subject(given: object) -> str | None:
    if not isinstance(given, str):
        return None
    if given in TOPICS:
        return given
    if _SUBJECT.fullmatch(given) is None:
        return None
    kind, _, name = given.partition(":")
    if kind not in _KINDS_WITH_UUID:
        return given
    try:
        return f"{kind}:{read_uuid(name)}"
    except ValueError:
        return None


def matches_name(pattern: str, name: str) -> bool:
    """Whether an event name matches a name, or a beginning followed by ``*``."""
    if pattern.endswith("*"):
        return name.startswith(pattern[:-1])
    return name == pattern


def _is_about(change: Change, subject: str) -> bool:
    if subject in TOPICS:
        return change.name.startswith(TOPICS[subject])
    kind, _, name = subject.partition(":")
    if kind == "queue" and change.queue == name:
        return True
    if kind in ("job", "dead_letter") and change.job_id == name:
        return kind == "job" or change.name.startswith(TOPICS["dead_letters"])
    return change.subject == subject
