"""holdfast verify"""

from __future__ import annotations

import click

from holdfast.cli.given import (
    app_of,
    json_option,
    one_line,
    operator_of,
    operator_options,
    print_json,
    print_table,
    verbose_option,
)
from holdfast.clock import write_instant
from holdfast.operate.plural import counted
from holdfast.operate.verify.run import SHOWN, Finding, Report, Status, as_document


@click.command()
@click.option("--only", default="", help="Only these checks, like I4,I7.")
@click.option(
    "--shown",
    default=SHOWN,
    show_default=True,
    type=click.IntRange(0, 10_000),
    help="Number of violations to show per check; all are counted.",
)
@click.option(
    "--canary",
    "canaries",
    multiple=True,
    help="Text that must not be stored anywhere (I31); repeatable.",
)
@verbose_option
@operator_options
@json_option
@click.pass_context
def verify(
    ctx: click.Context,
    only: str,
    shown: int,
    canaries: tuple[str, ...],
    verbose: bool,
    actor: str,
    role: str,
    org_id: str | None,
    as_json: bool,
) -> None:
    """Check every invariant of the database.

    It reads one snapshot and changes nothing. Exits with 1 if an invariant is violated; the output
    and --json have their number.
    """
    wanted = [name for name in only.split(",") if name.strip()]
    with app_of(ctx, required=False) as hf:
        operator = operator_of(hf, actor, role, org_id)
        report = operator.verify(only=wanted, shown=shown, canaries=canaries)
    if as_json:
        print_json(as_document(report))
    else:
        _print(report, verbose)
    ctx.exit(1 if report.violated else 0)


def _print(report: Report, verbose: bool) -> None:
    if verbose:
        rows = [_row(finding) for finding in report.findings]
        print_table(rows, ("id", "status", "count", "check"))
        click.echo()
    for finding in report.violated:
        click.echo(f"{finding.id}: {finding.name}")
        if finding.why:
            click.echo(f"  {one_line(finding.why)}")
        for item in finding.violations:
            line = f"{item.subject} of {item.org_id}: {item.detail}"
            click.echo(f"  {one_line(line)}")
        if finding.count > len(finding.violations):
            click.echo(f"  and {finding.count - len(finding.violations)} more")
    made = [found for found in report.findings if found.status is not Status.NOT_APPLICABLE]
    if report.violated:
        click.echo(
            f"\n{len(report.violated)} of {counted(len(made), 'check')} violated"
            f" at {write_instant(report.at)}"
        )
    else:
        click.echo(f"ok: {counted(len(made), 'check')}, no violations")


def _row(finding: Finding) -> dict[str, object]:
    applies = finding.status is not Status.NOT_APPLICABLE
    return {
        "id": finding.id,
        "status": finding.status.replace("_", " "),
        "count": finding.count if applies else None,
        "check": finding.name if applies else f"{finding.name} ({finding.why})",
    }
