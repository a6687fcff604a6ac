"""Prices: what tokens cost, by the day. Whole trillionths of a dollar, and no guesses. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from holdfast.config import PriceSettings
from holdfast.provider.reply import Usage
from holdfast.provider.request import Request
from holdfast.provider.route import ExecutionMode, Route

PICO = 10**12
"""So many of our units are a dollar."""

_MILLION = 10**6
# The classes that are billed; reasoning is inside output.
CLASSES = ("input", "cache_read", "cache_write_short", "cache_write_long", "output")


@dataclass(frozen=True, slots=True)
class Price:
    """What a token of each class costs; None where nobody said."""

    name: str
    per_token: tuple[int | None, ...]

    @classmethod
    def read(cls, row: PriceSettings) -> Price:
        said = (getattr(row, name) for name in CLASSES)
        per_token = tuple(None if usd is None else to_pico(usd) // _MILLION for usd in said)
        return cls(f"{row.model} {row.valid_from.isoformat()}", per_token)

    def cost(self, usage: Usage) -> int | None:
        """What *usage* costs; None if it has tokens of a class without a price."""
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
    """What something costs, what it would cost by a call of its own, and by which price."""

    cost: int | None
    direct: int | None
    price: str | None


class Prices:
    """The dated prices of a deployment."""

    def __init__(self, rows: Iterable[PriceSettings]) -> None:
        # The first that fits is the right one: the name itself before a pattern, a longer pattern
        # before a shorter one, and of one pattern the newest.
        self._rows = sorted(
            rows,
            key=lambda row: (not row.model.endswith("*"), len(row.model), row.valid_from),
            reverse=True,
        )
        self._found: dict[tuple[str, str, str, date], Price | None] = {}

    def of(self, provider: str, model: str, mode: str, day: date) -> Price | None:
        """The price of a model in a mode on a day; None if nobody has named one."""
        asked = (provider, model, str(mode), day)
        if asked not in self._found:
            self._found[asked] = self._find(*asked)
        return self._found[asked]

    def _find(self, provider: str, model: str, mode: str, day: date) -> Price | None:
        for row in self._rows:
            if (row.provider, row.mode) != (provider, mode) or row.valid_from > day:
                continue
            if _fits(row.model, model):
                return Price.read(row)
        return None

    def charge(
        self, provider: str, models: Iterable[str | None], mode: str, usage: Usage, day: date
    ) -> Charge:
        """What *usage* costs by the first of *models* that has a price: billed, then asked for."""
        named = [model for model in models if model]
        price = self._first(provider, named, mode, day)
        direct = self._first(provider, named, ExecutionMode.ASYNC, day)
        return Charge(
            None if price is None else price.cost(usage),
            None if direct is None else direct.cost(usage),
            None if price is None else price.name,
        )

    def _first(self, provider: str, models: list[str], mode: str, day: date) -> Price | None:
        found = (self.of(provider, model, mode, day) for model in models)
        return next((price for price in found if price is not None), None)

    def reserve(self, route: Route, request: Request, day: date) -> int | None:
        """What a request may cost at most, for its budget; None without a price."""
        price = self.of(route.provider, route.model, route.execution_mode, day)
        wanted = Usage(input=request.input_tokens, output=request.max_output_tokens)
        return None if price is None else price.cost(wanted)


def _fits(pattern: str, model: str) -> bool:
    if pattern.endswith("*"):
        return model.startswith(pattern[:-1])
    return pattern == model


def to_pico(usd: Decimal) -> int:
    """Dollars as whole trillionths."""
    return int(usd * PICO)


def to_usd(pico: int) -> str:
    """Trillionths as dollars, every digit that there is and at least two decimals."""
    whole, rest = divmod(pico, PICO)
    return f"{whole}.{f'{rest:012d}'.rstrip('0'):0<2}"
