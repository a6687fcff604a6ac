"""holdfast audit verify|export|seal"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli.audit import since_option, until_option
from holdfast.cli.given import (
    app_of,
    json_option,
    one_line,
    operator_of,
    operator_options,
    print_json,
    settings_of,
)
from holdfast.sealed_audit.chain import Anchor, Tampering
from holdfast.sealed_audit.export import check_export
from holdfast.sealed_audit.operator import SealedAudit

# The maximum number of problems that a JSON document lists; all are counted.
SHOWN = 1_000


class AnchorText(click.ParamType[Anchor]):
    """The head of a chain that was stored outside the database."""

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


@click.command()
@click.option(
    "--anchor",
    "anchors",
    multiple=True,
    type=AnchorText(),
    help="A seal head that was stored elsewhere; repeatable.",
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
    """Find events that were changed after they were sealed."""
    if source is not None:
        with source.open(encoding="utf-8", errors="replace") as lines:
            problems = check_export(lines, key=settings_of(ctx).audit_key, anchors=anchors)
            count = _print_problems(problems, {"file": str(source)}, as_json=as_json)
        ctx.exit(1 if count else 0)
    with app_of(ctx, required=False) as hf:
        trail = _trail(hf, actor, role, org_id)
        problems = trail.verify(anchors=anchors)
        count = _print_problems(problems, asdict(trail.cover()), as_json=as_json)
    ctx.exit(1 if count else 0)


def _print_problems(
    problems: Iterator[Tampering], about: Mapping[str, Any], *, as_json: bool
) -> int:
    """Print problems as they are found, or the first ones as JSON; return their number."""
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
        details = ", ".join(f"{name} {value}" for name, value in about.items())
        says = (
            (f"{count} differences from the sealed audit")
            if count
            else "the audit matches its seals"
        )
        click.echo(one_line(f"{says} ({details})"))
    return count


@click.command()
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
    """Export the audit with its seals as lines of JSON."""
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


@click.command()
@operator_options
@json_option
@click.pass_context
def seal(ctx: click.Context, actor: str, role: str, org_id: str | None, as_json: bool) -> None:
    """Seal all present events. Workers do the same within seconds."""
    with app_of(ctx, required=False) as hf:
        sealed = _trail(hf, actor, role, org_id).seal()
    if as_json:
        print_json(asdict(sealed))
    elif sealed.is_whole:
        click.echo(f"{sealed.events} events sealed")
    else:
        click.echo(
            f"{sealed.events} events sealed, {sealed.unsealed} not yet: a transaction or another"
            " pass is running. Try again."
        )
    ctx.exit(0 if sealed.is_whole else 1)


def _trail(hf: Holdfast, actor: str, role: str, org_id: str | None) -> SealedAudit:
    return operator_of(hf, actor, role, org_id).audit
