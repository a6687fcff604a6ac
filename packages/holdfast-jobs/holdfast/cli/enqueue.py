"""holdfast enqueue"""

from __future__ import annotations

import sys
from typing import Any

import click

from holdfast.cli.given import (
    app_of,
    json_option,
    operator_of,
    print_json,
    read_actor_option,
    read_instant_option,
)
from holdfast.document import BadDocument, parse


@click.command()
@click.argument("job_type")
@click.argument("payload", default="{}")
@click.option("--org", "org_id", help="Tenant (UUID or name); by default the setting default_org.")
@click.option("--project", "project_id", help="Project (UUID or name).")
@click.option("--key", "idempotency_key", help="Idempotency key: enqueue at most once with it.")
@click.option(
    "--actor",
    default="system:cli",
    show_default=True,
    callback=read_actor_option,
    help="Actor recorded in the audit, like user:42.",
)
@click.option("--queue", help="Queue; overrides the queue of the job type.")
@click.option(
    "--priority",
    type=click.Choice(["critical", "high", "normal", "low"]),
    help="Priority of the job.",
)
@click.option("--delay", help="Start it not before this much time has passed, like 5m or 2h.")
@click.option(
    "--at", callback=read_instant_option, help="Start it not before this time (ISO 8601)."
)
@click.option("--expires-in", help="Cancel it if it has not started after this time, like 10m.")
@click.option(
    "--deadline",
    callback=read_instant_option,
    help="Cancel it if it has not started by this time (ISO 8601).",
)
@click.option("--unique-key", help="Return the job that waits or runs with this key, if any.")
@click.option(
    "--unique",
    type=click.Choice(["active", "queued"]),
    help="Free the key when the job has ended (active, the default) or was claimed (queued).",
)
@click.option("--replace", is_flag=True, help="Supersede the waiting job with the unique key.")
@click.option(
    "--debounce", help="Like --replace, and start it this long after the last enqueue, like 30s."
)
@click.option("--debounce-limit", help="Longest wait of a debounced job, like 5m.")
@json_option
def enqueue(job_type: str, payload: str, as_json: bool, **options: Any) -> None:
    """Enqueue one job.

    PAYLOAD is a JSON object, or - to read it from standard input.
    """
    if payload == "-":
        payload = sys.stdin.read()
    try:
        value = parse(payload)
    except BadDocument as exc:
        raise click.BadParameter(f"it {exc}", param_hint="PAYLOAD") from exc
    with app_of(click.get_current_context(), required=True) as hf:
        operator = operator_of(hf, options.pop("actor"))
        if options["unique"] is None:
            del options["unique"]
        job = operator.jobs.enqueue(job_type, value, **options)
    if as_json:
        print_json(
            {
                "job_id": job.id,
                "job_type": job.job_type,
                "created": job.created,
                "differs": job.differs,
                "idempotency_key": job.idempotency_key,
                "created_at": job.created_at,
            }
        )
        return
    click.echo(f"{job.id}  {'enqueued' if job.created else 'already exists'}")
    if job.differs:
        click.echo("A job with this key and another payload exists; it was not changed.", err=True)
