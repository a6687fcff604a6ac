"""holdfast doctor"""

from __future__ import annotations

from dataclasses import asdict

import click

from holdfast.cli.given import app_of, desk_of, json_option, one_line, print_json, watch_options
from holdfast.operate.doctor import Severity, examine
from holdfast.store import open_store


@click.command()
@click.option("--providers", is_flag=True, help="Ask each provider's account a free question too.")
@watch_options
@json_option
@click.pass_context
def doctor(
    ctx: click.Context,
    providers: bool,
    actor: str,
    role: str,
    org_id: str | None,
    as_json: bool,
) -> None:
    """Look for what is wrong with the store and its workers, and say what helps.

    Exits with 1 if there is a problem; notices and warnings are not.
    """
    with app_of(ctx, required=False) as hf:
        # Unchecked: a schema that this code does not fit is one of the things to find.
        hf.use_store(open_store(hf.settings.db, clock=hf.clock, check=False))
        watch = desk_of(hf, actor, role, org_id).watch
        found = examine(watch, accounts=hf.batch.lane.accounts if providers else None)
    if as_json:
        print_json([asdict(finding) for finding in found])
    else:
        for finding in found:
            click.echo(one_line(f"{finding.severity:8} {finding.check:20} {finding.seen}"))
            if finding.severity is not Severity.OK:
                click.echo(one_line(f"{'':8} {'':20} → {finding.remedy}"))
    ctx.exit(1 if any(finding.severity is Severity.PROBLEM for finding in found) else 0)
