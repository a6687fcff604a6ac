"""Why a job waits for its deliveries: for a channel, or for an operator. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from holdfast.operate.explanation import Explanation, Reason, Situation, utc
from holdfast.operate.plural import counted
from holdfast.outbox.post import JOB_TYPE as DELIVER
from holdfast.store import Row

RECONCILER = "outbox_reconciler"


def why_undelivered(s: Situation, due_at: datetime) -> Explanation | None:
    """Return what prevents a job that is due at *due_at* from completing its deliveries."""
    held = [row for row in s.deliveries if row["state"] == "held"]
    pending = [row for row in s.deliveries if row["state"] == "pending"]
    if held:
        return _held(s, due_at, sum(row["deliveries"] for row in held), held[0]["channel"])
    refused = [row for row in pending if row["kept"] and row["refusal"] is not None]
    if refused:
        return _refused(s, due_at, sum(row["kept"] for row in refused), refused[0])
    tried = sum(row["tried"] for row in pending)
    if not tried:
        return _untried(s, due_at, pending)
    channels = sorted({row["channel"] for row in pending if row["tried"]})
    named = " and ".join(channels)
    unsure = sum(row["unsure"] for row in pending)
    line = (
        f"{counted(tried, 'delivery was', 'deliveries were')} attempted but not sent; waiting for"
        f" {named}"
    )
    then = f"Nothing. Retried from {utc(due_at)}."
    if unsure:
        line += f", and it is unknown whether {named} accepted {unsure} of them"
        then = (
            f"{RECONCILER} looks them up at the channel every five minutes; nothing is sent before"
            " that."
        )
    return s.explain(
        Reason.AWAITS_CHANNEL,
        f"{line}.",
        then,
        due_at,
        channels=channels,
        tried=tried,
        unsure=unsure,
    )


def _refused(s: Situation, due_at: datetime, count: int, row: Row) -> Explanation:
    """The channel rejects requests: its circuit is open, and attempts do not count."""
    channel, code = row["channel"], row["refusal"]
    return s.explain(
        Reason.CHANNEL_REFUSED,
        f"{counted(count, 'delivery waits', 'deliveries wait')}: channel {channel} rejects the"
        f" credential, permission or address ({code}).",
        f"Fix the credential, permission or address of {channel}; one probe message follows. See"
        " holdfast doctor.",
        due_at,
        channel=channel,
        code=code,
        deliveries=count,
    )


def _untried(s: Situation, due_at: datetime, pending: Sequence[Row]) -> Explanation | None:
    """The outbox job processed them, but could not use their channel."""
    last, _ = s.last("job.enqueued", "job.retried", "job.snoozed", "job.released")
    if s.job["job_type"] != DELIVER or not pending or last is None or last["name"] != "job.snoozed":
        return None
    channels = sorted({row["channel"] for row in pending})
    waiting = sum(row["deliveries"] for row in pending)
    return s.explain(
        Reason.AWAITS_CHANNEL,
        f"{counted(waiting, 'delivery was', 'deliveries were')} not attempted; waiting for"
        f" {' and '.join(channels)}.",
        f"Nothing. Checked again at {utc(due_at)}. If a channel cannot be used, see holdfast"
        " doctor.",
        due_at,
        channels=channels,
        tried=0,
        unsure=0,
    )


def _held(s: Situation, due_at: datetime, count: int, channel: str) -> Explanation:
    return s.explain(
        Reason.DELIVERY_HELD,
        f"It is unknown whether {counted(count, 'delivery was', 'deliveries were')} sent by"
        f" {channel}, which has no lookup.",
        undecided(s),
        due_at,
        held=count,
        channel=channel,
    )


def undecided(s: Situation) -> str:
    """Return the operator's next step for held deliveries; empty if none is held."""
    count = sum(row["deliveries"] for row in s.deliveries if row["state"] == "held")
    if not count:
        return ""
    whether = "it" if count == 1 else "they"
    return (
        f"Find out whether {whether} arrived, then confirm, resend or drop: holdfast deliveries"
        " list --state held"
    )


def still_open(s: Situation) -> str:
    """Return the open deliveries of an ended job, as the end of a sentence."""
    words = [
        f"{count} {word}"
        for word in ("pending", "held", "failed")
        if (count := sum(row["deliveries"] for row in s.deliveries if row["state"] == word))
    ]
    return f"; deliveries: {' and '.join(words)}" if words else ""
