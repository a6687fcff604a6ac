"""holdfast explain"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from holdfast.cli.given import (
    app_of,
    json_option,
    one_line,
    operator_of,
    operator_options,
    print_json,
    short_id_argument,
    shorten,
)
from holdfast.cli.next_command import complete_commands
from holdfast.errors import JobNotFound, NotFound
from holdfast.operate.operator import Operator


@click.command()
@short_id_argument("job_id", "jobs")
@operator_options
@json_option
@click.pass_context
def explain(
    ctx: click.Context, job_id: str, actor: str, role: str, org_id: str | None, as_json: bool
) -> None:
    """Explain the state of a job or workflow and what is next."""
    with app_of(ctx, required=False) as hf:
        operator = operator_of(hf, actor, role, org_id)
        found = _explain(operator, job_id)
        if as_json:
            print_json(asdict(found))
            return
        if hasattr(found, "steps"):
            from holdfast.workflows.commands import print_explanation

            print_explanation(found)
            return
        ids = _short_ids(operator, found.facts)
    for line in (found.line, f"Next: {found.next}"):
        click.echo(complete_commands(ctx, one_line(line), ids))


def _explain(operator: Operator, job_id: str) -> Any:
    """Explain a job. The id of a workflow is accepted too."""
    try:
        return operator.jobs.explain(job_id)
    except JobNotFound:
        workflows: Any = getattr(operator, "workflows", None)
        if workflows is None:
            raise
        try:
            return workflows.explain(job_id)
        except NotFound:
            raise JobNotFound(job_id) from None


def _short_ids(operator: Operator, facts: Mapping[str, Any]) -> dict[str, str]:
    """The prefixes of the jobs and batches that an explanation names."""
    nouns = {"letter_id": "jobs", "replay_job_id": "jobs", "batch_id": "batches"}
    found: dict[str, str] = {}
    for fact, noun in nouns.items():
        if facts.get(fact) is not None:
            found |= shorten(operator, noun, [str(facts[fact])])
    return found
