"""Costs of model calls, by provider, model, day and other dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from holdfast.arguments import checked, each, instance, named_id, word
from holdfast.operate.authorization import Action, OperatorContext
from holdfast.operate.page import read_filter
from holdfast.operate.refusal import InvalidAction
from holdfast_llm.batch.cost import By, Spent, sum_costs
from holdfast_llm.batch.price import to_usd

__all__ = ["By", "CostFilter", "CostGroup", "CostReport", "Costs"]

DEFAULT_DAYS = 30
DEFAULT_BY = (By.PROVIDER, By.MODEL, By.MODE)


@dataclass(frozen=True, slots=True)
class CostFilter:
    """A filter and grouping of calls. Days are UTC and both inclusive.

    Without *since* the report begins 30 days ago; without *until* it ends today.
    """

    by: tuple[By | str, ...] = DEFAULT_BY
    since: date | None = None
    until: date | None = None
    org_id: str | None = None

    def check(self) -> CostFilter:
        """The filter in stored form. Raises InvalidAction with every invalid field."""
        checks = {"by": _read_by, "since": _read_day, "until": _read_day, "org_id": named_id}
        return read_filter(self, checks)


def _read_by(value: object) -> tuple[By, ...]:
    found = dict.fromkeys(each(word(By))(value))
    if not found:
        raise ValueError(f"must be one or more of {', '.join(By)}")
    return tuple(found)


def _read_day(value: object) -> date:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise ValueError("must be a date")
    return value


@dataclass(frozen=True, slots=True)
class CostGroup:
    """The cost of one group of calls, in US dollars as text to keep every digit.

    *cost_usd* is None if no call of the group has a price. *direct_usd* is the cost of the
    *compared* calls outside of batches.
    """

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

    @classmethod
    def from_spent(cls, spent: Spent) -> CostGroup:
        return cls(
            spent.group,
            spent.calls,
            spent.unpriced,
            spent.unknown,
            spent.orphans,
            spent.input_tokens,
            spent.cache_read_tokens,
            spent.cache_write_tokens,
            spent.output_tokens,
            spent.reasoning_tokens,
            # An unknown cost is not zero.
            None if spent.calls == spent.unpriced > 0 else to_usd(spent.cost_pico),
            to_usd(spent.at_most_pico),
            spent.compared,
            to_usd(spent.direct_pico) if spent.compared else None,
            _signed(spent.saved_pico) if spent.compared else None,
        )


@dataclass(frozen=True, slots=True)
class CostReport:
    """The costs of some days, the most expensive group first, and their total."""

    since: date
    until: date
    by: tuple[By, ...]
    groups: tuple[CostGroup, ...]
    total: CostGroup


@checked(InvalidAction, checks={"wanted": instance(CostFilter)})
class Costs:
    """The costs that the actor of *context* may see."""

    def __init__(self, context: OperatorContext) -> None:
        self.context = context

    def report(self, wanted: CostFilter | None = None) -> CostReport:
        """Report the cost of model calls; a context of one tenant sees its own."""
        wanted = (wanted or CostFilter()).check()
        org_id = self.context.tenant_for(Action.READ_COSTS, wanted.org_id, subject="costs")
        until = wanted.until or self.context.app.clock.now().astimezone(UTC).date()
        since = wanted.since
        if since is None:
            since = self.context.app.clock.now().astimezone(UTC).date() - timedelta(DEFAULT_DAYS)
        if since > until:
            raise InvalidAction({"since": "must not be after until"})
        by = tuple(By(one) for one in wanted.by)
        first, end = _midnight(since), _midnight(until) + timedelta(days=1)
        found = self.context.store.read(lambda tx: sum_costs(tx, by, first, end, org_id))
        groups = tuple(CostGroup.from_spent(spent) for spent in found)
        return CostReport(since, until, by, groups, CostGroup.from_spent(_total(found)))


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _signed(pico: int) -> str:
    return f"-{to_usd(-pico)}" if pico < 0 else to_usd(pico)


def _total(found: Sequence[Spent]) -> Spent:
    names = [name for name in Spent.__slots__ if name != "group"]
    return Spent({}, **{name: sum(getattr(one, name) for one in found) for name in names})
