"""Prices of tokens by date, in whole trillionths of a dollar. Nothing is estimated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from holdfast.workflows.budget import PICO as PICO
from holdfast.workflows.budget import to_pico as to_pico
from holdfast.workflows.budget import to_usd as to_usd
from holdfast_llm.batch.list_price import list_prices
from holdfast_llm.provider.reply import Usage
from holdfast_llm.provider.request import Request
from holdfast_llm.provider.route import ExecutionMode, Route
from holdfast_llm.settings import PriceSettings

_MILLION = 10**6
_ANY_LENGTH = 10**18
# The longest input that a price applies to, and the price.
_Band = tuple[int, "Price"]
_Bands = tuple[tuple[_Band, ...], ...]
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
        for tokens, price in zip(usage.by_class, self.per_token, strict=True):
            if not tokens:
                continue
            if price is None:
                return None
            total += tokens * price
        return total


# Not frozen: there is one for every entry of the ledger.
@dataclass(slots=True)
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
        # What applies to a call: the bands of each model that it names, in its mode and directly.
        self._of_call: dict[tuple[Any, ...], tuple[_Bands, _Bands]] = {}

    def find(
        self, provider: str, model: str, mode: str, day: date, *, input_tokens: int = 0
    ) -> Price | None:
        """The price of a model in a mode on a day, for that input length, if there is one."""
        return _first((self._bands_of(provider, model, mode, day),), input_tokens)

    def _bands_of(self, provider: str, model: str, mode: str, day: date) -> tuple[_Band, ...]:
        asked = (provider, model, str(mode), day)
        if asked not in self._found:
            self._found[asked] = self._find(*asked)
        return self._found[asked]

    def _find(self, provider: str, model: str, mode: str, day: date) -> tuple[_Band, ...]:
        """The deployment's price of the model, or else the list price."""
        own = (row for row in self._rows if row.valid_from <= day)
        # A list price applies on any day.
        listed = list_prices().get(provider)
        return _bands(own, provider, model, mode) or _bands(
            () if listed is None else listed.rows, provider, model, mode
        )

    def charge(
        self, provider: str, models: Sequence[str | None], mode: str, usage: Usage, day: date
    ) -> Charge:
        """The cost of *usage* by the first of *models* with a price: billed, then requested."""
        asked = (provider, *models, mode, day)
        found = self._of_call.get(asked)
        if found is None:
            named = [model for model in models if model]
            found = self._of_call[asked] = (
                tuple(self._bands_of(provider, model, mode, day) for model in named),
                tuple(self._bands_of(provider, model, ExecutionMode.ASYNC, day) for model in named),
            )
        tokens = usage.all_input
        price, direct = _first(found[0], tokens), _first(found[1], tokens)
        return Charge(
            None if price is None else price.cost(usage),
            None if direct is None else direct.cost(usage),
            None if price is None else price.name,
        )

    def reserve(self, route: Route, request: Request, day: date) -> int | None:
        """The maximum cost of a request, for budgets; None without a price."""
        wanted = Usage(input=request.input_tokens, output=request.max_output_tokens)
        mode = route.execution_mode
        # The input estimate is rather high, so a longer band than needed is safe.
        price = self.find(route.provider, route.model, mode, day, input_tokens=wanted.input)
        return None if price is None else price.cost(wanted)


def _first(bands: _Bands, tokens: int) -> Price | None:
    """The price of the first model that has one for an input of that length."""
    for of_model in bands:
        for up_to, price in of_model:
            if tokens <= up_to:
                return price
    return None


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
