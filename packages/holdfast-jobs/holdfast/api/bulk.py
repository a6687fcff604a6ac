"""Bulk actions: one step for every dead letter, delivery or job that matches a filter.

A bulk begins with a dry run, which says how many items match. The action carries the same filter
and that count; if the count has changed by more than the caller tolerates, nothing is done.
Otherwise a job of its own acts on all items that match, and the answer names where its progress is.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal, assert_never

from fastapi import Request, Response
from pydantic import Field

from holdfast.api.caller import Caller, CallerOf
from holdfast.api.models import Body, IdempotencyKey, Model, NamedId, Reason
from holdfast.api.paging import Cursor, Limit, Listing
from holdfast.api.problems import ProblemError
from holdfast.api.resource import Resource
from holdfast.operate.authorization import Action
from holdfast.operate.bulk_action import (
    BulkAction,
    BulkRequest,
    CancelAction,
    DeliveryAction,
    LetterAction,
)
from holdfast.operate.bulk_page import BulkCount
from holdfast.operate.dead_letter_input import DeadLetterFilter
from holdfast.operate.delivery_filter import DeliveryFilter
from holdfast.operate.jobs import JobFilter

letters = Resource("dead_letters", path="/dead-letters")
deliveries = Resource("deliveries", path="/deliveries")
jobs = Resource("jobs")
router = Resource("bulk_actions")

_BIG = 2**31 - 1


class LetterFilter(Body):
    """Which dead letters. At least one condition is required."""

    org_id: NamedId | None = None
    job_type: str | None = Field(default=None, max_length=200)
    error_class: str | None = Field(default=None, max_length=200)
    queue: str | None = Field(default=None, max_length=200)
    stage: str | None = Field(default=None, max_length=200)
    kind: str | None = Field(default=None, max_length=50)
    state: str | None = Field(default=None, max_length=50)
    older_than_seconds: int | None = Field(default=None, ge=1, le=10**9)

    def read(self) -> DeadLetterFilter:
        """The filter of the operator API."""
        given: dict[str, Any] = self.model_dump(exclude_none=True)
        if "org_id" in given:
            given["org_id"] = str(given["org_id"])
        if "older_than_seconds" in given:
            given["older_than"] = timedelta(seconds=given.pop("older_than_seconds"))
        return DeadLetterFilter(**given)


class DeliveryConditions(Body):
    """Which deliveries. At least one condition is required."""

    org_id: NamedId | None = None
    state: str | None = Field(default=None, max_length=50)
    channel: str | None = Field(default=None, max_length=200)
    reason: str | None = Field(default=None, max_length=200)
    recipient: str | None = Field(default=None, max_length=200)
    subject: str | None = Field(default=None, max_length=200)

    def read(self) -> DeliveryFilter:
        """The filter of the operator API."""
        given: dict[str, Any] = self.model_dump(exclude_none=True)
        if "org_id" in given:
            given["org_id"] = str(given["org_id"])
        return DeliveryFilter(**given)


class JobConditions(Body):
    """Which waiting and running jobs. At least one condition is required."""

    org_id: NamedId | None = None
    state: Literal["queued", "processing", "batch_submitted"] | None = None
    job_type: str | None = Field(default=None, max_length=200)
    queue: str | None = Field(default=None, max_length=200)
    error_class: str | None = Field(default=None, max_length=200)

    def read(self) -> JobFilter:
        """The filter of the operator API."""
        given: dict[str, Any] = self.model_dump(exclude_none=True)
        if "org_id" in given:
            given["org_id"] = str(given["org_id"])
        return JobFilter(**given)


class Bulk(Body):
    """What all bulk actions have: a dry run first, then the count that it showed."""

    reason: Reason
    dry_run: bool = Field(
        default=True, description=("Report what would change, without changing anything.")
    )
    expected: int | None = Field(
        default=None, ge=0, le=_BIG, description="The count that the dry run showed."
    )
    tolerance: int = Field(
        default=0, ge=0, le=_BIG, description="Allowed difference from the expected count."
    )


class LetterBulk(Bulk):
    """A step for many dead letters, with the arguments of the step.

    ``recover`` takes each item as far through the workflow as its state allows.
    """

    action: Literal[
        "recover", "triage", "remediate", "validate", "replay", "verify", "resolve", "discard"
    ]
    filter: LetterFilter
    kind: str | None = Field(default=None, max_length=50, description="For triage and recover.")
    done: list[str] | None = Field(default=None, max_length=50, description="For remediate.")
    evidence_ref: str | None = Field(default=None, max_length=500, description="For validate.")
    is_safe_to_repeat: bool = Field(default=False, description="For validate.")
    full_restart: bool = Field(default=False, description="For replay and recover.")


class DeliveryBulk(Bulk):
    """A decision about many held or failed deliveries."""

    action: Literal["confirm", "resend", "drop"]
    filter: DeliveryConditions


class JobBulk(Bulk):
    """A cancel of many jobs."""

    filter: JobConditions


class SkippedItems(Model):
    """How many items are skipped, and why."""

    why: str
    items: int


class BulkPlan(Model):
    """What a dry run found."""

    action: str
    dry_run: Literal[True] = True
    matched: int
    ready: int = Field(description="The number of items that the action applies to.")
    is_capped: bool = Field(description="Whether the counting stopped, so that more may match.")
    skipped: list[SkippedItems]


class BulkActionView(Model):
    """A bulk action and its progress. Its job has the same id."""

    id: str
    org_id: str | None = Field(description="The tenant of its items; None for all.")
    subject: str = Field(description="dead_letters, deliveries or jobs.")
    action: str
    filter: str
    reason: str
    actor: str
    state: str = Field(description="queued, processing, completed, failed or canceled.")
    matched: int
    ready: int
    is_capped: bool
    done: int
    skipped: int
    counts: dict[str, int] = Field(description="What became of the items so far.")
    error: str | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None

    @classmethod
    def from_item(cls, found: BulkAction) -> BulkActionView:
        """Render a bulk action of the operator API."""
        given = {name: getattr(found, name) for name in cls.model_fields if name != "actor"}
        actor = f"{found.actor.type}:{found.actor.id}"
        return cls.model_validate({**given, "actor": actor, "counts": dict(found.counts)})


_STARTED: dict[int | str, dict[str, Any]] = {
    202: {
        "description": "The action was started. Location is where its progress is.",
        "model": BulkActionView,
    }
}


@letters.write("/bulk", operation_id="act_on_dead_letters", responses=_STARTED)
def act_on_dead_letters(
    bulk: LetterBulk,
    caller: CallerOf,
    request: Request,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> BulkPlan | BulkActionView:
    """Take one step for every dead letter that matches: a dry run, then a job."""
    wanted = bulk.filter.read()
    if not wanted.given:
        raise _no_condition()
    action = _letter_action(bulk, wanted)
    if bulk.dry_run:
        how: Any = {"reason": bulk.reason, "is_dry_run": True}
        nouns = caller.operator.dead_letters
        if bulk.action == "replay":
            found = nouns.replay_all(wanted, full_restart=bulk.full_restart, **how)
        elif bulk.action == "discard":
            found = nouns.discard_all(wanted, **how)
        else:
            steps = None if bulk.action == "recover" else [action.action]
            given: Any = {
                "kind": action.kind,
                "done": action.done,
                "evidence_ref": action.evidence_ref,
            }
            found = nouns.recover(wanted, steps=steps, **given, **how)
        skipped = [(one.why, one.letters) for one in found.left_out]
        return _plan(bulk.action, BulkCount(found.matched, found.ready), skipped)
    return _start(caller, bulk, action, request, response, idempotency_key)


def _letter_action(bulk: LetterBulk, wanted: DeadLetterFilter) -> LetterAction:
    """The action of the operator API. Raises ProblemError for a missing argument."""
    given: dict[str, Any] = {}
    name = str(bulk.action)
    match bulk.action:
        case "replay":
            given["full_restart"] = bulk.full_restart
        case "triage":
            given["kind"] = _required("kind", bulk.kind)
        case "remediate":
            given["done"] = _required("done", bulk.done)
        case "validate":
            _required("is_safe_to_repeat", bulk.is_safe_to_repeat or None)
            given["evidence_ref"] = _required("evidence_ref", bulk.evidence_ref)
        case "verify":
            name = str(Action.VERIFY_REPLAY)
        case "recover":
            given |= {"kind": bulk.kind, "full_restart": bulk.full_restart}
        case "discard" | "resolve":
            pass
        case _:
            assert_never(bulk.action)
    return LetterAction(name, wanted, bulk.reason, **given)


@deliveries.write("/bulk", operation_id="act_on_deliveries", responses=_STARTED)
def act_on_deliveries(
    bulk: DeliveryBulk,
    caller: CallerOf,
    request: Request,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> BulkPlan | BulkActionView:
    """Confirm, resend or drop every held or failed delivery that matches: a dry run, then a job."""
    wanted = bulk.filter.read()
    if not wanted.given:
        raise _no_condition()
    if bulk.dry_run:
        nouns = caller.operator.deliveries
        verbs = {"confirm": nouns.confirm_all, "resend": nouns.resend_all, "drop": nouns.drop_all}
        found = verbs[bulk.action](wanted, reason=bulk.reason, is_dry_run=True)
        return _plan(bulk.action, BulkCount(found.matched, found.ready))
    action = DeliveryAction(f"{bulk.action}_delivery", wanted, bulk.reason)
    return _start(caller, bulk, action, request, response, idempotency_key)


@jobs.write("/cancel", operation_id="cancel_jobs", responses=_STARTED)
def cancel_jobs(
    bulk: JobBulk,
    caller: CallerOf,
    request: Request,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> BulkPlan | BulkActionView:
    """Cancel every waiting and running job that matches: a dry run, then a job."""
    wanted = bulk.filter.read()
    if not str(wanted):
        raise _no_condition()
    if bulk.dry_run:
        found = caller.operator.jobs.cancel_all(wanted, reason=bulk.reason, is_dry_run=True)
        return _plan("cancel", BulkCount(found.matched, found.matched, found.is_capped))
    action = CancelAction(wanted, bulk.reason)
    return _start(caller, bulk, action, request, response, idempotency_key)


@router.read("", operation_id="list_bulk_actions", as_tenant=True)
def list_bulk_actions(
    caller: CallerOf, limit: Limit = 50, cursor: Cursor = None
) -> Listing[BulkActionView]:
    """List bulk actions, newest first. A page may be short although there are more."""
    pages = caller.pages("bulk_actions")
    found = caller.operator.bulk_actions.list(limit=limit, before=pages.start(cursor))
    return Listing[BulkActionView].model_validate(pages.page(found, BulkActionView.from_item))


@router.read(
    "/{bulk_action_id}",
    operation_id="get_bulk_action",
    as_tenant=True,
    also=("dead_letters", "deliveries", "jobs"),
)
def get_bulk_action(bulk_action_id: str, caller: CallerOf) -> BulkActionView:
    """Return a bulk action and its progress."""
    return BulkActionView.from_item(caller.operator.bulk_actions.get(bulk_action_id))


def _start(
    caller: Caller,
    bulk: Bulk,
    action: BulkRequest,
    request: Request,
    response: Response,
    idempotency_key: str | None,
) -> BulkActionView:
    """Start the job, and let this process run it if no worker does."""
    if bulk.expected is None:
        raise ProblemError(
            422,
            "count_required",
            "A bulk action requires the count from its dry run.",
            "Send dry_run: true first, then expected with its count.",
            errors=[("expected", "is required unless dry_run is true")],
        )
    made = caller.operator.bulk_actions.start(
        action,
        expected=bulk.expected,
        tolerance=bulk.tolerance,
        idempotency_key=idempotency_key,
        request_id=caller.request_id,
    )
    request.app.state.bulk_runner.wake()
    response.status_code = 202
    root = request.scope.get("root_path", "")
    response.headers["Location"] = f"{root}/v1/bulk-actions/{made.id}"
    return BulkActionView.from_item(made)


def _required(name: str, value: Any) -> Any:
    if value is None:
        raise ProblemError(
            422,
            "invalid_request",
            "Fields of the request are invalid. Nothing was done.",
            "Correct the listed fields.",
            errors=[(name, "is required for this action")],
        )
    return value


def _no_condition() -> ProblemError:
    return ProblemError(
        422,
        "filter_required",
        "An empty filter would match everything.",
        "Name at least one condition.",
        errors=[("filter", "must have at least one condition")],
    )


def _plan(action: str, found: BulkCount, skipped: list[tuple[str, int]] | None = None) -> BulkPlan:
    listed = [SkippedItems(why=why, items=items) for why, items in skipped or ()]
    return BulkPlan(
        action=action,
        matched=found.matched,
        ready=found.ready,
        is_capped=found.is_capped,
        skipped=listed,
    )
