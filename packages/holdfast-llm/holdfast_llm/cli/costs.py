"""holdfast costs"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from holdfast.cli.given import ShortId, app_of, json_option, operator_of, print_json, print_table
from holdfast.errors import InvalidArgument
from holdfast_llm.operate.costs import DEFAULT_DAYS, By, CostFilter, CostGroup, CostReport

_DAY = click.DateTime(["%Y-%m-%d"])


@click.command()
@click.option(
    "--by",
    "asked",
    default="provider,model,mode",
    show_default=True,
    help=f"Columns to group by, comma-separated: {', '.join(By)}.",
)
@click.option("--since", type=_DAY, help=f"First day (UTC).  [default: {DEFAULT_DAYS} days ago]")
@click.option("--until", type=_DAY, help="Last day (UTC).  [default: today]")
@click.option("--org", "org_id", type=ShortId("tenants"), help="Only this tenant.")
@json_option
@click.pass_context
def costs(
    ctx: click.Context,
    asked: str,
    since: datetime | None,
    until: datetime | None,
    org_id: str | None,
    as_json: bool,
) -> None:
    """Report the cost of model requests.

    For direct calls it also shows what they would have cost in a batch.
    """
    wanted = CostFilter(
        tuple(_by(asked)),
        None if since is None else since.date(),
        None if until is None else until.date(),
        org_id,
    )
    with app_of(ctx, required=False) as hf:
        try:
            report = operator_of(hf).costs.report(wanted)
        except InvalidArgument as exc:
            if "since" not in exc.fields:
                raise
            raise click.BadParameter("it is after the last day", param_hint="--since") from exc
    if as_json:
        print_json(
            {
                "since": report.since.isoformat(),
                "until": report.until.isoformat(),
                "by": [one.value for one in report.by],
                "groups": [_document(one) for one in report.groups],
                "total": _document(report.total),
            }
        )
        return
    _print(report)


def _by(asked: str) -> list[By]:
    words = [word.strip() for word in asked.split(",") if word.strip()]
    wrong = [word for word in words if word not in tuple(By)]
    if wrong or not words:
        raise click.BadParameter(
            f"{', '.join(wrong) or 'nothing'} is not among {', '.join(By)}", param_hint="--by"
        )
    return [By(word) for word in dict.fromkeys(words)]


def _document(one: CostGroup) -> dict[str, Any]:
    """The fields of a group as one flat table."""
    found = asdict(one)
    group = found.pop("group")
    return {**{name.replace("-", "_"): value for name, value in group.items()}, **found}


def _cost(row: Mapping[str, Any]) -> str:
    """The cost of a group as text, including unknown costs."""
    if row["cost_usd"] is None:
        return "unknown"
    return f"{row['cost_usd']} + unknown" if row["unpriced"] else str(row["cost_usd"])


def _print(report: CostReport) -> None:
    total = _document(report.total)
    if not report.groups:
        click.echo(
            f"No model requests from {report.since:%F} to {report.until:%F}. Jobs declared with"
            " hf.batch record their cost here; other days: --since and --until"
        )
        return
    rows = [_document(one) for one in report.groups]
    named = [one.value.replace("-", "_") for one in report.by]
    columns = (
        *named,
        "calls",
        "input_tokens",
        "output_tokens",
        "cost_usd",
        "direct_usd",
        "saved_usd",
    )
    shown = [{**row, "cost_usd": _cost(row)} for row in (*rows, {**total, named[0]: "total"})]
    print_table(shown, columns)
    if total["compared"] < total["calls"]:
        click.echo(
            f"\nDirect and saved amounts cover {total['compared']} of {total['calls']} calls:"
            " those with a price in both modes."
        )
    if total["unpriced"] > total["unknown"]:
        click.echo(
            f"{total['unpriced'] - total['unknown']} calls have no price and are not included in"
            " the cost: add [[prices]] to holdfast.toml. It applies to later calls."
        )
    if total["unknown"]:
        click.echo(f"{total['unknown']} calls were never answered and may have been billed.")
    if total["at_most_usd"] != "0.00":
        click.echo(f"Calls of unknown cost may have cost up to {total['at_most_usd']} USD more.")
