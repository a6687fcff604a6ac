"""Calls about costs. Written by tools/client_code.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from holdfast.client.models import read
from holdfast.client.operations import (
    Call,
)


@dataclass(frozen=True, slots=True)
class CostSummary:
    """The costs of some days, the most expensive group first, and their total."""

    since: date
    until: date
    by: tuple[str, ...]
    groups: tuple[CostRow, ...]
    total: CostRow


@dataclass(frozen=True, slots=True)
class CostRow:
    """The cost of a group of calls, in US dollars as text to keep every digit."""

    group: Mapping[str, str]
    calls: int
    unpriced: int
    unknown: int
    orphans: int
    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost_usd: str | None
    at_most_usd: str
    compared: int
    direct_usd: str | None
    saved_usd: str | None


def get_costs(
    *,
    by: Sequence[str] | None = None,
    since: date | None = None,
    until: date | None = None,
    org_id: str | None = None,
) -> Call[CostSummary]:
    """Report the cost of model calls. A key of a tenant sees its own."""
    return Call(
        "get_costs",
        "GET",
        "/v1/costs",
        lambda found: read(CostSummary, found),
        query={"by": by, "since": since, "until": until, "org_id": org_id},
    )
