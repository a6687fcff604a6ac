"""Why a waiting job waits. Pure.

The reasons are checked in order of precedence: its due time, the pause of its queue, a worker for
it, the caps, the rate, and finally its position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from holdfast.clock import read_instant
from holdfast.engine.worker.heartbeat import serving
from holdfast.operate.explanation import (
    NO_REASONS,
    Explanation,
    ExtensionReasons,
    Reason,
    Situation,
    utc,
)
from holdfast.operate.undelivered import why_undelivered
from holdfast.store import Row

# The maximum position that is counted.
AHEAD = 1_000


def why_waiting(s: Situation, told: ExtensionReasons = NO_REASONS) -> Explanation:
    """Return the reason of a queued job; *told* contains the reasons of an extension."""
    found = _why_waiting(s, told)
    deadline_at = s.at("deadline_at")
    if deadline_at is None:
        return found
    until = found.until
    if until is None or deadline_at < until:
        until = deadline_at
    return replace(
        found,
        line=f"{found.line} Its deadline is {utc(deadline_at)}: if it has not started by then, it"
        " is canceled.",
        until=until,
        facts={**found.facts, "deadline_at": deadline_at},
    )


def _why_waiting(s: Situation, told: ExtensionReasons) -> Explanation:
    job, due_at = s.job, s.at("not_before_at")
    if job["cancel_requested_at"] is not None:
        return s.explain(
            Reason.CANCEL_REQUESTED,
            f"A cancel was requested at {utc(s.at('cancel_requested_at'))}; the job is queued"
            " again.",
            "It is canceled when a worker claims it; a second cancel ends it at once.",
            cancel_requested_at=s.at("cancel_requested_at"),
        )
    why, detail = s.last("job.enqueued", "job.retried", "job.snoozed", "job.released")
    if told.before is not None:
        return told.before
    if due_at is not None and due_at > s.now:
        if detail.get("reason") == "unknown_job_type":
            return _unknown_type(s, due_at)
        undelivered = why_undelivered(s, due_at)
        if undelivered is not None:
            return undelivered
        return _not_due(s, due_at, "" if why is None else why["name"], detail)
    if told.instead is not None:
        return told.instead
    return (
        why_paused(s) or _without_worker(s) or _capped(s) or _rated(s) or _in_line(s, waited=due_at)
    )


def _not_due(s: Situation, due_at: datetime, why: str, detail: Mapping[str, Any]) -> Explanation:
    job = s.job
    match why:
        case "job.retried":
            because = "retry"
            told = (
                f"attempt {job['attempt_count']} of {job['max_attempts']} of stage {job['stage']!r}"
                f" failed with {job['error_class']}"
            )
        case "job.snoozed":
            because, told = "snoozed", "snoozed by its handler"
        case "job.released":
            because = "released"
            told = f"released by a worker before it ran ({detail.get('reason', 'no reason')})"
        case _:
            because, told = "scheduled", "enqueued for later"
    then = "Nothing. A worker claims it when it is due."
    if job["queue"] != job["origin_queue"]:
        then = f"Nothing. It moves to {job['origin_queue']} when it is due."
    return s.explain(
        Reason.NOT_DUE,
        f"Not due until {utc(due_at)}: {told}.",
        then,
        due_at,
        because=because,
        not_before_at=due_at,
        attempt_count=job["attempt_count"],
        max_attempts=job["max_attempts"],
        error_class=job["error_class"],
    )


def why_paused(s: Situation) -> Explanation | None:
    """Return the reason if an operator has paused its queue."""
    paused_at = s.limits["paused_at"]
    if paused_at is None:
        return None
    who, why = s.limits["paused_by"], s.limits["pause_reason"]
    return s.explain(
        Reason.QUEUE_PAUSED,
        f"Queue {s.queue} was paused at {utc(read_instant(paused_at))} by {who}: {why}",
        f"Resume it: holdfast queues resume {s.queue} --reason …",
        queue=s.queue,
        paused_at=read_instant(paused_at),
        paused_by=who,
        pause_reason=why,
    )


def _without_worker(s: Situation) -> Explanation | None:
    able = serving(s.workers, s.queue)
    if any(s.job["job_type"] in worker.job_types for worker in able):
        return None
    if able:
        return _unknown_type(s, None)
    if s.runs:
        return _awaits_run(s)
    known = [worker for worker in s.workers if s.queue in worker.queues]
    gone = sum(worker.is_gone for worker in known)
    off = sum(worker.is_off and not worker.is_gone for worker in known)
    draining = len(known) - gone - off
    seen = [
        f"{count} {word}"
        for count, word in ((gone, "gone"), (draining, "draining"), (off, "with a wrong clock"))
        if count
    ]
    return s.explain(
        Reason.NO_WORKER,
        f"No worker serves {s.queue}" + (f" ({', '.join(seen)})." if seen else "."),
        f"Start one: holdfast --app MODULE:NAME worker --queues {s.queue}",
        queue=s.queue,
        gone=gone,
        draining=draining,
        wrong_clock=off,
    )


def _awaits_run(s: Situation) -> Explanation:
    due = {name: at for name, at in s.runs.items() if at is not None}
    if not due:
        names = ", ".join(sorted(s.runs))
        return s.explain(
            Reason.AWAITS_RUN,
            f"Only runs serve {s.queue} ({names}), and none is scheduled.",
            f"Start one: holdfast run {min(s.runs)} --reason …",
            queue=s.queue,
            runs=sorted(s.runs),
        )
    name = min(due, key=lambda name: (due[name], name))
    return s.explain(
        Reason.AWAITS_RUN,
        f"Run {name} claims it; the next run is due at {utc(due[name])}.",
        "Nothing, if a dispatcher is running: holdfast worker --dispatch",
        due[name],
        queue=s.queue,
        runs=sorted(s.runs),
    )


def _unknown_type(s: Situation, due_at: datetime | None) -> Explanation:
    patience = timedelta(seconds=s.settings.unknown_type_patience_seconds)
    created_at = s.at("created_at")
    dead_at = None if created_at is None else created_at + patience
    return s.explain(
        Reason.UNKNOWN_TYPE,
        f"No worker serving {s.queue} has the job type {s.job['job_type']} registered.",
        f"Start a worker whose application declares it; from {utc(dead_at)} on the next claim"
        " dead-letters it.",
        due_at,
        queue=s.queue,
        job_type=s.job["job_type"],
        workers=len(serving(s.workers, s.queue)),
        dead_letter_from=dead_at,
    )


def _capped(s: Situation) -> Explanation | None:
    key, running = s.job["limit_key"], s.running
    caps = (
        (Reason.TENANT_CAP, "max_running_per_tenant", "of_tenant_here", f"its tenant in {s.queue}"),
        (Reason.TENANT_CAP, "max_running_of_tenant", "of_tenant", "its tenant"),
        (Reason.QUEUE_CAP, "max_running", "in_queue", f"queue {s.queue}"),
        (Reason.KEY_CAP, "max_running_of_key", "of_key", f"key {key}"),
    )
    for reason, limit, count, whose in caps:
        most = s.limits[limit]
        if most is not None and running[count] >= most:
            return s.explain(
                reason,
                f"{running[count]} of at most {most} jobs of {whose} are running.",
                "Wait for one to finish, or raise the limit: holdfast queues set, tenant or key",
                cap=limit,
                running=running[count],
                most=most,
                queue=s.queue,
                limit_key=key,
            )
    return None


def _rated(s: Situation) -> Explanation | None:
    for prefix, whose in (("", f"queue {s.queue}"), ("key_", f"key {s.job['limit_key']}")):
        count, seconds = s.limits[f"{prefix}rate_count"], s.limits[f"{prefix}rate_seconds"]
        if count is None:
            continue
        tokens = _tokens(s.limits, prefix)
        if tokens >= 1:
            continue
        free_at = s.now + timedelta(seconds=(1 - tokens) * seconds / count)
        return s.explain(
            Reason.RATE_LIMIT,
            f"The rate limit of {whose}, {count} per {seconds} s, is used up until {utc(free_at)}.",
            "Nothing. It runs when the rate limit allows.",
            free_at,
            whose=whose,
            tokens=round(tokens, 3),
            rate_count=count,
            rate_seconds=seconds,
        )
    return None


def _tokens(limits: Row, prefix: str) -> float:
    """Return the tokens that a claim would find now, as refill_queue and refill_keys count them."""
    count, seconds = limits[f"{prefix}rate_count"], limits[f"{prefix}rate_seconds"]
    since_ms = limits[f"{prefix}refilled_ms"]
    if since_ms is None:
        return float(count)
    added = max(0.0, since_ms) * count / (seconds * 1000.0)
    return float(min(limits[f"{prefix}tokens"] + added, count))


def _in_line(s: Situation, waited: datetime | None) -> Explanation:
    facts: dict[str, Any] = {
        "queue": s.queue,
        "ahead": s.ahead,
        "workers": len(serving(s.workers, s.queue)),
        "waits_since": waited or s.at("created_at"),
    }
    if s.ahead:
        count = f"At least {AHEAD:,}" if s.ahead >= AHEAD else f"{s.ahead:,}"
        go = "job of its own tenant goes" if s.ahead == 1 else "jobs of its own tenant go"
        return s.explain(
            Reason.IN_LINE,
            f"{count} {go} before it in {s.queue}.",
            "Nothing. Tenants are served round-robin.",
            **facts,
        )
    return s.explain(
        Reason.READY,
        f"Ready: first in line of its tenant in {s.queue}.",
        "Nothing. The next free worker claims it.",
        **facts,
    )
