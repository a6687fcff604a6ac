"""holdfast explain"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NoReturn

import click

from holdfast.cli.given import (
    ShortId,
    app_of,
    json_option,
    one_line,
    operator_of,
    operator_options,
    print_json,
    shorten,
)
from holdfast.cli.next_command import complete_commands
from holdfast.errors import JobNotFound, NotFound
from holdfast.operate.operator import Operator

ACCEPTED = (
    "holdfast explain takes the id of a job or a workflow. List them: holdfast jobs list,"
    " holdfast workflows list."
)


class ExplainedId(ShortId):
    """An id of a job or a workflow, or a unique prefix of one."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except NotFound:
            pass
        try:
            return ShortId("workflows").convert(value, param, ctx)
        except NotFound:
            raise NotFound(
                f"No job or workflow has an id that starts with {value}. {ACCEPTED}"
            ) from None

    def fail(
        self, message: str, param: click.Parameter | None = None, ctx: click.Context | None = None
    ) -> NoReturn:
        super().fail(f"{message}. {ACCEPTED}", param, ctx)


@click.command()
@click.argument("job_id", type=ExplainedId("jobs"))
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
            raise NotFound(f"No job or workflow has the id {job_id}. {ACCEPTED}") from None


def _short_ids(operator: Operator, facts: Mapping[str, Any]) -> dict[str, str]:
    """The prefixes of the jobs and batches that an explanation names."""
    nouns = {"letter_id": "jobs", "replay_job_id": "jobs", "batch_id": "batches"}
    found: dict[str, str] = {}
    for fact, noun in nouns.items():
        if facts.get(fact) is not None:
            found |= shorten(operator, noun, [str(facts[fact])])
    return found
