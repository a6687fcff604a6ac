"""Prices of tokens by date, in whole trillionths of a dollar. Nothing is estimated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from holdfast_llm.batch.list_price import list_prices
from holdfast_llm.provider.reply import Usage
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.route import ExecutionMode, Route
from holdfast_llm.settings import PriceSettings

PICO = 10**12
"""Units per dollar."""

_MILLION = 10**6
_ANY_LENGTH = 10**18
# The longest input that a price applies to, and the price.
_Band = tuple[int, "Price"]
# The billed classes; reasoning is part of output.
CLASSES = ("input", "cache_read", "cache_write_short", "cache_write_long", "output")


@dataclass(frozen=True, slots=True)
class Price:
    """The price per token of each class; None if unknown."""

    name: str
    per_token: tuple[int | None, ...]

    @classmethod
    def read(cls, row: PriceSettings) -> Price:
        said = (getattr(row, name) for name in CLASSES)
        per_token = tuple(None if usd is None else to_pico(usd) // _MILLION for usd in said)
        return cls(f"{row.model} {row.valid_from.isoformat()}", per_token)

    def cost(self, usage: Usage) -> int | None:
        """The cost of *usage*; None if it has tokens of a class without a price."""
        total = 0
        for name, price in zip(CLASSES, self.per_token, strict=True):
            tokens = getattr(usage, name)
            if not tokens:
                continue
            if price is None:
                return None
            total += tokens * price
        return total


@dataclass(frozen=True, slots=True)
class Charge:
    """The cost, the cost as a direct call, and the applied price."""

    cost: int | None
    direct: int | None
    price: str | None


class Prices:
    """The dated prices of a deployment, and list prices for other models."""

    def __init__(self, rows: Iterable[PriceSettings]) -> None:
        # The first match wins: an exact name before a pattern, a longer pattern before a shorter
        # one, then the newest date, then the shortest input.
        self._rows = sorted(
            rows,
            key=lambda row: (
                not row.model.endswith("*"),
                len(row.model),
                row.valid_from,
                -(row.input_up_to or _ANY_LENGTH),
            ),
            reverse=True,
        )
        self._found: dict[tuple[str, str, str, date], tuple[_Band, ...]] = {}

    def find(
        self, provider: str, model: str, mode: str, day: date, *, input_tokens: int = 0
    ) -> Price | None:
        """The price of a model in a mode on a day, for that input length, if there is one."""
        asked = (provider, model, str(mode), day)
        if asked not in self._found:
            self._found[asked] = self._find(*asked)
        return next(
            (price for up_to, price in self._found[asked] if input_tokens <= up_to),
            None,
        )

    def _find(self, provider: str, model: str, mode: str, day: date) -> tuple[_Band, ...]:
        """The deployment's price of the model, or else the list price."""
        own = (row for row in self._rows if row.valid_from <= day)
        # A list price applies on any day.
        listed = list_prices().get(provider)
        return _bands(own, provider, model, mode) or _bands(
            () if listed is None else listed.rows, provider, model, mode
        )

    def charge(
        self, provider: str, models: Iterable[str | None], mode: str, usage: Usage, day: date
    ) -> Charge:
        """The cost of *usage* by the first of *models* with a price: billed, then requested."""
        named = [model for model in models if model]
        price = self._first(provider, named, mode, usage, day)
        direct = self._first(provider, named, ExecutionMode.ASYNC, usage, day)
        return Charge(
            None if price is None else price.cost(usage),
            None if direct is None else direct.cost(usage),
            None if price is None else price.name,
        )

    def _first(
        self, provider: str, models: list[str], mode: str, usage: Usage, day: date
    ) -> Price | None:
        tokens = usage.all_input
        found = (self.find(provider, model, mode, day, input_tokens=tokens) for model in models)
        return next((price for price in found if price is not None), None)

    def reserve(self, route: Route, request: Request, day: date) -> int | None:
        """The maximum cost of a request, for budgets; None without a price."""
        wanted = Usage(input=request.input_tokens, output=request.max_output_tokens)
        mode = route.execution_mode
        # The input estimate is rather high, so a longer band than needed is safe.
        price = self.find(route.provider, route.model, mode, day, input_tokens=wanted.input)
        return None if price is None else price.cost(wanted)


def _bands(
    rows: Iterable[PriceSettings], provider: str, model: str, mode: str
) -> tuple[_Band, ...]:
    """The prices of the first matching row and its other input lengths, shortest first."""
    fitting = [
        row
        for row in rows
        if (row.provider, row.mode) == (provider, mode) and _fits(row.model, model)
    ]
    same = [
        row
        for row in fitting
        if (row.model, row.valid_from) == (fitting[0].model, fitting[0].valid_from)
    ]
    found = [(row.input_up_to or _ANY_LENGTH, Price.read(row)) for row in same]
    return tuple(sorted(found, key=lambda band: band[0]))


def _fits(pattern: str, model: str) -> bool:
    if pattern.endswith("*"):
        return model.startswith(pattern[:-1])
    return pattern == model


def to_pico(usd: Decimal) -> int:
    """Convert dollars to whole trillionths."""
    return int(usd * PICO)


def to_usd(pico: int) -> str:
    """Convert trillionths to dollars, with all digits and at least two decimals."""
    whole, rest = divmod(pico, PICO)
    return f"{whole}.{f'{rest:012d}'.rstrip('0'):0<2}"
