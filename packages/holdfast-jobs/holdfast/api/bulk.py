"""Bulk actions: one step for every dead letter or delivery that matches a filter.

A bulk begins with a dry run, which says how many items match. The action carries the same filter
and that count; if the count has changed by more than the caller tolerates, nothing is done. A
request processes up to 1,000 items and says how many remain, so that a client repeats it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal, assert_never

from pydantic import Field

from holdfast.api.caller import Caller, CallerOf
from holdfast.api.models import Body, Model, NamedId, Reason
from holdfast.api.problems import ProblemError
from holdfast.api.resource import Resource
from holdfast.operate.authorization import Action
from holdfast.operate.dead_letter_input import DeadLetterFilter
from holdfast.operate.delivery_filter import DeliveryFilter

letters = Resource("dead_letters", path="/dead-letters")
deliveries = Resource("deliveries", path="/deliveries")

MOST_ITEMS = 1_000
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


class SkippedItems(Model):
    """How many items were skipped, and why."""

    why: str
    items: int


class BulkResult(Model):
    """What a bulk did, or would do."""

    action: str
    dry_run: bool
    matched: int
    ready: int
    done: int
    remaining: int = Field(description="Number of matching items left for the next request.")
    skipped: list[SkippedItems]
    stopped: str | None


@letters.write("/bulk", operation_id="act_on_dead_letters")
def act_on_dead_letters(bulk: LetterBulk, caller: CallerOf) -> BulkResult:
    """Take one step for every dead letter that matches."""
    wanted = bulk.filter.read()
    if not wanted.given:
        raise _no_condition()
    act = _letter_action(caller, bulk, wanted)
    preview = act(True)
    if bulk.dry_run:
        return _result(preview)
    _check_count(bulk, preview.matched)
    return _result(act(False))


def _letter_action(
    caller: Caller, bulk: LetterBulk, wanted: DeadLetterFilter
) -> Callable[[bool], Any]:
    """Return the function that performs the bulk, or a dry run of it."""
    nouns = caller.operator.dead_letters
    how: Any = {"reason": bulk.reason, "limit": MOST_ITEMS}
    match bulk.action:
        case "replay":
            how["full_restart"] = bulk.full_restart
            return lambda dry: nouns.replay_all(wanted, is_dry_run=dry, **how)
        case "discard":
            return lambda dry: nouns.discard_all(wanted, is_dry_run=dry, **how)
        case "triage":
            how |= {"steps": [Action.TRIAGE], "kind": _required("kind", bulk.kind)}
        case "remediate":
            how |= {"steps": [Action.REMEDIATE], "done": _required("done", bulk.done)}
        case "validate":
            _required("is_safe_to_repeat", bulk.is_safe_to_repeat or None)
            evidence = _required("evidence_ref", bulk.evidence_ref)
            how |= {"steps": [Action.VALIDATE], "evidence_ref": evidence}
        case "verify":
            how["steps"] = [Action.VERIFY_REPLAY]
        case "resolve":
            how["steps"] = [Action.RESOLVE]
        case "recover":
            how |= {"kind": bulk.kind, "full_restart": bulk.full_restart}
        case _:
            assert_never(bulk.action)
    return lambda dry: nouns.recover(wanted, is_dry_run=dry, **how)


@deliveries.write("/bulk", operation_id="act_on_deliveries")
def act_on_deliveries(bulk: DeliveryBulk, caller: CallerOf) -> BulkResult:
    """Confirm, resend or drop every held or failed delivery that matches."""
    wanted = bulk.filter.read()
    if not wanted.given:
        raise _no_condition()
    nouns = caller.operator.deliveries
    verbs = {"confirm": nouns.confirm_all, "resend": nouns.resend_all, "drop": nouns.drop_all}
    verb = verbs[bulk.action]
    preview = verb(wanted, reason=bulk.reason, is_dry_run=True, limit=MOST_ITEMS)
    if bulk.dry_run:
        return _result(preview)
    _check_count(bulk, preview.matched)
    return _result(verb(wanted, reason=bulk.reason, is_dry_run=False, limit=MOST_ITEMS))


def _check_count(bulk: Bulk, matched: int) -> None:
    expected = bulk.expected
    if expected is None:
        raise ProblemError(
            422,
            "count_required",
            "A bulk action requires the count from its dry run.",
            "Send dry_run: true first, then expected with its count.",
            errors=[("expected", "is required unless dry_run is true")],
        )
    if abs(matched - expected) > bulk.tolerance:
        raise ProblemError(
            409,
            "count_changed",
            f"The filter matches {matched} items now, not {expected}. Nothing was done.",
            "Look at the items again, then repeat the action with the new count.",
        )


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


def _result(answer: Any) -> BulkResult:
    skipped = [
        SkippedItems(why=one.why, items=one.letters) for one in getattr(answer, "left_out", ())
    ]
    return BulkResult(
        action=answer.action,
        dry_run=answer.is_dry_run,
        matched=answer.matched,
        ready=answer.ready,
        done=answer.done,
        remaining=max(0, answer.ready - answer.done),
        skipped=skipped,
        stopped=getattr(answer, "stopped", None),
    )
