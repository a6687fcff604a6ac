"""Checks of the outbox: stuck deliveries, and deliveries that need a decision."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.channel.channels import ConfiguredChannels
from holdfast.clock import ms, read_instant
from holdfast.errors import ConfigError
from holdfast.operate.doctor.finding import (
    RUN,
    SQL,
    CheckContext,
    Finding,
    Severity,
    last_of,
    length,
)
from holdfast.operate.plural import counted
from holdfast.operate.undelivered import RECONCILER
from holdfast.outbox.in_app import CHANNEL as IN_APP
from holdfast.store import Row

OK, NOTICE, WARNING, PROBLEM = Severity


def check_deliveries(context: CheckContext) -> Iterator[Finding]:
    """Check for deliveries that need an operator, and for due ones that are not processed."""
    limits = context.limits
    held = context.many(SQL.count_held, limit=limits.count)
    for row in held:
        yield Finding(
            "deliveries",
            PROBLEM,
            f"{counted(row['deliveries'], 'delivery', 'deliveries')} by {row['channel']} held, the"
            f" oldest since {read_instant(row['since']):%F %T} UTC: it is unknown whether they"
            " were sent.",
            "Ask the recipients or check the channel, then run holdfast deliveries confirm or"
            " resend.",
            {"channel": row["channel"], "deliveries": row["deliveries"]},
        )
    late = context.many(SQL.count_undelivered, age_ms=ms(limits.delivery), limit=limits.count)
    ran = {
        row["name"]: row["started_at"]
        for row in context.many(SQL.find_last_runs, runs=[{"name": RECONCILER}])
    }
    for row in late:
        waits = length(round(row["waits_ms"] or 0.0) / 1000)
        yield Finding(
            "deliveries",
            PROBLEM,
            f"{counted(row['deliveries'], 'delivery', 'deliveries')} by {row['channel']} overdue"
            f" for {waits}, {row['tried']} of them attempted; {last_of(RECONCILER, ran)}.",
            f"{RUN.format(name=RECONCILER)}. If it runs, check whether the channel answers.",
            {"channel": row["channel"], "deliveries": row["deliveries"], "tried": row["tried"]},
        )
    if not held and not late:
        yield Finding("deliveries", OK, "No delivery is held or overdue.")


def check_channels(context: CheckContext) -> Iterator[Finding]:
    """Check for channels that have pending deliveries and cannot be used from here."""
    rows = context.many(SQL.list_channels, limit=context.limits.count)
    channels = ConfiguredChannels(context.settings, clock=context.store.clock)
    circuits = context.many(SQL.list_channel_circuits, limit=context.limits.count)
    yield from map(_circuit, circuits)
    is_well = not circuits
    for row in rows:
        name = row["channel"]
        if name == IN_APP:
            continue
        try:
            channels.require(name)
        except ConfigError as exc:
            is_well = False
            yield _unusable(row, None if not channels.knows(name) else str(exc))
    if is_well:
        yield Finding("channels", OK, "All channels with waiting deliveries are usable.")


def _circuit(row: Row) -> Finding:
    """A rejected channel needs an operator; an unavailable one recovers without action."""
    channel, until = row["channel"], f"{read_instant(row['open_until']):%F %T} UTC"
    who = f"The channel {channel}" if row["whole"] else f"Addresses of the channel {channel}"
    waits = counted(row["deliveries"], "delivery waits", "deliveries wait")
    since = f"since {read_instant(row['opened_at']):%F %T} UTC"
    facts = {"channel": channel, "code": row["code"], "deliveries": row["deliveries"]}
    if row["kind"] == "unavailable":
        seen = f"{who}: unreachable or throttled {since} ({row['code']}); {waits}."
        remedy = f"None. One probe message is sent after {until}."
        return Finding("channels", NOTICE, seen, remedy, facts)
    return Finding(
        "channels",
        PROBLEM,
        f"{who}: credential, permission or address rejected {since} ({row['code']}); {waits}.",
        f"Correct [channels.{channel}] or its credential. A change sends one probe message at"
        f" once; otherwise the next one is sent after {until}.",
        facts,
    )


def _unusable(row: Row, says: str | None) -> Finding:
    waits = counted(row["deliveries"], "delivery waits", "deliveries wait")
    seen = f"{waits} for the channel {row['channel']}"
    facts = {"channel": row["channel"], "deliveries": row["deliveries"]}
    if says is None:
        remedy = f"Configure [channels.{row['channel']}] in holdfast.toml, or run doctor with the"
        remedy += " settings of the application that declares it."
        return Finding(
            "channels", WARNING, f"{seen}, which these settings do not have.", remedy, facts
        )
    remedy = f"{says} Or run doctor on the workers' machine, where it may be configured."
    return Finding("channels", WARNING, f"{seen}, which cannot be used from here.", remedy, facts)
