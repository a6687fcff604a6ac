"""Budgets: items beyond a tenant's daily budget wait, and no others."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from holdfast import FakeClock, Holdfast, Settings
from holdfast.store import Store, Tx, open_store
from holdfast_llm.batch.budget import Hold, Want, hold_over_budget, limit_of, spent_over_budget
from holdfast_llm.batch.cost import CallKind, record_calls
from holdfast_llm.batch.price import PICO, Prices
from holdfast_llm.provider.reply import Usage
from holdfast_llm.settings import BudgetSettings
from tests.batch.ledger import PRICES, call, end_item, put_open_item, store_item
from tests.story import ORG, OTHER_ORG

# An entry of the ledger costs 1,400 millionths of a dollar.
ENTRY = 1400 * 10**6


def budgets(**usd: str) -> Settings:
    names = {"org": ORG, "other": OTHER_ORG, "default": "default"}
    return Settings(
        budgets={names[name]: BudgetSettings(usd_per_day=Decimal(x)) for name, x in usd.items()}
    )


def spend(store: Store, *numbers: int, occurred_at: datetime | None = None) -> None:
    entries = [call(number, occurred_at=occurred_at) for number in numbers]
    store.write(lambda tx: record_calls(tx, Prices(PRICES), entries))


def over(store: Store, settings: Settings, *orgs: str) -> dict[str, datetime]:
    return store.read(lambda tx: spent_over_budget(tx, settings, orgs or (ORG, OTHER_ORG)))


def wanting(many: int, reserve_pico: int | None = ENTRY, org_id: str = ORG) -> list[Want]:
    return [Want(f"{org_id}-{number}", org_id, reserve_pico) for number in range(many)]


def held(store: Store, settings: Settings, *wants: Want) -> dict[str, Hold]:
    return store.write(lambda tx: hold_over_budget(tx, settings, wants))


MIDNIGHT = datetime.fromisoformat("2026-01-06T00:00:00Z")


def test_without_a_budget_nothing_is_asked_and_nothing_held(store: Store) -> None:
    def work(tx: Tx) -> None:
        tx._fetch = None  # type: ignore[method-assign,assignment]
        assert spent_over_budget(tx, Settings(), [ORG]) == {}
        assert hold_over_budget(tx, budgets(other="1"), wanting(3)) == {}

    store.read(work)


def test_a_tenant_that_has_spent_its_day_waits_for_the_next_one(
    store: Store, clock: FakeClock
) -> None:
    settings = budgets(org="0.0028")
    spend(store, 0)
    assert over(store, settings) == {}

    spend(store, 1)

    assert over(store, settings) == {ORG: MIDNIGHT}
    clock.advance(MIDNIGHT - clock.now())
    assert over(store, settings) == {}


def test_one_tenants_budget_holds_no_other(store: Store) -> None:
    spend(store, 0, 1)

    assert over(store, budgets(org="0.001", other="0.001")) == {ORG: MIDNIGHT}
    assert over(store, budgets(default="0.001")) == {ORG: MIDNIGHT}
    assert over(store, budgets(org="5", default="0.001")) == {}


def test_what_was_spent_yesterday_does_not_count_today(store: Store, clock: FakeClock) -> None:
    spend(store, 0, 1, occurred_at=clock.now().replace(hour=0) - timedelta(milliseconds=1))

    assert over(store, budgets(org="0.0001")) == {}


def test_what_is_on_its_way_counts_until_it_has_ended(store: Store, clock: FakeClock) -> None:
    settings = budgets(org="0.0014")
    put_open_item(store, 0, ENTRY)
    put_open_item(store, 1, None)

    assert over(store, settings) == {ORG: clock.now() + timedelta(minutes=15)}

    end_item(store, 0)
    assert over(store, settings) == {}


def test_a_call_that_may_have_been_billed_counts_as_if_it_was(store: Store) -> None:
    unknown = call(kind=CallKind.UNKNOWN, usage=None, at_most_pico=PICO)
    store.write(lambda tx: record_calls(tx, Prices(PRICES), [unknown]))

    assert over(store, budgets(org="1")) == {ORG: MIDNIGHT}


def test_as_many_jobs_go_as_the_budget_has_room_for_and_the_others_wait(
    store: Store, clock: FakeClock
) -> None:
    settings = budgets(org="0.0070")
    spend(store, 0)
    put_open_item(store, 0, ENTRY)

    found = held(store, settings, *wanting(5), *wanting(2, org_id=OTHER_ORG))

    # The cost of five entries: one is spent and one in flight, so three of the five fit.
    later = clock.now() + timedelta(minutes=15)
    waits = Hold("budget", later)
    assert found == {f"{ORG}-3": waits, f"{ORG}-4": waits}


def test_a_small_job_passes_a_large_one_that_does_not_fit(store: Store) -> None:
    large, small = Want("large", ORG, 10 * ENTRY), Want("small", ORG, ENTRY)

    assert set(held(store, budgets(org="0.002"), large, small)) == {"large"}


def test_a_budget_of_nothing_lets_nothing_go_priced_or_not(store: Store) -> None:
    assert held(store, budgets(org="0"), *wanting(1), Want("unpriced", ORG, None)) == {
        f"{ORG}-0": Hold("exceeds_budget", MIDNIGHT),
        "unpriced": Hold("unpriced", MIDNIGHT),
    }


def test_what_has_no_price_is_not_sent_where_a_budget_applies(store: Store) -> None:
    wants = (Want("unpriced", ORG, None), Want("free", OTHER_ORG, None), Want("dear", ORG, PICO))

    found = held(store, budgets(org="0.5"), *wants)

    assert {job_id: hold.reason for job_id, hold in found.items()} == {
        "unpriced": "unpriced",
        "dear": "exceeds_budget",
    }


def test_an_answer_that_turns_out_to_have_no_price_counts_with_what_was_reserved(
    store: Store,
) -> None:
    put_open_item(store, 0, 2 * PICO)
    strange = call(0, usage=Usage(input=1, cache_write_long=1))
    store.write(lambda tx: record_calls(tx, Prices(PRICES), [strange]))
    end_item(store, 0)

    assert over(store, budgets(org="1")) == {ORG: MIDNIGHT}


@pytest.mark.both_databases
def test_two_submitters_at_once_do_not_spend_the_same_money(
    hf: Holdfast, url: str, clock: FakeClock
) -> None:
    """The second decides before the first commits its decision, unless it has to wait."""
    settings = budgets(org="0.0014")
    other = open_store(url, clock=clock)
    has_decided, other_has_decided = threading.Event(), threading.Event()
    went: list[str] = []

    def submit(tx: Tx) -> None:
        if not hold_over_budget(tx, settings, wanting(1)):
            store_item(tx, 0, ENTRY)
            went.append("first")
        has_decided.set()
        # True only if the other one did not have to wait.
        assert not other_has_decided.wait(timeout=0.5)

    def submit_too(tx: Tx) -> None:
        found = hold_over_budget(tx, settings, wanting(1))
        other_has_decided.set()
        if not found:
            went.append("second")

    def run_other() -> None:
        has_decided.wait(timeout=20)
        other.write(submit_too)

    thread = threading.Thread(target=run_other)
    thread.start()
    hf.store.write(submit)
    thread.join(timeout=60)
    other.close()

    assert went == ["first"]


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        (Settings(), None),
        (budgets(default="2"), 2 * PICO),
        (budgets(default="2", org="0.000001"), 10**6),
        (budgets(other="1"), None),
    ],
)
def test_a_tenants_own_budget_goes_before_that_of_all(
    settings: Settings, limit: int | None
) -> None:
    assert limit_of(settings, ORG) == limit
