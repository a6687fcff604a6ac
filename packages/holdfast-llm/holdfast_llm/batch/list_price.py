"""List prices that come with Holdfast, with their source page and date."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache
from importlib.resources import files
from typing import Any

from holdfast_llm.provider.route import ExecutionMode
from holdfast_llm.settings import PriceSettings

STALE_AFTER = timedelta(days=90)
"""The age after which a list price must be checked again."""

_CLASSES = ("input", "cache_read", "cache_write_short", "cache_write_long", "output")


@dataclass(frozen=True, slots=True)
class ListPrices:
    """The prices of one provider, with source and date."""

    provider: str
    source: str
    checked: date
    rows: tuple[PriceSettings, ...]


@lru_cache(maxsize=1)
def list_prices() -> Mapping[str, ListPrices]:
    """The prices of every provider in ``list_prices.toml``, by the provider's name."""
    text = files("holdfast_llm.batch").joinpath("list_prices.toml").read_text(encoding="utf-8")
    found = tomllib.loads(text, parse_float=Decimal)
    return {
        name: ListPrices(name, part["source"], part["checked"], tuple(_rows(name, part)))
        for name, part in found.items()
    }


def _rows(provider: str, part: Mapping[str, Any]) -> Iterator[PriceSettings]:
    for listed in part["models"]:
        prices = {name: Decimal(listed[name]) for name in _CLASSES if name in listed}
        in_batch = {name: usd * Decimal(part["batch"][name]) for name, usd in prices.items()}
        # "-2*" are the dated snapshots of a model: gpt-5-2025-08-07, claude-sonnet-5-20260630.
        for model in (listed["model"], f"{listed['model']}-2*"):
            for mode, usd in ((ExecutionMode.ASYNC, prices), (ExecutionMode.BATCH, in_batch)):
                yield PriceSettings(
                    provider=provider,
                    model=model,
                    mode=mode.value,
                    valid_from=part["checked"],
                    input_up_to=listed.get("input_up_to"),
                    source=part["source"],
                    **usd,
                )
