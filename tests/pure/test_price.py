"""Prices: whole numbers, dated, and never guessed."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ConfigError, Settings
from holdfast.batch.price import PICO, Price, Prices, to_pico, to_usd
from holdfast.config import PriceSettings
from holdfast.provider.reply import Usage
from holdfast.provider.request import Request
from holdfast.provider.route import Route

DAY = date(2026, 6, 1)


def price(model: str = "m*", mode: str = "batch", **more: Any) -> PriceSettings:
    given = {"valid_from": DAY, "input": Decimal("2.5"), "output": Decimal(10), **more}
    return PriceSettings(provider="openai", model=model, mode=mode, **given)


def test_a_token_at_two_and_a_half_dollars_a_million_is_two_and_a_half_million_trillionths() -> (
    None
):
    found = Prices([price()]).of("openai", "m1", "batch", DAY)

    assert found is not None
    assert found.cost(Usage(input=1)) == 2_500_000
    assert (
        found.cost(Usage(input=1_000_000, output=500_000, reasoning=400_000)) == 7_500_000 * 10**6
    )


def test_a_class_of_tokens_without_a_price_has_no_cost_rather_than_none() -> None:
    found = Prices([price()]).of("openai", "m1", "batch", DAY)

    assert found is not None
    assert found.cost(Usage(input=1, cache_read=1)) is None
    assert found.cost(Usage(input=1, cache_read=0)) == 2_500_000


def test_a_class_that_is_said_to_cost_nothing_costs_nothing() -> None:
    found = Prices([price(cache_read=Decimal(0))]).of("openai", "m1", "batch", DAY)

    assert found is not None
    assert found.cost(Usage(cache_read=7)) == 0


@pytest.mark.parametrize(
    ("model", "day", "name"),
    [
        ("gpt-5", date(2026, 6, 1), "gpt-5 2026-06-01"),
        ("gpt-5-mini-2026-03-05", date(2026, 6, 30), "gpt-5-mini* 2026-06-01"),
        ("gpt-5-mini-2026-03-05", date(2026, 7, 1), "gpt-5-mini* 2026-07-01"),
        ("gpt-5-nano", date(2026, 7, 1), "gpt-5* 2026-06-01"),
        ("gpt-5", date(2026, 5, 31), None),
        ("o3", date(2026, 7, 1), None),
    ],
)
def test_the_nearest_name_and_then_the_newest_day_decide(
    model: str, day: date, name: str | None
) -> None:
    prices = Prices(
        [
            price("gpt-5*"),
            price("gpt-5-mini*"),
            price("gpt-5-mini*", valid_from=date(2026, 7, 1)),
            price("gpt-5"),
        ]
    )

    found = prices.of("openai", model, "batch", day)

    assert (None if found is None else found.name) == name
    assert prices.of("gemini", model, "batch", day) is None
    assert prices.of("openai", model, "async", day) is None


def test_the_billed_model_is_asked_for_first_and_then_the_one_that_was_wanted() -> None:
    prices = Prices([price("wanted"), price("billed", input=Decimal(1))])

    assert prices.charge("openai", ("billed", "wanted"), "batch", Usage(input=1), DAY).cost == 10**6
    assert (
        prices.charge("openai", ("else", "wanted"), "batch", Usage(input=1), DAY).cost == 2_500_000
    )
    assert prices.charge("openai", (None, "else"), "batch", Usage(input=1), DAY).cost is None


def test_a_charge_says_what_a_call_of_its_own_would_have_cost() -> None:
    prices = Prices([price(), price(mode="async", input=Decimal(5), output=Decimal(20))])

    charge = prices.charge("openai", ("m1",), "batch", Usage(input=10, output=2), DAY)

    assert (charge.cost, charge.direct) == (45_000_000, 90_000_000)
    assert (
        prices.charge("openai", ("m1",), "async", Usage(input=10, output=2), DAY).cost == 90_000_000
    )


def test_a_reserve_is_the_most_a_request_may_cost() -> None:
    prices = Prices([price()])

    asked = Request(("x" * 108,), max_output_tokens=10)
    assert asked.input_tokens == 100

    assert prices.reserve(Route("openai", "k", "m1"), asked, DAY) == 350_000_000
    assert prices.reserve(Route("openai", "k", "x"), asked, DAY) is None


USD = st.decimals(0, 1_000_000, places=6)
TOKENS = st.integers(0, 10**12)


@given(USD, USD, TOKENS, TOKENS)
def test_no_digit_is_ever_lost(one: Decimal, other: Decimal, many: int, more: int) -> None:
    found = Price.read(price(input=one, output=other))

    cost = found.cost(Usage(input=many, output=more))

    assert cost is not None
    assert Decimal(cost) / PICO == (one * many + other * more) / 10**6


@given(st.integers(0, 10**20))
def test_money_is_written_with_every_digit_that_it_has(pico: int) -> None:
    written = to_usd(pico)

    assert to_pico(Decimal(written)) == pico
    assert len(written.partition(".")[2]) >= 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"input": Decimal("0.0000001")},
        {"input": Decimal(-1)},
        {"input": Decimal("NaN")},
        {"input": 2.5},
        {"output": None},
        {"mode": "flex"},
        {"model": "a*b"},
        {"model": ""},
        {"valid_from": date.min},
    ],
    ids=str,
)
def test_a_price_that_cannot_be_used_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="PriceSettings cannot be used"):
        price(**wrong)


def test_a_price_that_is_said_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"names twice: openai, m\*, batch, 2026-06-01"):
        Settings(prices=(price(), price(input=Decimal(3))))
