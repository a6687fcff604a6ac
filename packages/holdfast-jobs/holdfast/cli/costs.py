"""holdfast costs"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from holdfast.cli.given import app_of, json_option, print_json, print_table
from holdfast.ids import read_uuid
from holdfast_llm.batch.cost import By, Spent, sum_costs
from holdfast_llm.batch.price import to_usd

DAYS = 30
TOKENS = (
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
)
COUNTS = ("calls", "unpriced", "unknown", "orphans")
_DAY = click.DateTime(["%Y-%m-%d"])


@click.command()
@click.option(
    "--by",
    "asked",
    default="provider,model,mode",
    show_default=True,
    help=f"What to tell apart, separated by commas: {', '.join(By)}.",
)
@click.option("--since", type=_DAY, help=f"The first day, by UTC.  [default: {DAYS} days ago]")
@click.option("--until", type=_DAY, help="The last day, by UTC.  [default: today]")
@click.option("--org", "org_id", help="Only this tenant's.")
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
    """Tell what providers were paid, and what calls outside the batch lane would have cost."""
    by = _by(asked)
    org_id = None if org_id is None else _org(org_id)
    with app_of(ctx, required=False) as hf:
        today = hf.store.clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
        first = today - timedelta(days=DAYS) if since is None else since.replace(tzinfo=UTC)
        last = today if until is None else until.replace(tzinfo=UTC)
        if first > last:
            raise click.BadParameter("it is after the last day", param_hint="--since")
        end = last + timedelta(days=1)
        found = hf.store.read(lambda tx: sum_costs(tx, by, first, end, org_id))
    if as_json:
        days = {"since": first.date().isoformat(), "until": last.date().isoformat()}
        groups = [_document(one) for one in found]
        print_json(
            {**days, "by": [one.value for one in by], "groups": groups, "total": _total(found)}
        )
        return
    _print(by, found)


def _by(asked: str) -> list[By]:
    words = [word.strip() for word in asked.split(",") if word.strip()]
    wrong = [word for word in words if word not in tuple(By)]
    if wrong or not words:
        raise click.BadParameter(
            f"{', '.join(wrong) or 'nothing'} is not among {', '.join(By)}", param_hint="--by"
        )
    return [By(word) for word in dict.fromkeys(words)]


def _org(text: str) -> str:
    try:
        return read_uuid(text)
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint="--org") from exc


def _document(one: Spent) -> dict[str, Any]:
    """A group as JSON: money as text, because a number would lose digits."""
    return {
        **{name.replace("-", "_"): value for name, value in one.group.items()},
        **{name: getattr(one, name) for name in (*COUNTS, *TOKENS)},
        # A cost that is not known is not a cost of nothing.
        "cost_usd": None if one.calls == one.unpriced > 0 else to_usd(one.cost_pico),
        "at_most_usd": to_usd(one.at_most_pico),
        "compared": one.compared,
        "direct_usd": to_usd(one.direct_pico) if one.compared else None,
        "saved_usd": _signed(one.saved_pico) if one.compared else None,
    }


def _signed(pico: int) -> str:
    return f"-{to_usd(-pico)}" if pico < 0 else to_usd(pico)


def _total(found: Sequence[Spent]) -> dict[str, Any]:
    names = [name for name in Spent.__slots__ if name != "group"]
    return _document(
        Spent({}, **{name: sum(getattr(one, name) for one in found) for name in names})
    )


def _cost(row: Mapping[str, Any]) -> str:
    """The cost of a group for people: what is not known is said."""
    if row["cost_usd"] is None:
        return "unknown"
    return f"{row['cost_usd']} + unknown" if row["unpriced"] else str(row["cost_usd"])


def _print(by: Sequence[By], found: Sequence[Spent]) -> None:
    total = _total(found)
    rows = [_document(one) for one in found]
    named = [one.value.replace("-", "_") for one in by]
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
            f"\n{total['compared']} of {total['calls']} calls have a price in both modes; direct "
            "and saved are about these."
        )
    if total["unpriced"] > total["unknown"]:
        click.echo(
            f"{total['unpriced'] - total['unknown']} calls have no price and are not in the cost: "
            "add [[prices]] to holdfast.toml for what is called from then on."
        )
    if total["unknown"]:
        click.echo(f"{total['unknown']} calls were never answered and may have been billed.")
    if total["at_most_usd"] != "0.00":
        click.echo(f"What is not known may have cost up to {total['at_most_usd']} more.")
