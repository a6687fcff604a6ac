"""How the console writes numbers, times, ids and states. Pure, except for the clock of ages."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from markupsafe import Markup, escape

from holdfast.operate.jobs import attempts_made

CAP = 10_000
DASH = "\N{EN DASH}"
_NONE = Markup('<span class="none">&ndash;</span>')

# The tone of each state: the only use of colour.
_TONES = {
    "bad": {
        "failed", "dead", "open", "held", "gone", "lost", "violated", "error", "expired",
        "deadlettered", "rejected", "refused", "poisoned", "job.deadlettered",
    },
    "warn": {
        "paused", "draining", "retried", "missed", "skipped", "triaged", "remediated", "validated",
        "deferred", "unsure", "dropped", "stopped", "out_of_time", "canceling", "warning",
        "quarantined", "needs_review",
        "job.retried", "job.released", "job.failed", "operator.refused",
    },
    "busy": {
        "processing", "batch_submitted", "replaying", "replayed", "submitted", "building",
        "validating", "in_progress", "running", "working", "collecting", "taken",
    },
    "good": {
        "completed", "sent", "resolved", "done", "ok", "succeeded", "fired", "enqueued", "ran",
        "collected", "delivered", "accepted", "job.succeeded", "full",
    },
}  # fmt: skip
_TONE_OF = {state: tone for tone, states in _TONES.items() for state in states}


def attempts(state: str, attempt_count: int) -> int:
    """The attempts of a job that were made or are under way."""
    return attempts_made(state, attempt_count)


def tone(state: Any) -> str:
    """The tone of a state: good, busy, warn, bad, or quiet."""
    return _TONE_OF.get(str(state or ""), "quiet")


def words(value: Any) -> str:
    """A stored name as words: ``fixed_forward`` becomes "fixed forward"."""
    return DASH if value is None or value == "" else str(value).replace("_", " ")


def number(value: Any) -> str:
    """A number with thousands separators."""
    return DASH if value is None else f"{value:,}"


def capped(value: int, cap: int = CAP) -> str:
    """A count that stops at *cap*: "10,000+" there."""
    return f"{cap:,}+" if value >= cap else f"{value:,}"


def usd(value: Any, digits: int = 4) -> str:
    """An amount in US dollars; small amounts keep the digits that matter."""
    if value is None or value == "":
        return DASH
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return str(value)
    least = Decimal(1).scaleb(-digits)
    if 0 < abs(amount) < least:
        return f"< ${least}"
    places = 2 if abs(amount) >= 1 or amount == 0 else digits
    return f"{'-' if amount < 0 else ''}${abs(amount):,.{places}f}"


def span(seconds: float | None) -> str:
    """A duration in one or two units."""
    if seconds is None:
        return DASH
    left = max(0, int(seconds))
    if left < 1:
        return "< 1 s" if seconds > 0 else "0 s"
    for size, unit, below, next_unit in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if left >= size:
            rest = (left % size) // below
            return f"{left // size} {unit} {rest} {next_unit}" if rest else f"{left // size} {unit}"
    return f"{left} s"


def time(value: datetime | None) -> Markup:
    """A time element in UTC, which the script writes in the zone of the viewer."""
    if value is None:
        return _NONE
    at = value.astimezone(UTC)
    shown = at.strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(timespec="seconds"), shown)


def ago(value: datetime | None, now: datetime) -> Markup:
    """The age of a time, with the time itself as its title."""
    if value is None:
        return _NONE
    at = value.astimezone(UTC)
    seconds = (now - value).total_seconds()
    says = f"{span(seconds)} ago" if seconds >= 0 else f"in {span(-seconds)}"
    if abs(seconds) < 1:
        says = "just now"
    return Markup('<time datetime="{}" data-keep title="{}">{}</time>').format(
        at.isoformat(timespec="seconds"), at.strftime("%Y-%m-%d %H:%M:%S UTC"), says
    )


def state(value: Any) -> Markup:
    """A state as a label in its colour."""
    return Markup('<span class="state {}">{}</span>').format(tone(value), words(value))


def short(value: Any) -> Markup:
    """The end of an id, which differs between ids of the same time; the whole id is its title."""
    if value is None:
        return _NONE
    whole = str(value)
    shown = whole if len(whole) <= 13 else f"{whole[:8]}…{whole[-4:]}"
    return Markup('<span class="id" title="{}">{}</span>').format(whole, shown)


def document(value: Any) -> str:
    """A document as indented JSON. Large numbers keep every digit."""
    return json.dumps(value, indent=2, default=str, ensure_ascii=False, sort_keys=True)


def brief(value: Any) -> Markup:
    """The fields of a small document in one line."""
    if not value:
        return Markup("")
    if not isinstance(value, dict):
        return escape(str(value))
    parts = [
        Markup('<span class="pair"><b>{}</b> {}</span>').format(words(name), _plain(found))
        for name, found in value.items()
        if found not in (None, "", [], {})
    ]
    return Markup(" ").join(parts)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
