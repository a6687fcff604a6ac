"""holdfast artifacts list|show|get|link|remove|sweep"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from holdfast.artifacts.artifact import Artifact, ArtifactState
from holdfast.artifacts.operator import ArtifactFilter
from holdfast.cli.given import (
    ShortId,
    actor_option,
    app_of,
    id_of,
    json_option,
    one_line,
    operator_of,
    print_json,
    print_table,
    read_actor_option,
)
from holdfast.operate.page import NEWEST

COLUMNS = ("id", "name", "kind", "state", "bytes", "job_id", "owner", "created_at", "expires_at")
NO_ARTIFACTS = "No artifacts. Handlers store them with job.artifacts.put(…)."
NO_MATCH = "No artifacts match."


@click.group()
def artifacts() -> None:
    """Inspect, download and remove the files of jobs."""


@artifacts.command("list")
@click.option("--org", "org_id", type=ShortId("tenants"), help="Only this tenant.")
@click.option(
    "--job", "job_id", type=ShortId("jobs"), help="Only artifacts of this job; needs --org."
)
@click.option(
    "--state",
    type=click.Choice([state.value for state in ArtifactState]),
    default=ArtifactState.STORED.value,
    show_default=True,
    help="Only this state.",
)
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Maximum number of rows.",
)
@click.option(
    "--before", default=NEWEST, help="Only artifacts older than this id, for the next page."
)
@json_option
@click.pass_context
def list_artifacts(
    ctx: click.Context,
    org_id: str | None,
    job_id: str | None,
    state: str,
    limit: int,
    before: str,
    as_json: bool,
) -> None:
    """List artifacts, newest first."""
    before = id_of(before, "--before")
    if org_id is None and job_id is not None:
        raise click.UsageError("--job needs --org, the tenant of the job.")
    wanted = ArtifactFilter(
        org_id,
        job_id,
        state,
    )
    with app_of(ctx, required=False) as hf:
        found = operator_of(hf).artifacts.list(wanted, limit=limit, before=before)
    lines = [_outline(artifact) for artifact in found]
    if as_json:
        print_json(lines)
    else:
        print_table(lines, COLUMNS, empty=NO_ARTIFACTS if wanted == ArtifactFilter() else NO_MATCH)


@artifacts.command()
@click.argument("artifact")
@json_option
@click.pass_context
def show(ctx: click.Context, artifact: str, as_json: bool) -> None:
    """Show one artifact.

    ARTIFACT is its id or its reference, artifact:UUID.
    """
    with app_of(ctx, required=False) as hf:
        found = operator_of(hf).artifacts.get(artifact)
    if as_json:
        print_json(_outline(found))
        return
    for name, value in _outline(found).items():
        if value not in (None, ""):
            click.echo(f"{name:12} {one_line(value)}")


@artifacts.command()
@click.argument("artifact")
@click.option(
    "--to",
    "target",
    required=True,
    help="Output file, which must not exist, or - for standard output.",
)
@click.pass_context
def get(ctx: click.Context, artifact: str, target: str) -> None:
    """Download an artifact and verify its checksum."""
    with app_of(ctx, required=False) as hf, operator_of(hf).artifacts.open(artifact) as source:
        if target == "-":
            shutil.copyfileobj(source, sys.stdout.buffer)
            return
        _copy(source, Path(target))
    click.echo(f"{target}  {source.artifact.bytes} bytes  sha256:{source.artifact.sha256}")


def _copy(source: Any, target: Path) -> None:
    try:
        with target.open("xb") as file:
            try:
                shutil.copyfileobj(source, file)
                os.fsync(file.fileno())
            except BaseException:
                # A partial or wrong file would be mistaken for the artifact.
                target.unlink()
                raise
    except OSError as exc:
        raise click.ClickException(f"{target} cannot be written: {exc.strerror}.") from exc


@artifacts.command()
@click.argument("artifact")
@click.option(
    "--actor",
    required=True,
    callback=read_actor_option,
    help="Actor recorded in the audit, like user:42.",
)
@click.option(
    "--hours",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, 168, min_open=True),
    help="Validity of the link in hours.",
)
@click.option(
    "--audience", default="", help="Audience of the link; opening it requires the same value."
)
@json_option
@click.pass_context
def link(
    ctx: click.Context, artifact: str, actor: str, hours: float, audience: str, as_json: bool
) -> None:
    """Create a download link for one artifact."""
    with app_of(ctx, required=False) as hf:
        artifacts = operator_of(hf, actor).artifacts
        artifact_id = artifacts.get(artifact).id
        token = artifacts.link(
            artifact,
            reason=ctx.command_path,
            expires_in=timedelta(hours=hours),
            audience=audience,
        )
    if as_json:
        print_json({"artifact_id": artifact_id, "token": token})
    else:
        click.echo(token)


@artifacts.command()
@click.argument("artifact")
@click.option("--reason", required=True, help="Reason recorded in the audit.")
@actor_option
@json_option
@click.pass_context
def remove(ctx: click.Context, artifact: str, reason: str, actor: str, as_json: bool) -> None:
    """Remove an artifact before it expires."""
    with app_of(ctx, required=False) as hf:
        artifacts = operator_of(hf, actor).artifacts
        artifact_id = artifacts.get(artifact).id
        artifacts.remove(artifact, reason=reason)
    if as_json:
        print_json({"artifact_id": artifact_id, "state": "removed"})
    else:
        click.echo(f"{artifact_id}  removed")


@artifacts.command()
@json_option
@click.pass_context
def sweep(ctx: click.Context, as_json: bool) -> None:
    """Remove expired and abandoned artifacts, in one bounded pass."""
    with app_of(ctx, required=False) as hf:
        done = operator_of(hf).artifacts.sweep(reason=ctx.command_path)
    if as_json:
        print_json(done)
    else:
        print_table([done], tuple(done))


def _outline(artifact: Artifact) -> dict[str, Any]:
    found = {field.name: getattr(artifact, field.name) for field in fields(artifact)}
    return {**found, "owner": f"{artifact.owner.type}:{artifact.owner.id}"}
