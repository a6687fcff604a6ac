"""holdfast grant"""

from __future__ import annotations

from dataclasses import asdict

import click

from holdfast.cli.given import (
    app_of,
    json_option,
    one_line,
    operator_of,
    operator_options,
    print_json,
)
from holdfast.operate.grant import ROLES, TENANT


@click.command()
@click.argument("tables", nargs=-1, required=True, metavar="TABLE…")
@click.option(
    "--to",
    type=click.Choice(ROLES),
    default=TENANT,
    show_default=True,
    help="Database role: of handlers, or of audit enrichment.",
)
@click.option(
    "--privileges",
    help="Privileges, such as select,insert.  [default: select,insert,update,delete; for"
    " holdfast_auditor select,insert]",
)
@click.option("--dry-run", is_flag=True, help="Print the SQL, and change nothing.")
@operator_options
@json_option
@click.pass_context
def grant(
    ctx: click.Context,
    tables: tuple[str, ...],
    to: str,
    privileges: str | None,
    dry_run: bool,
    actor: str,
    role: str,
    org_id: str | None,
    as_json: bool,
) -> None:
    """Grant handlers access to application tables.

    PostgreSQL only: handlers use the tables in job.transaction(). The schema and the sequences of
    serial columns are included. Safe to run twice. SQLite has no roles, so nothing is granted.
    """
    wanted = [] if privileges is None else privileges.split(",")
    with app_of(ctx, required=False) as hf:
        operator = operator_of(hf, actor, role, org_id)
        done = operator.grant(tables, to=to, privileges=wanted, dry_run=dry_run)
        has_roles = operator.has_roles
    if as_json:
        print_json([asdict(one) for one in done])
        return
    if not has_roles:
        click.echo("SQLite has no roles: handlers can use every table. There is nothing to grant.")
    for one in done:
        for warning in one.warnings:
            click.echo(one_line(f"warning: {warning}"), err=True)
        for statement in one.statements:
            click.echo(one_line(f"{statement};"))
        if not one.statements:
            rights = ", ".join(one.privileges)
            click.echo(one_line(f"{one.role} already has {rights} on {one.table}."))
