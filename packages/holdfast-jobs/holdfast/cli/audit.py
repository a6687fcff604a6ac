"""holdfast audit list|verify|export|seal"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli.given import (
    app_of,
    json_option,
    one_line,
    operator_of,
    operator_options,
    print_json,
    print_table,
    settings_of,
)
from holdfast.operate.audit import NEWEST, Anchor, AuditEvent, AuditFilter, AuditTrail, Tampering
from holdfast.operate.audit_export import check_export

COLUMNS = ("id", "at", "name", "job_id", "job_type", "attempt", "actor", "correlation_id", "detail")
# So many problems are part of a JSON document; they are all counted.
SHOWN = 1_000


class Instant(click.ParamType[datetime]):
    """An instant with its time zone, like 2026-01-05T09:00:00Z."""

    name = "instant"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            found = None
        if found is None or found.tzinfo is None:
            self.fail("write an instant with its time zone, like 2026-01-05T09:00:00Z", param, ctx)
        return found


class AnchorText(click.ParamType[Anchor]):
    """The head of a chain that was kept elsewhere."""

    name = "org:number:digest"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Anchor:
        if isinstance(value, Anchor):
            return value
        try:
            return Anchor.read(value)
        except ValueError as exc:
            self.fail(str(exc), param, ctx)


since_option = click.option("--since", type=Instant(), help="Only from this instant on.")
until_option = click.option("--until", type=Instant(), help="Only before this instant.")


@click.group()
def audit() -> None:
    """Ask the audit what happened, prove it, and keep a copy."""


@audit.command("list")
@click.option("--job", "job_id", help="Only what is told of this job.")
@click.option("--by", "who", help="Only what this actor did, like user:42.")
@click.option("--correlation", "correlation_id", help="Only what follows from this cause.")
@click.option("--request", "request_id", help="Only what this request set off.")
@click.option("--name", help="Only events of this name, like job.failed.")
@since_option
@until_option
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@click.option(
    "--before",
    default=NEWEST,
    type=click.IntRange(1),
    help="Only events before this id: the next page.",
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
    """List events, newest first."""
    with app_of(ctx, required=False) as hf:
        page = {"limit": asked.pop("limit"), "before": asked.pop("before")}
        wanted = AuditFilter(actor=who, **asked)
        found = _trail(hf, actor, role, org_id).list(wanted, **page)
    lines = [_outline(event) for event in found]
    if as_json:
        print_json(lines)
    else:
        print_table(lines, COLUMNS)


@audit.command()
@click.option(
    "--anchor",
    "anchors",
    multiple=True,
    type=AnchorText(),
    help="A head that was kept elsewhere; again for another tenant's.",
)
@click.option(
    "--file",
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Check an export instead of the database.",
)
@operator_options
@json_option
@click.pass_context
def verify(
    ctx: click.Context,
    anchors: tuple[Anchor, ...],
    source: Path | None,
    actor: str,
    role: str,
    org_id: str | None,
    as_json: bool,
) -> None:
    """Find every event that was edited, deleted or inserted since it was sealed."""
    if source is not None:
        with source.open(encoding="utf-8", errors="replace") as lines:
            problems = check_export(lines, key=settings_of(ctx).audit_key, anchors=anchors)
            count = _tell(problems, {"file": str(source)}, as_json=as_json)
        ctx.exit(1 if count else 0)
    with app_of(ctx, required=False) as hf:
        trail = _trail(hf, actor, role, org_id)
        problems = trail.verify(anchors=anchors)
        count = _tell(problems, asdict(trail.cover()), as_json=as_json)
    ctx.exit(1 if count else 0)


def _tell(problems: Iterator[Tampering], about: Mapping[str, Any], *, as_json: bool) -> int:
    """Print problems as they are found; as JSON all at once, the first of them."""
    count = 0
    kept: list[dict[str, Any]] = []
    for found in problems:
        count += 1
        if as_json:
            if len(kept) < SHOWN:
                kept.append(asdict(found))
        else:
            seal = "no seal" if found.seal is None else f"seal {found.seal}"
            seq = "" if found.seq is None else f" event number {found.seq}"
            click.echo(one_line(f"{found.org_id}  {seal}{seq}: {found.problem}"))
    if as_json:
        print_json({**about, "tampered": count, "problems": kept})
    else:
        told = ", ".join(f"{name} {value}" for name, value in about.items())
        says = f"{count} places are not as sealed" if count else "the audit is as it was sealed"
        click.echo(one_line(f"{says} ({told})"))
    return count


@audit.command()
@since_option
@until_option
@click.option("--to", "target", required=True, help="A file that does not exist yet, or - .")
@operator_options
@click.pass_context
def export(
    ctx: click.Context,
    since: datetime | None,
    until: datetime | None,
    target: str,
    actor: str,
    role: str,
    org_id: str | None,
) -> None:
    """Copy the audit with its seals as lines of JSON."""
    with app_of(ctx, required=False) as hf:
        lines = _trail(hf, actor, role, org_id).export(since=since, until=until)
        if target == "-":
            for line in lines:
                click.echo(line)
            return
        count = _copy(lines, Path(target))
    click.echo(f"{one_line(target)}  {count} lines")


def _copy(lines: Iterator[str], target: Path) -> int:
    count = 0
    try:
        with target.open("x", encoding="utf-8") as file:
            try:
                for line in lines:
                    file.write(line + "\n")
                    count += 1
                file.flush()
                os.fsync(file.fileno())
            except BaseException:
                target.unlink()
                raise
    except OSError as exc:
        raise click.ClickException(f"{target} cannot be written: {exc.strerror}.") from exc
    return count


@audit.command()
@operator_options
@json_option
@click.pass_context
def seal(ctx: click.Context, actor: str, role: str, org_id: str | None, as_json: bool) -> None:
    """Seal every event there is now; workers do the same by themselves, a little later."""
    with app_of(ctx, required=False) as hf:
        sealed = _trail(hf, actor, role, org_id).seal()
    if as_json:
        print_json(asdict(sealed))
    elif sealed.is_whole:
        click.echo(f"{sealed.events} events sealed")
    else:
        click.echo(
            f"{sealed.events} events sealed, {sealed.unsealed} not yet: a transaction or another"
            " pass is under way. Try again."
        )
    ctx.exit(0 if sealed.is_whole else 1)


def _trail(hf: Holdfast, actor: str, role: str, org_id: str | None) -> AuditTrail:
    return operator_of(hf, actor, role, org_id).audit


def _outline(event: AuditEvent) -> dict[str, Any]:
    found = {name: getattr(event, name) for name in AuditEvent.__slots__}
    return {**found, "actor": f"{event.actor.type}:{event.actor.id}"}
