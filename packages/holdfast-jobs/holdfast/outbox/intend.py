"""Intend: store messages to send, in the caller's transaction. This module sends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypedDict, cast

from holdfast.actor import SYSTEM, Actor, ActorType
from holdfast.clock import write_instant
from holdfast.document import BadDocument, canonical, decode
from holdfast.engine import validation
from holdfast.engine.execute import current
from holdfast.errors import ConfigError, Forbidden, StoreBusy
from holdfast.ids import IdSource
from holdfast.outbox.delivery import Content, Identity, State, endpoint_of
from holdfast.outbox.failure import InvalidDelivery
from holdfast.outbox.in_app import read_id
from holdfast.store import Row, Statements
from holdfast.store.caller_connection import Steps

SQL = Statements("holdfast.outbox", "delivery.sql")

LONGEST_NAME = 500
LONGEST_ADDRESS = 2_000
LONGEST_CONTENT = 1_000_000
# The maximum of a database integer.
LARGEST_VERSION = 2_147_483_647


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to send: one subject in one version to one recipient."""

    subject: str
    """What the message is about, such as `order:42`."""
    recipient: str = field(repr=False)
    """The recipient. One recipient gets a subject once per version."""
    version: int
    """The version of the subject."""
    channel: str
    """The channel that sends it."""
    address: str = field(repr=False)
    """The address of the recipient in the channel."""
    content: Content
    """The content of the message."""
    is_required: bool = True
    """True if the job waits for the delivery and fails if it fails."""
    not_before_at: datetime | None = None
    """The message is not sent before this time."""


@dataclass(frozen=True, slots=True)
class Intended:
    """The delivery that was stored for a message. ``created`` is False if it existed before.

    ``differs`` says that the existing delivery has other content or another address. It is kept.
    """

    id: str
    org_id: str
    channel: str
    state: State
    created: bool
    differs: bool = False
    # Actor, request, project and job of the delivery; for its events.
    about: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Origin:
    """The tenant and the actor that a message is sent for, and the job if there is one."""

    org_id: str
    job_id: str | None
    request_id: str
    correlation_id: str
    project_id: str | None = None
    actor: Actor = SYSTEM


def find_origin(org_id: str | None, ids: IdSource) -> Origin:
    """Return the origin of a message. Inside a job it is the job and its tenant."""
    job = current.get()
    if job is not None:
        if org_id is not None and str(org_id) != job.org_id:
            raise Forbidden(
                f"Job {job.id} of tenant {job.org_id} cannot send messages for another tenant."
            )
        who = Actor(ActorType(job.actor_type), job.actor_id)
        about = (job.request_id, job.correlation_id, job.project_id, who)
        return Origin(job.org_id, job.id, *about)
    if org_id is None:
        raise ConfigError("Nothing was done: org_id is required.")
    made = ids.new()
    return Origin(read_id("org_id", org_id), None, made, made)


class RequestContext(TypedDict, total=False):
    """The actor, request and project of a message."""

    actor: Actor | str
    project_id: str | None
    request_id: str | None
    correlation_id: str | None


def request_context(options: Mapping[str, Any]) -> RequestContext:
    """The part of *options* that belongs to the request context."""
    found = {name: options[name] for name in RequestContext.__optional_keys__ if name in options}
    return cast("RequestContext", found)


def with_context(origin: Origin, context: RequestContext) -> Origin:
    """Return *origin* with the context that the caller passed. Raises InvalidDelivery."""
    unknown = set(context) - RequestContext.__optional_keys__
    errors = dict.fromkeys(sorted(unknown), "is not an option of intend")
    own: dict[str, Any] = {}
    for name in ("request_id", "correlation_id"):
        value = validation.text(name, context.get(name), errors)
        if value is not None:
            own[name] = value
    if context.get("project_id") is not None:
        own["project_id"] = validation.uuid("project_id", context["project_id"], errors)
    if "actor" in context:
        own["actor"] = validation.actor(context["actor"], errors)
    if errors:
        raise InvalidDelivery(errors)
    return replace(origin, **own)


def prepare(
    intents: Sequence[OutgoingMessage],
    ids: Sequence[str],
    origin: Origin,
    key: str,
    *,
    now: datetime,
) -> list[dict[str, Any]]:
    """Return the rows of *intents*. Raises InvalidDelivery if one is invalid."""
    errors: dict[str, str] = {}
    rows = []
    for place, (intent, made) in enumerate(zip(intents, ids, strict=True)):
        content = _check(f"deliveries[{place}]", intent, now, errors)
        if not errors:
            rows.append(_row(intent, made, content, origin, key))
    if errors:
        raise InvalidDelivery(errors)
    return rows


def _row(
    intent: OutgoingMessage, made: str, content: str, origin: Origin, key: str
) -> dict[str, Any]:
    identity = Identity(origin.org_id, intent.subject, intent.recipient, intent.version)
    due = intent.not_before_at
    return {
        "org_id": origin.org_id,
        "id": made,
        "subject": intent.subject,
        "recipient": intent.recipient,
        "version": intent.version,
        "channel": intent.channel,
        "address": intent.address,
        "token": identity.token(key),
        "content": content,
        "content_hash": intent.content.hash,
        "is_required": int(intent.is_required),
        "job_id": origin.job_id,
        # Set when a job is enqueued for it.
        "deliver_job_id": None,
        "not_before_at": None if due is None else write_instant(due),
        "request_id": origin.request_id,
        "correlation_id": origin.correlation_id,
        "endpoint": endpoint_of(intent.channel, intent.address, key),
        "project_id": origin.project_id,
        "actor_type": str(origin.actor.type),
        "actor_id": origin.actor.id,
    }


def _check(where: str, intent: OutgoingMessage, now: datetime, errors: dict[str, str]) -> str:
    """Record all errors; return the content's text."""
    for name, longest in (
        ("subject", LONGEST_NAME),
        ("recipient", LONGEST_NAME),
        ("channel", 100),
        ("address", LONGEST_ADDRESS),
    ):
        value = getattr(intent, name)
        # A line break in an address would allow header injection.
        if not isinstance(value, str) or not 0 < len(value) <= longest or not value.isprintable():
            errors[f"{where}.{name}"] = f"must be one line of 1 to {longest} characters"
    version = intent.version
    if type(version) is not int or not 0 < version <= LARGEST_VERSION:
        errors[f"{where}.version"] = "must be a whole number above 0"
    if type(intent.is_required) is not bool:
        errors[f"{where}.is_required"] = "must be True or False"
    validation.instant(f"{where}.not_before_at", intent.not_before_at, now, errors)
    content = intent.content
    if not (
        isinstance(content, Content)
        and isinstance(content.subject, str)
        and isinstance(content.text, str)
        and isinstance(content.html, str | None)
        and isinstance(content.data, Mapping)
    ):
        errors[f"{where}.content"] = "must be a Content of texts, with a mapping as data"
        return ""
    try:
        text = write_content(content)
    except BadDocument as exc:
        errors[f"{where}.content"] = str(exc)
        return ""
    if len(text) > LONGEST_CONTENT:
        errors[f"{where}.content"] = f"must have at most {LONGEST_CONTENT} characters"
    return text


def write_content(content: Content) -> str:
    """Serialize a content. Reading it returns the same content to the byte."""
    return canonical(
        {
            "subject": content.subject,
            "text": content.text,
            "html": content.html,
            "data": dict(content.data),
        }
    )


def read_content(text: str) -> Content:
    """Parse a stored content."""
    return Content(**decode(text))


def insert_steps(rows: Sequence[Mapping[str, Any]]) -> Steps[list[Intended]]:
    """Insert the rows of :func:`prepare`; existing deliveries are returned unchanged."""
    if not rows:
        return []
    created = {str(row["id"]) for row in (yield SQL.insert_deliveries, {"intents": rows})}
    missing = [row for row in rows if row["id"] not in created]
    found: dict[tuple[str, str, int], Row] = {}
    if missing:
        identities = [
            {name: row[name] for name in ("org_id", "subject", "recipient", "version")}
            for row in missing
        ]
        stored = yield SQL.find_intended, {"identities": identities}
        found = {(row["subject"], row["recipient"], row["version"]): row for row in stored}
    return [
        Intended(
            row["id"],
            row["org_id"],
            row["channel"],
            State.PENDING,
            created=True,
            about=_about(row),
        )
        if row["id"] in created
        else _old(row, found)
        for row in rows
    ]


def _about(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "job_id": row["deliver_job_id"] or row["job_id"],
        "project_id": row["project_id"],
        "request_id": row["request_id"],
        "correlation_id": row["correlation_id"],
        "actor": f"{row['actor_type']}:{row['actor_id']}",
    }


def _old(row: Mapping[str, Any], found: Mapping[tuple[str, str, int], Row]) -> Intended:
    original = found.get((row["subject"], row["recipient"], row["version"]))
    if original is None:
        # It was erased between the two statements, or the caller's transaction cannot see it.
        raise StoreBusy("A concurrent transaction wrote or erased the same delivery. Try again.")
    differs = any(row[name] != original[name] for name in ("content_hash", "address", "channel"))
    return Intended(
        str(original["id"]),
        str(original["org_id"]),
        original["channel"],
        State(original["state"]),
        # The same id: an earlier attempt was committed, but its answer was lost.
        created=str(original["id"]) == row["id"],
        differs=differs,
        about=_about(row),
    )
