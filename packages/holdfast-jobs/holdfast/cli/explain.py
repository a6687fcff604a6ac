"""holdfast explain"""

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
    short_id_argument,
)


@click.command()
@short_id_argument("job_id", "jobs")
@operator_options
@json_option
@click.pass_context
def explain(
    ctx: click.Context, job_id: str, actor: str, role: str, org_id: str | None, as_json: bool
) -> None:
    """Explain the state of a job and what happens next."""
    with app_of(ctx, required=False) as hf:
        found = operator_of(hf, actor, role, org_id).jobs.explain(job_id)
    if as_json:
        print_json(asdict(found))
    else:
        click.echo(one_line(found.line))
        click.echo(one_line(f"Next: {found.next}"))
