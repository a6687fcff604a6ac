"""Category rules: what a handler may write and what it must deliver, by the category of its job.

Before an import or export runs, the engine checks that its inputs exist. While a handler runs, its
transaction is restricted to what its category allows. The result of a planning job or an export
must refer to an artifact that the job stored. This module only reads; settle writes the outcome.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.document import BadDocument, canonical, decode
from holdfast.engine import audit
from holdfast.engine.category import Category, CategoryRules
from holdfast.engine.handler import Handler
from holdfast.engine.job import Claimed
from holdfast.engine.reference import REF, refs_in
from holdfast.errors import Gone, ResultInvalid, RuleViolated, SchemaInvalid
from holdfast.store import Access, Row, Session, Statements, Tx

if TYPE_CHECKING:
    from holdfast.engine.context import Context

SQL = Statements("holdfast.engine", "category_rules.sql")
JOB_SQL = Statements("holdfast.engine", "job.sql")

NOTE_LIMIT_BYTES = 16 * 1024

_EVENT_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")
_OUR_EVENTS = frozenset(
    {"artifact", "audit", "batch", "category", "dead_letter", "dead_letters", "job", "key"}
    | {"operator", "queue", "rules", "run", "schedule", "tenant", "worker"}
)
_NOTE_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,99}")


def rules_of(context: Context) -> CategoryRules:
    """The rules of the handler, or of the category with which the job was enqueued."""
    return rules_for(context.handler, context.job.category, context.categories)


def rules_for(
    handler: Handler | None, category: str, categories: Mapping[str, Category]
) -> CategoryRules:
    """The rules of *handler*, or of the stored *category* if the handler has none of its own."""
    declared = CategoryRules.GENERAL if handler is None else handler.category.rules
    stored = categories.get(category)
    return stored.rules if declared is CategoryRules.GENERAL and stored is not None else declared


def command_of(job: Claimed) -> str | None:
    """The command that a planning job was enqueued with; the policy decides what it allows."""
    if job.routing_decision is None:
        return None
    found = decode(job.routing_decision)
    command = found.get("command") if isinstance(found, Mapping) else None
    return command if isinstance(command, str) else None


def access_of(context: Context) -> tuple[Access, audit.Entry | None]:
    """What the handler's own transaction may write, and the audit entry for it."""
    match rules_of(context):
        case CategoryRules.AUDIT_ENRICHMENT:
            return Access.AUDIT, None
        case CategoryRules.MAINTENANCE:
            return Access.DOMAIN, None
        case CategoryRules.PLANNING:
            return _planning_access(context)
        case _:
            return Access.WRITE, None


def _planning_access(context: Context) -> tuple[Access, audit.Entry | None]:
    """Read-only access, unless the job has a command and the handler's policy allows it."""
    job, command = context.job, command_of(context.job)
    # A policy may read the database through the job that it decides about.
    if command is None or context.deciding:
        return Access.READ, None
    policy = None if context.handler is None else context.handler.policy
    if policy is None:
        raise RuleViolated("The handler declares no policy for its command.", command=command)
    name = f"{policy.__module__}.{getattr(policy, '__qualname__', type(policy).__qualname__)}"
    context.deciding = True
    try:
        agreed = policy(context, command)
    finally:
        context.deciding = False
    # Only True allows it: a truthy object, such as a coroutine, does not.
    if agreed is not True:
        raise RuleViolated("The policy does not allow the command.", command=command, policy=name)
    detail = {"command": command, "policy": name, "stage": job.stage}
    entry = audit.Entry(job.org_id, job.id, "job.write_authorized", job.attempt, detail)
    return Access.WRITE, entry


class Files(Protocol):
    """The functions of the extension ``artifacts`` that category rules use."""

    def find_missing(
        self, session: Session, org_id: str, refs: Sequence[str], *, job_id: str | None = None
    ) -> Sequence[str]:
        """Those of *refs* for which the tenant, or with *job_id* the job, has no stored file."""
        ...


def _files(context: Context) -> Files:
    found: Files = context.find_extension("artifacts")
    return found


def has_inputs(context: Context) -> bool:
    """Whether there are inputs to check before the handler runs."""
    return REF in context.job.payload and rules_of(context) is CategoryRules.EXPORT


def check_inputs(context: Context) -> None:
    """Raise Gone unless every artifact that the payload refers to is stored, with its checksum."""
    if not has_inputs(context):
        return
    job = context.job
    wanted = refs_in(decode(job.payload))
    if not wanted:
        return
    missing = _files(context).find_missing(context.store, job.org_id, wanted)
    if missing:
        first = min(missing).removeprefix(REF)
        raise Gone("An input does not exist.", artifact_id=first, missing=len(missing))


def delivers(context: Context) -> bool:
    """Whether the result must refer to an artifact."""
    return rules_of(context).delivers_artifact


def check_result(context: Context, value: object, session: Session | None = None) -> None:
    """Raise ResultInvalid unless the result refers to artifacts, and this job stored them."""
    if not delivers(context):
        return
    session, job = session or context.store, context.job
    # The result may also name the job's inputs, but they do not count as results.
    given = refs_in(decode(job.payload)) if REF in job.payload else []
    made = [ref for ref in refs_in(value) if ref not in given]
    if not made:
        raise ResultInvalid("The result refers to no artifact.", reason="no_artifact")
    # Outputs that a replay inherits were stored by the original job.
    taken = set(refs_in(list(job.outputs.values()))) if job.replay_of is not None else set()
    files, own = _files(context), [ref for ref in made if ref not in taken]
    missing = [
        *files.find_missing(session, job.org_id, own, job_id=job.id),
        *files.find_missing(session, job.org_id, [ref for ref in made if ref in taken]),
    ]
    if missing:
        raise ResultInvalid(
            "The result refers to an artifact that this job did not store.",
            reason="artifact_missing",
            artifact_id=missing[0].removeprefix(REF),
        )


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit operations of an audit enrichment job: read, append, annotate an event.

    Each call is a separate transaction under the job's lease, or part of the job's open one. If a
    later attempt repeats an event or a note, it is not written again.
    """

    context: Context

    def events(self, job_id: str) -> list[Row]:
        """The audit events of a job of the same tenant."""
        org_id = self.context.org_id
        return self.context.session.read(
            lambda tx: tx.many(JOB_SQL.list_events, org_id=org_id, job_id=job_id)
        )

    def append(self, name: str, *, subject: str, detail: Mapping[str, Any] | None = None) -> None:
        """Write an event about *subject*, for example ``run_sheet:7``, into this job's timeline."""
        kind = name.partition(".")[0]
        if not _EVENT_NAME.fullmatch(name) or kind in _OUR_EVENTS or len(name) > 100:
            raise SchemaInvalid(
                "An event name must look like 'run_sheet.compared' and must not start with 'job.'."
            )
        row = {
            "name": name,
            "attempt": self.context.attempt,
            "detail": _bounded({"subject": subject[:200], **(detail or {})}),
        }
        self._write(lambda tx, rows: tx.affected(SQL.append_events, events=rows), row)

    def note(self, event_id: int, note: Mapping[str, Any], *, name: str = "note") -> None:
        """Add derived data to an event of this tenant; the event itself is not changed."""
        if not _NOTE_NAME.fullmatch(name):
            raise SchemaInvalid("A note name must be a lower-case word.")
        row = {"event_id": event_id, "name": name, "note": _bounded(note)}
        self._write(lambda tx, rows: tx.affected(SQL.insert_notes, notes=rows), row)

    def _write(self, insert: Callable[[Tx, list[Row]], int], row: Row) -> None:
        context, job = self.context, self.context.job
        if rules_of(context) is not CategoryRules.AUDIT_ENRICHMENT:
            raise RuleViolated("Only an audit enrichment job writes to the audit.")

        context.session.write(lambda tx: insert(tx, [{"org_id": job.org_id, "id": job.id, **row}]))


def _bounded(value: Mapping[str, Any]) -> str:
    try:
        text = canonical(dict(value))
    except BadDocument as exc:
        raise SchemaInvalid("Data written to the audit must be plain JSON.") from exc
    if len(text.encode()) > NOTE_LIMIT_BYTES:
        raise SchemaInvalid("Data written to the audit is limited to 16 KiB.", size=len(text))
    return text
