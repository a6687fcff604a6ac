"""holdfast costs: the costs, and the costs of the same calls without batch processing."""

from __future__ import annotations

import pytest

from holdfast import FakeClock
from holdfast.store import open_store
from holdfast_llm.batch.cost import CallKind, record_calls
from holdfast_llm.batch.price import Prices
from holdfast_llm.provider.route import Route
from tests.batch.ledger import PRICES, call
from tests.faces.conftest import Run
from tests.story import ORG, OTHER_ORG


@pytest.fixture
def spent(url: str, clock: FakeClock) -> str:
    """Three items by batch for two tenants on 5 January 2026."""
    store = open_store(url, clock=clock)
    entries = [call(0), call(1), call(2, org_id=OTHER_ORG)]
    store.write(lambda tx: record_calls(tx, Prices(PRICES), entries))
    store.close()
    return url


def test_costs_are_printed_by_the_given_columns_with_a_total(run: Run, spent: str) -> None:
    done = run("costs", "--by", "org,day", "--since", "2026-01-01", "--json", db=spent)

    assert done.code == 0
    told = done.json
    assert (told["since"], told["by"]) == ("2026-01-01", ["org", "day"])
    assert [(one["org"], one["day"], one["calls"], one["cost_usd"]) for one in told["groups"]] == [
        (ORG, "2026-01-05", 2, "0.0028"),
        (OTHER_ORG, "2026-01-05", 1, "0.0014"),
    ]
    total = told["total"]
    assert (total["cost_usd"], total["direct_usd"], total["saved_usd"]) == (
        "0.0042", "0.0084", "0.0042",
    )  # fmt: skip


def test_the_table_says_the_same_for_people(run: Run, spent: str) -> None:
    done = run("costs", "--by", "language-pair,mode", "--since", "2026-01-05", db=spent)

    assert [line.split() for line in done.out.splitlines()] == [
        ["language_pair", "mode", "calls", "input_tokens", "output_tokens", "cost_usd",
         "direct_usd", "saved_usd"],
        ["en", "→", "es", "batch", "3", "3000", "300", "0.0042", "0.0084", "0.0042"],
        ["total", "-", "3", "3000", "300", "0.0042", "0.0084", "0.0042"],
    ]  # fmt: skip


def test_the_last_day_is_included_and_the_tenant_can_be_chosen(run: Run, spent: str) -> None:
    days = ("--since", "2026-01-05", "--until", "2026-01-05", "--json")

    assert run("costs", *days, "--org", OTHER_ORG, db=spent).json["total"]["calls"] == 1
    before = ("--since", "2026-01-01", "--until", "2026-01-04", "--json")
    assert run("costs", *before, db=spent).json["groups"] == []


def test_unpriced_calls_are_reported_and_not_counted_as_free(
    run: Run, url: str, clock: FakeClock
) -> None:
    store = open_store(url, clock=clock)
    entries = [
        call(0, Route("openai", "k", "strange")),
        call(1, kind=CallKind.UNKNOWN, usage=None, at_most_pico=5 * 10**11),
    ]
    store.write(lambda tx: record_calls(tx, Prices(PRICES), entries))
    store.close()

    done = run("costs", "--since", "2026-01-05", db=url)

    assert "1 calls have no price and are not included in the cost: add [[prices]]" in done.out
    assert "1 calls were never answered and may have been billed." in done.out
    assert "Calls of unknown cost may have cost up to 0.50 USD more." in done.out
    assert "cover 0 of 2 calls" in done.out
    (strange,) = (line for line in done.out.splitlines() if "strange" in line)
    assert strange.split()[-3:] == ["unknown", "-", "-"]
    as_json = run("costs", "--since", "2026-01-05", "--json", db=url).json
    assert [one["cost_usd"] for one in as_json["groups"]] == [None, None]
    assert as_json["total"]["cost_usd"] is None


def test_a_cost_that_is_known_in_part_says_so(run: Run, spent: str, clock: FakeClock) -> None:
    store = open_store(spent, clock=clock)
    store.write(lambda tx: record_calls(tx, Prices(()), [call(7, Route("openai", "k", "strange"))]))
    store.close()

    done = run("costs", "--by", "provider", "--since", "2026-01-05", db=spent)

    assert "0.0042 + unknown" in done.out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--by", "weekday"), "weekday is not among language-pair, provider"),
        (("--by", ","), "nothing is not among"),
        (("--org", "acme"), "--org"),
        (("--since", "soon"), "--since"),
        (("--since", "2026-02-01", "--until", "2026-01-01"), "it is after the last day"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(
    run: Run, migrated_sqlite_url: str, options: tuple[str, ...], says: str
) -> None:
    done = run("costs", *options, db=migrated_sqlite_url)

    assert done.code == 2
    assert says in done.err
