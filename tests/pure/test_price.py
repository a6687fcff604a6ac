"""Prices: whole numbers, dated, and never estimated."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ConfigError, Settings
from holdfast_llm.batch.list_price import list_prices
from holdfast_llm.batch.price import PICO, Price, Prices, to_pico, to_usd
from holdfast_llm.provider.reply import Usage
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.route import Route
from holdfast_llm.settings import PriceSettings, doubled_prices

DAY = date(2026, 6, 1)


def price(model: str = "m*", mode: str = "batch", **more: Any) -> PriceSettings:
    given = {"valid_from": DAY, "input": Decimal("2.5"), "output": Decimal(10), **more}
    return PriceSettings(provider="openai", model=model, mode=mode, **given)


def test_a_token_at_two_and_a_half_dollars_a_million_is_two_and_a_half_million_trillionths() -> (
    None
):
    found = Prices([price()]).find("openai", "m1", "batch", DAY)

    assert found is not None
    assert found.cost(Usage(input=1)) == 2_500_000
    assert (
        found.cost(Usage(input=1_000_000, output=500_000, reasoning=400_000)) == 7_500_000 * 10**6
    )


def test_a_class_of_tokens_without_a_price_has_no_cost_rather_than_none() -> None:
    found = Prices([price()]).find("openai", "m1", "batch", DAY)

    assert found is not None
    assert found.cost(Usage(input=1, cache_read=1)) is None
    assert found.cost(Usage(input=1, cache_read=0)) == 2_500_000


def test_a_class_that_is_said_to_cost_nothing_costs_nothing() -> None:
    found = Prices([price(cache_read=Decimal(0))]).find("openai", "m1", "batch", DAY)

    assert found is not None
    assert found.cost(Usage(cache_read=7)) == 0


@pytest.mark.parametrize(
    ("model", "day", "name"),
    [
        ("try-5", date(2026, 6, 1), "try-5 2026-06-01"),
        ("try-5-mini-2026-03-05", date(2026, 6, 30), "try-5-mini* 2026-06-01"),
        ("try-5-mini-2026-03-05", date(2026, 7, 1), "try-5-mini* 2026-07-01"),
        ("try-5-nano", date(2026, 7, 1), "try-5* 2026-06-01"),
        ("try-5", date(2026, 5, 31), None),
        ("other", date(2026, 7, 1), None),
    ],
)
def test_the_nearest_name_and_then_the_newest_day_decide(
    model: str, day: date, name: str | None
) -> None:
    prices = Prices(
        [
            price("try-5*"),
            price("try-5-mini*"),
            price("try-5-mini*", valid_from=date(2026, 7, 1)),
            price("try-5"),
        ]
    )

    found = prices.find("openai", model, "batch", day)

    assert (None if found is None else found.name) == name
    assert prices.find("gemini", model, "batch", day) is None
    assert prices.find("openai", model, "async", day) is None


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
    with pytest.raises(ConfigError, match="Invalid PriceSettings"):
        price(**wrong)


def test_a_price_that_is_said_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"names twice: openai, m\*, batch, 2026-06-01"):
        Settings(prices=(price(), price(input=Decimal(3))))


# -- list prices


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "gpt-5.4-mini"),
        ("openai", "gpt-4.1-2025-04-14"),
        ("anthropic", "claude-haiku-4-5-20251001"),
        ("anthropic", "claude-sonnet-5"),
        ("gemini", "gemini-2.5-flash"),
        ("mistral", "mistral-large-2512"),
    ],
)
@pytest.mark.parametrize("mode", ["batch", "async"])
def test_current_models_have_a_list_price_in_both_modes(
    provider: str, model: str, mode: str
) -> None:
    found = Prices([]).find(provider, model, mode, DAY)

    assert found is not None
    assert found.cost(Usage(input=1, output=1))


def test_a_price_of_the_deployment_goes_before_the_list_price() -> None:
    prices = Prices([price("gpt-5.4-mini", input=Decimal(7), output=Decimal(8))])

    assert prices.charge("openai", ["gpt-5.4-mini"], "batch", Usage(input=1), DAY).cost == 7 * 10**6
    # The price list has no prices for direct calls or for other models.
    assert prices.find("openai", "gpt-5.4-mini", "async", DAY) == Prices([]).find(
        "openai", "gpt-5.4-mini", "async", DAY
    )
    assert prices.find("openai", "gpt-5.4-nano", "batch", DAY) is not None


def test_a_model_that_only_begins_like_a_listed_one_has_no_price() -> None:
    assert Prices([]).find("openai", "gpt-5.4-mini-of-ours", "batch", DAY) is None
    assert Prices([]).find("our-own-server", "gpt-5.4-mini", "batch", DAY) is None


def test_a_batch_has_the_price_that_its_provider_says_and_not_simply_half() -> None:
    used = Usage(input=1_000_000, cache_read=1_000_000, output=1_000_000)
    openai = Prices([]).charge("openai", ["gpt-4.1"], "batch", used, DAY)
    gemini = Prices([]).charge("gemini", ["gemini-2.5-flash"], "batch", used, DAY)

    assert openai.cost == to_pico(Decimal("1") + Decimal("0.25") + Decimal("4"))
    # Gemini charges tokens from the cache in full.
    assert gemini.cost == to_pico(Decimal("0.15") + Decimal("0.03") + Decimal("1.25"))


def test_the_length_of_the_input_decides_between_two_prices_of_a_model() -> None:
    prices = Prices(
        [price("m", input_up_to=1000), price("m", input=Decimal(5), output=Decimal(20))]
    )

    def cost(**tokens: int) -> int | None:
        return prices.charge("openai", ["m"], "batch", Usage(**tokens), DAY).cost

    assert cost(input=1000) == 1000 * 2_500_000
    assert cost(input=1001) == 1001 * 5_000_000
    assert Prices([price("m", input_up_to=1000)]).find(
        "openai", "m", "batch", DAY, input_tokens=1001
    ) is None  # fmt: skip


def test_every_list_price_says_where_and_when_it_was_read() -> None:
    for listed in list_prices().values():
        assert listed.source.startswith("https://")
        assert listed.checked > date(2026, 6, 1)
        assert not doubled_prices(listed.rows)
