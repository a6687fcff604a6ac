"""holdfast audit list"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from holdfast.cli import ExtensibleGroup
from holdfast.cli.given import (
    ShortId,
    app_of,
    json_option,
    operator_of,
    operator_options,
    print_json,
    print_table,
)
from holdfast.operate.audit import NEWEST, AuditEvent, AuditFilter

COLUMNS = ("id", "at", "name", "job_id", "job_type", "attempt", "actor", "correlation_id", "detail")


_AGO = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Instant(click.ParamType[datetime]):
    """An instant with its time zone, like 2026-01-05T09:00:00Z, or a time ago, like 2h."""

    name = "instant"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        if isinstance(value, datetime):
            return value
        ago = _AGO.fullmatch(value)
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            found = None
        if found is None or found.tzinfo is None:
            says = "write an instant with its time zone, like 2026-01-05T09:00:00Z, or like 2h"
            self.fail(says, param, ctx)
        return found


since_option = click.option(
    "--since", type=Instant(), help="Only events at or after this time (ISO 8601 with zone)."
)
until_option = click.option(
    "--until", type=Instant(), help="Only events before this time (ISO 8601 with zone)."
)


@click.group(cls=ExtensibleGroup)
def audit() -> None:
    """Query, verify and export the audit."""


@audit.command("list")
@click.option("--job", "job_id", type=ShortId("jobs"), help="Only events of this job.")
@click.option("--by", "who", help="Only events by this actor, like user:42.")
@click.option("--correlation", "correlation_id", help="Only events with this correlation id.")
@click.option("--request", "request_id", help="Only events with this request id.")
@click.option("--name", help="Only events with this name, like job.failed.")
@since_option
@until_option
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Maximum number of rows.",
)
@click.option(
    "--before",
    default=NEWEST,
    type=click.IntRange(1),
    help="Only events before this id, for the next page.",
)
@operator_options
@json_option
@click.pass_context
def list_events(
    ctx: click.Context,
    /,
    actor: str,
    role: str,
    org_id: str | None,
    who: str | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """List audit events, newest first."""
    with app_of(ctx, required=False) as hf:
        page = {"limit": asked.pop("limit"), "before": asked.pop("before")}
        wanted = AuditFilter(actor=who, **asked)
        found = operator_of(hf, actor, role, org_id).audit.list(wanted, **page)
    lines = [_outline(event) for event in found]
    if as_json:
        print_json(lines)
    else:
        print_table(lines, COLUMNS)


def _outline(event: AuditEvent) -> dict[str, Any]:
    found = {name: getattr(event, name) for name in AuditEvent.__slots__}
    return {**found, "actor": f"{event.actor.type}:{event.actor.id}"}
