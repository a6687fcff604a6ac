"""holdfast doctor"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

import click

from holdfast.cli.given import (
    app_of,
    json_option,
    one_line,
    operator_of,
    operator_options,
    print_json,
    verbose_option,
)
from holdfast.cli.next_command import complete_commands
from holdfast.operate.database import use_unchecked_store
from holdfast.operate.doctor import Finding, Severity
from holdfast.operate.plural import counted
from holdfast.operate.reader import missing_file


@click.command()
@click.option(
    "--providers", is_flag=True, help="Also send one free request to each provider account."
)
@verbose_option
@operator_options
@json_option
@click.pass_context
def doctor(
    ctx: click.Context,
    providers: bool,
    verbose: bool,
    actor: str,
    role: str,
    org_id: str | None,
    as_json: bool,
) -> None:
    """Check the database and the workers for problems.

    Each finding names its remedy. Exits with 1 if there is a problem; notices and warnings do not
    count.
    """
    with app_of(ctx, required=False, creates=True) as hf:
        missing = missing_file(hf.settings)
        if missing is not None:
            seen = f"There is no Holdfast schema. The file {missing} does not exist."
            found = [Finding("schema", Severity.PROBLEM, seen, "Run 'holdfast migrate'.")]
        else:
            # A schema that does not match this version is one of the findings.
            use_unchecked_store(hf)
            found = operator_of(hf, actor, role, org_id).doctor(providers=providers)
    if as_json:
        print_json([asdict(finding) for finding in found])
    else:
        _print(ctx, found, verbose)
    ctx.exit(1 if any(finding.severity is Severity.PROBLEM for finding in found) else 0)


def _print(ctx: click.Context, found: Sequence[Finding], verbose: bool) -> None:
    """The findings that need attention, or one line if none does."""
    for finding in found:
        if finding.severity is Severity.OK and not verbose:
            continue
        click.echo(one_line(f"{finding.severity:8} {finding.check:14} {finding.seen}"))
        if finding.severity is not Severity.OK:
            remedy = complete_commands(ctx, finding.remedy)
            click.echo(one_line(f"{'':8} {'':14} → {remedy}"))
    checks = counted(len({finding.check for finding in found}), "check")
    counts = Counter(finding.severity for finding in found)
    raised = [one for one in reversed(Severity) if one is not Severity.OK and counts[one]]
    tally = ", ".join(counted(counts[one], one) for one in raised)
    click.echo(f"{checks}: {tally}" if raised else f"ok: {checks}, nothing to do")
