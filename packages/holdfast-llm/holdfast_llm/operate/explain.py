"""Explain why a batch job waits: for a submitter, for a provider, or for an operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from holdfast.clock import read_instant
from holdfast.document import decode
from holdfast.engine.job import BATCH_KEY, State
from holdfast.operate.explanation import (
    NO_REASONS,
    Explanation,
    ExtensionReasons,
    Reason,
    Situation,
    utc,
)
from holdfast.operate.waiting import why_paused
from holdfast.store import Row, Statements, Tx
from holdfast_llm.batch import budget, step_budget
from holdfast_llm.batch.budget import limit_of
from holdfast_llm.batch.price import Prices, to_usd
from holdfast_llm.batch.release import NO_ACCOUNT
from holdfast_llm.provider.route import ExecutionMode
from holdfast_llm.settings import collector_of, submitter_of

SQL = Statements("holdfast_llm.operate", "explain.sql")


@dataclass(frozen=True, slots=True)
class Batched(Situation):
    """The known facts about a job that is sent to a provider."""

    # Its place in an open batch at a provider.
    place: Row | None = None
    # The circuit of its account, if it is open.
    circuit: Row | None = None
    # The time at which its tenant's budget is available again.
    held_until: datetime | None = None
    # The time of the next submitter run.
    submits_at: datetime | None = None

    @property
    def submitter(self) -> str:
        """The run that submits it."""
        return submitter_of(self.settings)

    @property
    def collector(self) -> str:
        """The run that collects its answer."""
        return collector_of(self.settings)


def explain_batched(tx: Tx, situation: Situation) -> ExtensionReasons:
    """The reasons of a job that waits for a batch, is in one, or has no account."""
    known = {item.name: getattr(situation, item.name) for item in fields(Situation)}
    if situation.state is State.QUEUED and situation.job["limit_key"] == BATCH_KEY:
        known |= _read_batch_facts(tx, situation)
    elif situation.state in (State.PROCESSING, State.BATCH_SUBMITTED):
        own = {"org_id": situation.job["org_id"], "id": situation.job["id"]}
        known["place"] = tx.maybe(SQL.find_place, **own)
    return reasons_of(Batched(**known))


def reasons_of(s: Batched) -> ExtensionReasons:
    """The reasons, from the known facts. Pure."""
    match s.state:
        case State.QUEUED:
            is_batched = s.job["limit_key"] == BATCH_KEY
            # A direct call is kept back by its budget only; it is released with the reason.
            kept = (why_paused(s) or why_kept_back(s)) if is_batched else _never_in_budget(s)
            before = kept or why_without_account(s, s.at("not_before_at"))
            return ExtensionReasons(before, why_unsubmitted(s) if is_batched else None)
        case State.PROCESSING if s.place is not None:
            return ExtensionReasons(instead=why_held(s, s.place))
        case State.BATCH_SUBMITTED:
            return ExtensionReasons(instead=why_submitted(s))
        case _:
            return NO_REASONS


def _read_batch_facts(tx: Tx, waiting: Situation) -> dict[str, Any]:
    """Read the facts that may keep a batch job from being submitted."""
    org_id = waiting.job["org_id"]
    decision = decode(waiting.job["routing_decision"] or "{}")
    held = budget.spent_over_budget(tx, waiting.settings, [org_id])
    due_at = tx.one(SQL.find_next_run, name=submitter_of(waiting.settings))["next_fire_at"]
    return {
        "circuit": tx.maybe(SQL.find_circuit, provider=decision.get("provider")),
        "held_until": held.get(org_id),
        "submits_at": None if due_at is None else read_instant(due_at),
    }


def why_kept_back(s: Batched) -> Explanation | None:
    """What blocks every job of its account or its tenant, if anything does."""
    return _shut(s) or _never_in_budget(s) or _over_budget(s)


def _shut(s: Batched) -> Explanation | None:
    circuit = s.circuit
    if circuit is None:
        return None
    until = read_instant(circuit["open_until"])
    return s.explain(
        Reason.CIRCUIT_OPEN,
        f"The account at {circuit['provider']} has rejected all requests since"
        f" {utc(read_instant(circuit['opened_at']))} with {circuit['error_code']}; nothing is sent"
        f" until {utc(until)}.",
        "Fix its key, quota or credit. Waiting does not count as an attempt.",
        until,
        provider=circuit["provider"],
        error_code=circuit["error_code"],
        times=circuit["times"],
    )


def why_without_account(s: Batched, due_at: datetime | None) -> Explanation | None:
    """Whether it was last released because its account was unusable there."""
    why, detail = s.last("job.enqueued", "job.retried", "job.snoozed", "job.released")
    if why is None or detail.get("reason") != NO_ACCOUNT:
        return None
    provider = decode(s.job["routing_decision"] or "{}").get("provider")
    return s.explain(
        Reason.NO_ACCOUNT,
        f"At the last claim, {utc(read_instant(why['at']))}, its account at {provider} was not"
        " usable: unknown provider, or no credential.",
        "Configure what is missing; holdfast doctor on the worker's machine names it. The job is"
        " then claimed again without counting an attempt.",
        due_at,
        provider=provider,
    )


def _never_in_budget(s: Batched) -> Explanation | None:
    """Whether it was last released because of a budget that does not reset, or without a price."""
    limit = limit_of(s.settings, str(s.job["org_id"]))
    why, detail = s.last("job.enqueued", "job.retried", "job.snoozed", "job.released")
    if why is None:
        return None
    route = decode(s.job["routing_decision"] or "{}")
    model = f"{route.get('model')} at {route.get('provider')}"
    match detail.get("reason"):
        case budget.EXCEEDS_BUDGET if limit is not None:
            return s.explain(
                Reason.EXCEEDS_BUDGET,
                f"Its maximum cost exceeds the tenant's daily budget of {to_usd(limit)} USD.",
                "Raise the budget ([budgets] in holdfast.toml), lower max_output_tokens or the"
                " input, or cancel the job: holdfast jobs cancel",
                usd_per_day=to_usd(limit),
                provider=route.get("provider"),
                model=route.get("model"),
            )
        case budget.UNPRICED if not _has_price(s, route):
            return s.explain(
                Reason.UNPRICED,
                f"{model} has no price, so the budget cannot be enforced.",
                "Add the price of the model: [[prices]] in holdfast.toml. Waiting does not count"
                " as an attempt.",
                provider=route.get("provider"),
                model=route.get("model"),
            )
        case step_budget.STEP_BUDGET:
            return s.explain(
                Reason.OVER_BUDGET,
                "Open calls of its workflow step may use the rest of the budget of the step.",
                "Nothing: it continues when they have ended and cost less. Or raise the budget:"
                " holdfast workflows budget",
            )
    return None


def _has_price(s: Batched, route: Mapping[str, Any]) -> bool:
    mode = route.get("execution_mode") or ExecutionMode.BATCH
    of = str(route.get("provider")), str(route.get("model")), str(mode)
    return Prices(s.settings.prices).find(*of, s.now.date()) is not None


def _over_budget(s: Batched) -> Explanation | None:
    if s.held_until is None:
        return None
    return s.explain(
        Reason.OVER_BUDGET,
        f"Its tenant has spent its daily budget; it waits until {utc(s.held_until)}.",
        "Nothing: it continues when the budget resets. Or raise the budget: [budgets] in"
        " holdfast.toml.",
        s.held_until,
    )


def why_unsubmitted(s: Batched) -> Explanation:
    """The reason of a queued job that is due and not blocked."""
    due_at = s.submits_at
    if due_at is None:
        return s.explain(
            Reason.AWAITS_RUN,
            f"It waits for batch processing, but {s.submitter} is not scheduled.",
            f"Start it: holdfast run {s.submitter} --reason …",
            queue=s.queue,
            runs=[s.submitter],
        )
    return s.explain(
        Reason.AWAITS_RUN,
        f"{s.submitter} submits it; the next run is due at {utc(due_at)}.",
        "Nothing, if a dispatcher is running: holdfast worker --dispatch",
        due_at,
        queue=s.queue,
        runs=[s.submitter],
    )


def why_submitted(s: Batched) -> Explanation:
    """The reason of a job that is in a provider's batch."""
    place = s.place
    if place is None:
        # The database constraints prevent this state.
        return s.explain(
            Reason.HELD,
            f"It refers to provider batch {s.job['provider_batch_id']}, but no open batch has that"
            " id.",
            "Investigate: holdfast verify --only I22",
            provider_batch_id=s.job["provider_batch_id"],
        )
    if place["state"] == "quarantined":
        return _quarantined(s, place)
    facts = _facts(place)
    asked, deadline = _at(place, "next_at"), _at(place, "deadline_at")
    if place["error_code"] == NO_ACCOUNT:
        return s.explain(
            Reason.NO_ACCOUNT,
            f"Its batch {place['batch_id']} at {place['provider']} cannot be polled: the"
            " collector does not have the credential that it was sent with.",
            "Restore that credential, or configure a newer one of the same account. Some time"
            f" after {utc(deadline)} the batch is quarantined.",
            asked,
            **facts,
        )
    if place["state"] == "ended":
        return s.explain(
            Reason.AWAITS_BATCH,
            f"Its batch {place['batch_id']} at {place['provider']} has ended; its answer is being"
            " read.",
            f"{s.collector} continues at {utc(asked)}.",
            asked,
            **facts,
        )
    word = f" ({place['provider_status']})" if place["provider_status"] else ""
    return s.explain(
        Reason.AWAITS_BATCH,
        f"In batch {place['batch_id']} at {place['provider']}{word} since"
        f" {utc(_at(place, 'submitted_at'))}, with {place['items']} items.",
        f"{s.collector} polls again from {utc(asked)}; at {utc(deadline)} the batch is canceled"
        " and its available results are collected."
        if deadline is not None
        else f"{s.collector} polls again from {utc(asked)}.",
        asked,
        **facts,
    )


def why_held(s: Batched, place: Row) -> Explanation:
    """The reason of a job whose batch is not submitted yet."""
    if place["state"] == "quarantined":
        return _quarantined(s, place)
    doubt = "submission is not confirmed yet"
    if place["state"] != "creating":
        doubt = "not submitted yet"
    line = f"Its batch {place['batch_id']} at {place['provider']} is {place['state']}: {doubt}."
    leased_until, asked = _at(place, "lease_expires_at"), _at(place, "next_at")
    if leased_until is not None and leased_until > s.now:
        then = f"Nothing. {s.submitter} {place['lease_owner']} is submitting it."
        return s.explain(Reason.HELD, line, then, leased_until, **_facts(place))
    return s.explain(
        Reason.HELD,
        line,
        f"{s.submitter} continues at {utc(asked)} and looks up the batch before it submits again.",
        asked,
        **_facts(place),
    )


def _quarantined(s: Batched, place: Row) -> Explanation:
    return s.explain(
        Reason.QUARANTINED,
        f"Its batch {place['batch_id']} at {place['provider']} has been quarantined since"
        f" {utc(_at(place, 'updated_at'))} ({place['error_code'] or 'no code'}).",
        f"An operator decides: holdfast batches show {place['batch_id']}",
        **_facts(place),
    )


def _facts(place: Row) -> dict[str, Any]:
    return {
        "batch_id": place["batch_id"],
        "batch_state": place["state"],
        "provider": place["provider"],
        "model": place["model"],
        "provider_batch_id": place["provider_batch_id"],
        "items": place["items"],
        "item": place["batch_item_index"],
        "submitted_at": _at(place, "submitted_at"),
        "deadline_at": _at(place, "deadline_at"),
    }


def _at(place: Row, name: str) -> datetime | None:
    value = place[name]
    return None if value is None else read_instant(value)
