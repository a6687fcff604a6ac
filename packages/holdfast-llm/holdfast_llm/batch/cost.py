"""The ledger of calls: one row per item or call with its cost, written once."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, Self

from holdfast.clock import write_instant
from holdfast.event import ModelUsed
from holdfast.store import Statements, Tx
from holdfast_llm.batch.price import Charge, Prices
from holdfast_llm.provider.reply import Answer, Reply, Usage
from holdfast_llm.provider.route import GROUP

SQL = Statements("holdfast_llm.batch", "cost.sql")

NOBODY = "00000000-0000-0000-0000-000000000000"
"""The tenant of costs that cannot be divided among tenants."""

WHOLE_BATCH = -1
"""The index of an entry for a whole batch."""


class CallKind(StrEnum):
    """The billing status of an entry."""

    # The provider reported the usage, even if the answer is unusable.
    ACTUAL = "actual"
    # The provider did not run it, or does not bill it.
    FREE = "free"
    # It may have been run and billed; the amount is unknown.
    UNKNOWN = "unknown"
    # A duplicate batch that should not exist.
    ORPHAN = "orphan"


# Not frozen: there is one for every answer, and with 15 fields a frozen one takes 1.8 us to create.
@dataclass(slots=True)
class CallEntry:
    """One row of the ledger before it has a price. The first five fields are its key.

    *group_key* has provider, model, mode, lane and locales. *at_most_pico* is for UNKNOWN: the
    amount that a budget counts. It defaults to the reserve of the item. Without *usage* an entry is
    FREE or of unknown cost.
    """

    org_id: str
    batch_id: str
    batch_item_index: int
    provider_batch_id: str
    kind: CallKind
    account: str
    group_key: str
    usage: Usage | None = None
    job_id: str | None = None
    job_type: str | None = None
    attempt: int | None = None
    model_billed: str | None = None
    provider_request_id: str | None = None
    occurred_at: datetime | None = None
    at_most_pico: int | None = None

    @classmethod
    def from_answer(cls, answer: Answer, **known: Any) -> Self:
        """The entry of an item's answer; *known* are the fields that the answer does not have."""
        return cls(
            kind=kind_of(answer),
            usage=answer.usage,
            model_billed=answer.model,
            provider_request_id=answer.provider_request_id,
            occurred_at=answer.finished_at,
            **known,
        )


def kind_of(answer: Answer) -> CallKind:
    """The billing status of an answer. A reply without usage was still billed."""
    if answer.usage is not None:
        return CallKind.ACTUAL
    return CallKind.UNKNOWN if isinstance(answer, Reply) else CallKind.FREE


@dataclass(frozen=True, slots=True)
class Recorded:
    """The number of new entries, and their models without a price."""

    calls: int
    unpriced: frozenset[tuple[str, str]]
    # The usage, for events after the commit.
    used: tuple[ModelUsed, ...] = ()


def record_calls(tx: Tx, prices: Prices, entries: Sequence[CallEntry]) -> Recorded:
    """Add entries to the ledger, with the prices of their day. One idempotent statement.

    *unpriced* should raise an alert after the commit.
    """
    if not entries:
        return Recorded(0, frozenset())
    shared: dict[tuple[Any, ...], dict[str, Any]] = {}
    now = tx.clock.now()
    rows = [_row(now, prices, entry, shared) for entry in entries]
    added = tx.values(SQL.record_calls, r=rows, g=list(shared.values()))
    return Recorded(
        len(added),
        frozenset(
            (provider, model)
            for provider, model, kind, is_priced in added
            if not is_priced and kind != CallKind.UNKNOWN
        ),
        # Entries that another pass recorded before were also reported by it.
        used_of(rows, list(shared.values())) if len(added) == len(rows) else (),
    )


def used_of(
    rows: Iterable[Mapping[str, Any]], shared: Sequence[Mapping[str, Any]]
) -> tuple[ModelUsed, ...]:
    """The sum of ledger rows, by provider, mode and kind."""
    sums: dict[tuple[str, str, str], list[int]] = {}
    for row in rows:
        common = shared[row["shared"]]
        key = common["provider"], common["execution_mode"], common["kind"]
        found = sums.setdefault(key, [0, 0, 0, 0])
        found[0] += 1
        found[1] += (
            row["input_tokens"]
            + row["cache_read_tokens"]
            + row["cache_write_short_tokens"]
            + row["cache_write_long_tokens"]
        )
        found[2] += row["output_tokens"]
        found[3] += row["cost_pico"] or 0
    return tuple(ModelUsed(*key, *found) for key, found in sorted(sums.items()))


def used_by(prices: Prices, entry: CallEntry, at: datetime) -> ModelUsed:
    """The usage of one entry."""
    group, usage = read_group_key(entry.group_key), entry.usage or _NOTHING
    cost = _charge(prices, entry, at).cost or 0
    of = group["provider"], group["execution_mode"], entry.kind.value
    return ModelUsed(*of, 1, usage.all_input, usage.output, cost)


_numbers = itertools.count()


def ledger_rows(
    prices: Prices, entry: CallEntry, at: datetime
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two rows that record_calls takes for an entry; they refer to each other by a number
    that no other entry of a group has.
    """
    shared: dict[tuple[Any, ...], dict[str, Any]] = {}
    row = _row(at, prices, entry, shared)
    ((_, common),) = shared.items()
    number = next(_numbers) % 2**31
    return {**row, "shared": number}, {**common, "shared": number}


def _row(
    now: datetime, prices: Prices, entry: CallEntry, shared: dict[tuple[Any, ...], dict[str, Any]]
) -> dict[str, Any]:
    """An entry's own part of its row; the shared part is put into *shared*."""
    usage = entry.usage or _NOTHING
    charge = _charge(prices, entry, entry.occurred_at or now)
    key = (
        entry.batch_id,
        entry.provider_batch_id,
        # An enum's own hash is slow.
        entry.kind.value,
        entry.job_type,
        entry.attempt,
        entry.account,
        entry.group_key,
        _billed(entry.model_billed),
        charge.price,
    )
    common = shared.get(key)
    if common is None:
        common = shared[key] = {"shared": len(shared), **_common(entry, charge)}
    return {
        "shared": common["shared"],
        "org_id": entry.org_id,
        "batch_item_index": entry.batch_item_index,
        "job_id": entry.job_id,
        "provider_request_id": entry.provider_request_id,
        "input_tokens": usage.input,
        "cache_read_tokens": usage.cache_read,
        "cache_write_short_tokens": usage.cache_write_short,
        "cache_write_long_tokens": usage.cache_write_long,
        "output_tokens": usage.output,
        "reasoning_tokens": usage.reasoning,
        "cost_pico": charge.cost,
        "direct_pico": charge.direct,
        "at_most_pico": entry.at_most_pico,
        "occurred_at": None if entry.occurred_at is None else instant_text(entry.occurred_at),
    }


# Answers of a batch end in the same seconds.
instant_text = lru_cache(maxsize=1_024)(write_instant)


_NOTHING = Usage()


def _common(entry: CallEntry, charge: Charge) -> dict[str, Any]:
    group = read_group_key(entry.group_key)
    return {
        "batch_id": entry.batch_id,
        "provider_batch_id": entry.provider_batch_id,
        "kind": entry.kind.value,
        "job_type": entry.job_type,
        "attempt": entry.attempt,
        "account": entry.account,
        **{name: group[name] for name in _OF_GROUP},
        "model_billed": _billed(entry.model_billed),
        "price": charge.price,
    }


# A provider's model name is untrusted: only valid names are stored.
_MODEL = re.compile(r"[\w.:/@-]{1,200}", re.ASCII)


@lru_cache(maxsize=256)
def _billed(model: str | None) -> str | None:
    return model if model is not None and _MODEL.fullmatch(model) else None


_OF_GROUP = ("provider", "model", "execution_mode", "lane", "source_locale", "target_locale")


def _charge(prices: Prices, entry: CallEntry, at: datetime) -> Charge:
    if entry.kind is CallKind.FREE:
        return Charge(0, 0, None)
    if entry.usage is None:
        return Charge(None, None, None)
    group = read_group_key(entry.group_key)
    models = (_billed(entry.model_billed), group["model"])
    day = at.astimezone(UTC).date()
    return prices.charge(group["provider"], models, group["execution_mode"], entry.usage, day)


@lru_cache(maxsize=256)
def read_group_key(text: str) -> dict[str, str]:
    """Parse a group key, the inverse of ``Route.group_key``."""
    parts, part, rest = [], "", iter(text)
    for letter in rest:
        if letter == "\\":
            part += next(rest, "")
        elif letter == "|":
            parts.append(part)
            part = ""
        else:
            part += letter
    return dict(zip(GROUP, [*parts, part], strict=True))


# -- queries


class By(StrEnum):
    """The dimensions that costs can be grouped by."""

    LANGUAGE_PAIR = "language-pair"
    PROVIDER = "provider"
    MODEL = "model"
    MODE = "mode"
    ORG = "org"
    JOB_TYPE = "job-type"
    DAY = "day"


_FLAGS = {
    By.LANGUAGE_PAIR: "by_pair",
    By.PROVIDER: "by_provider",
    By.MODEL: "by_model",
    By.MODE: "by_mode",
    By.ORG: "by_org",
    By.JOB_TYPE: "by_type",
    By.DAY: "by_day",
}


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost of one group. Only the *compared* calls have both prices and a *direct_pico*."""

    group: dict[str, str]
    calls: int
    orphans: int
    unknown: int
    unpriced: int
    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost_pico: int
    at_most_pico: int
    compared: int
    compared_pico: int
    direct_pico: int

    @property
    def saved_pico(self) -> int:
        """The savings of batch processing over direct calls."""
        return self.direct_pico - self.compared_pico


def sum_costs(
    tx: Tx, by: Iterable[By], since: datetime, until: datetime, org_id: str | None = None
) -> list[Spent]:
    """The cost from *since* to before *until*, the most expensive group first."""
    asked = tuple(by)
    rows = tx.many(
        SQL.sum_costs,
        since=write_instant(since),
        until=write_instant(until),
        org_id=org_id,
        **{flag: int(one in asked) for one, flag in _FLAGS.items()},
    )
    return [_spent(asked, row) for row in rows]


def _spent(asked: tuple[By, ...], row: Any) -> Spent:
    told = {
        By.LANGUAGE_PAIR: f"{row['source_locale'] or '?'} → {row['target_locale'] or '?'}",
        By.PROVIDER: row["provider"],
        By.MODEL: row["model"],
        By.MODE: row["execution_mode"],
        By.ORG: row["org_id"],
        By.JOB_TYPE: row["job_type"],
        By.DAY: row["day"],
    }
    counts = {name: int(row[name]) for name in Spent.__slots__ if name != "group"}
    return Spent({one.value: str(told[one] or "") for one in asked}, **counts)
