"""Why a job of the batch lane waits: for a submitter, for a provider, or for a person. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from holdfast.clock import read_instant
from holdfast.document import decode
from holdfast.operate.explanation import Explanation, Reason, Situation, said
from holdfast.store import Row
from holdfast_llm.batch import budget
from holdfast_llm.batch.budget import limit_of
from holdfast_llm.batch.price import Prices, to_usd
from holdfast_llm.batch.release import NO_ACCOUNT
from holdfast_llm.provider.route import ExecutionMode

SUBMITTER = "rewrite_batch_submitter"
COLLECTOR = "rewrite_batch_collector"
# Of the complaint rewrite; it names every queue too, and takes no job.
ORCHESTRATOR = "rewrite_orchestrator"


def why_kept_back(s: Situation) -> Explanation | None:
    """What keeps every job of its account or its tenant out of the lane, if anything does."""
    return _shut(s) or _never_in_budget(s) or _over_budget(s)


def _shut(s: Situation) -> Explanation | None:
    circuit = s.circuit
    if circuit is None:
        return None
    until = read_instant(circuit["open_until"])
    return s.explain(
        Reason.CIRCUIT_OPEN,
        f"The account at {circuit['provider']} refuses everything since"
        f" {said(read_instant(circuit['opened_at']))} with {circuit['error_code']}; nothing is sent"
        f" to it until {said(until)}.",
        "Somebody mends its key, quota or credit; no attempt is lost meanwhile.",
        until,
        provider=circuit["provider"],
        error_code=circuit["error_code"],
        times=circuit["times"],
    )


def why_without_account(s: Situation, due_at: datetime | None) -> Explanation | None:
    """Whether it was last given back because its account could not be used there."""
    why, detail = s.last("job.enqueued", "job.retried", "job.snoozed", "job.released")
    if why is None or detail.get("reason") != NO_ACCOUNT:
        return None
    provider = decode(s.job["routing_decision"] or "{}").get("provider")
    return s.explain(
        Reason.NO_ACCOUNT,
        f"When it was last taken, at {said(read_instant(why['at']))}, its account at {provider}"
        " could not be used there: no such provider, or no credential.",
        "Somebody brings what is missing, which holdfast doctor says where the worker runs; it is"
        " taken again by itself, and no attempt is lost.",
        due_at,
        provider=provider,
    )


def _never_in_budget(s: Situation) -> Explanation | None:
    """Whether it was last released because no day's budget is enough for it."""
    limit = limit_of(s.settings, str(s.job["org_id"]))
    why, detail = s.last("job.enqueued", "job.retried", "job.snoozed", "job.released")
    if why is None or limit is None:
        return None
    route = decode(s.job["routing_decision"] or "{}")
    model = f"{route.get('model')} at {route.get('provider')}"
    match detail.get("reason"):
        case budget.EXCEEDS_BUDGET:
            return s.explain(
                Reason.EXCEEDS_BUDGET,
                "It may cost more than its tenant may spend in a whole day,"
                f" {to_usd(limit)} dollars: it never fits.",
                "Raise the budget ([budgets] in holdfast.toml), lower max_output_tokens or the"
                " input, or cancel the job: holdfast jobs cancel",
                usd_per_day=to_usd(limit),
                provider=route.get("provider"),
                model=route.get("model"),
            )
        case budget.UNPRICED if not _has_price(s, route):
            return s.explain(
                Reason.UNPRICED,
                f"Its tenant has a budget, and {model} has no price: the budget cannot be kept.",
                "Add the price of the model: [[prices]] in holdfast.toml. No attempt is lost.",
                provider=route.get("provider"),
                model=route.get("model"),
            )
    return None


def _has_price(s: Situation, route: Mapping[str, Any]) -> bool:
    mode = route.get("execution_mode") or ExecutionMode.BATCH
    of = str(route.get("provider")), str(route.get("model")), str(mode)
    return Prices(s.settings.prices).of(*of, s.now.date()) is not None


def _over_budget(s: Situation) -> Explanation | None:
    if s.held_until is None:
        return None
    return s.explain(
        Reason.OVER_BUDGET,
        f"Its tenant has spent its budget of the day; it waits until {said(s.held_until)}.",
        "Nothing: it goes on by itself. Or the budget is raised: [budgets] in holdfast.toml.",
        s.held_until,
    )


def why_unsubmitted(s: Situation) -> Explanation:
    """The one reason of a queued job that is due, and that nothing keeps out of the lane."""
    due_at = s.runs.get(SUBMITTER)
    if due_at is None:
        return s.explain(
            Reason.AWAITS_RUN,
            f"It waits for the batch lane, and {SUBMITTER} is not scheduled.",
            f"Perform it: holdfast run {SUBMITTER} --reason …",
            queue=s.queue,
            runs=[SUBMITTER],
        )
    return s.explain(
        Reason.AWAITS_RUN,
        f"{SUBMITTER} hands it to a provider; the next one is due at {said(due_at)}.",
        "Nothing, if a dispatcher lives: holdfast worker --dispatch",
        due_at,
        queue=s.queue,
        runs=[SUBMITTER],
    )


def why_submitted(s: Situation) -> Explanation:
    """The one reason of a job that is in a provider's batch."""
    place = s.place
    if place is None:
        # Only a row that came past the database's own rules looks like this.
        return s.explain(
            Reason.HELD,
            f"It names provider batch {s.job['provider_batch_id']}, and no batch under way has it.",
            "Look into it: holdfast verify --only I22",
            provider_batch_id=s.job["provider_batch_id"],
        )
    if place["state"] == "quarantined":
        return _quarantined(s, place)
    facts = _facts(place)
    asked, deadline = _at(place, "next_at"), _at(place, "deadline_at")
    if place["error_code"] == NO_ACCOUNT:
        return s.explain(
            Reason.NO_ACCOUNT,
            f"Its batch {place['batch_id']} at {place['provider']} cannot be asked about: whoever"
            " collects has not the credential that it was sent with.",
            "Somebody brings that credential back, or a newer one of the same account; some time"
            f" after {said(deadline)} the batch is quarantined.",
            asked,
            **facts,
        )
    if place["state"] == "ended":
        return s.explain(
            Reason.AWAITS_BATCH,
            f"Its batch {place['batch_id']} at {place['provider']} has ended; its answer is being"
            " read.",
            f"{COLLECTOR} reads on from {said(asked)}.",
            asked,
            **facts,
        )
    word = f" ({place['provider_status']})" if place["provider_status"] else ""
    return s.explain(
        Reason.AWAITS_BATCH,
        f"In batch {place['batch_id']} at {place['provider']}{word} since"
        f" {said(_at(place, 'submitted_at'))}, with {place['items']} items.",
        f"{COLLECTOR} asks again from {said(asked)} on; at {said(deadline)} the batch is canceled"
        " and what there is collected."
        if deadline is not None
        else f"{COLLECTOR} asks again from {said(asked)} on.",
        asked,
        **facts,
    )


def why_held(s: Situation, place: Row) -> Explanation:
    """The one reason of a job whose batch is on its way to the provider."""
    if place["state"] == "quarantined":
        return _quarantined(s, place)
    doubt = "it is not known yet whether the provider has it"
    if place["state"] != "creating":
        doubt = "the provider does not have it yet"
    line = f"Its batch {place['batch_id']} at {place['provider']} is {place['state']}: {doubt}."
    leased_until, asked = _at(place, "lease_expires_at"), _at(place, "next_at")
    if leased_until is not None and leased_until > s.now:
        then = f"Nothing: {SUBMITTER} {place['lease_owner']} is sending it now."
        return s.explain(Reason.HELD, line, then, leased_until, **_facts(place))
    return s.explain(
        Reason.HELD,
        line,
        f"{SUBMITTER} goes on with it from {said(asked)} on, and asks the provider before it sends"
        " anything again.",
        asked,
        **_facts(place),
    )


def _quarantined(s: Situation, place: Row) -> Explanation:
    return s.explain(
        Reason.QUARANTINED,
        f"Its batch {place['batch_id']} at {place['provider']} is quarantined since"
        f" {said(_at(place, 'updated_at'))} ({place['error_code'] or 'no code'}).",
        f"Somebody looks and decides: holdfast batches show {place['batch_id']}",
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
