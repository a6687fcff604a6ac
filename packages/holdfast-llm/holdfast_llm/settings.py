"""The sections of holdfast.toml about the batch lane: its patience, providers, prices, budgets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from holdfast.config.extensions import run_in_use
from holdfast.config.kind import (
    FLAG,
    PLAIN_NAME,
    UUID,
    Cadence,
    Kind,
    Section,
    fits,
    number,
    one_of,
    refuse,
    setting,
    text,
    whole,
)
from holdfast.config.registered import provider_kinds
from holdfast.config.run import RunSettings
from holdfast.config.section import BUILT_IN_QUEUES
from holdfast.config.settings import Settings

# "quarantine" is another word for "hold".
AMBIGUOUS = ("hold", "quarantine", "wait", "release_after")
LOOKUPS = ("key", "count", "none")
MODES = ("batch", "async")

_SECONDS = number(1, 7 * 86_400)


@dataclass(frozen=True, slots=True)
class BatchSettings(Section):
    """How the batch lane behaves, and how patient it is with a provider that does not answer."""

    # Signs the names of items; without it a key is derived from the account's credential.
    key: str = setting(
        "",
        text("empty or text of 16 or more characters", re.compile(r"|.{16,1000}"), is_secret=True),
    )
    # Deployments that share an account tell their batches apart by it.
    environment: str = setting("main", PLAIN_NAME)
    merge_groups: bool = setting(False, FLAG)
    lease_seconds: float = setting(300.0, number(5, 86_400))
    # After a create without an answer: how long it may still arrive, and how long a fence settles.
    settle_seconds: float = setting(900.0, _SECONDS)
    count_settle_seconds: float = setting(3600.0, _SECONDS)
    fence_seconds: float = setting(120.0, _SECONDS)
    max_rounds: int = setting(5, whole(1, 100))
    give_up_seconds: float = setting(6 * 3600.0, _SECONDS)
    on_ambiguous: str = setting("hold", one_of(AMBIGUOUS))
    # From the create on; no provider runs a batch for longer than a day before it ends it.
    release_after_seconds: float = setting(24 * 3600.0, number(60, 30 * 86_400))
    # How long the raw line of a paid answer is kept whose result could not be committed.
    keep_answer_seconds: float = setting(30 * 86_400.0, number(3600, 365 * 86_400))
    poll_seconds: float = setting(60.0, number(1, 86_400))
    max_poll_seconds: float = setting(900.0, number(1, 86_400))
    # For a batch whose provider names no end of its own.
    deadline_seconds: float = setting(48 * 3600.0, number(60, 30 * 86_400))
    circuit_seconds: float = setting(300.0, _SECONDS)
    max_circuit_seconds: float = setting(86_400.0, _SECONDS)
    micro_items: int = setting(16, whole(1, 1000))
    micro_seconds: float = setting(2.0, number(0, 60))

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        pairs = (("poll_seconds", "max_poll_seconds"), ("circuit_seconds", "max_circuit_seconds"))
        refuse(
            "BatchSettings cannot be used",
            [
                f"{high} = {getattr(self, high):g} is less than {low} = {getattr(self, low):g}"
                for low, high in pairs
                if getattr(self, high) < getattr(self, low)
            ],
        )


_BASE_URL = re.compile(r"https?://[^\s/@?#]+(/[^\s?#@]*)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_BYTES = whole(1024, 4 * 1024**3)


def _is_registered(kind: object) -> bool:
    return isinstance(kind, str) and kind in provider_kinds()


@dataclass(frozen=True, slots=True)
class CommonProviderSettings(Section):
    """The keys that a provider of every kind has. The settings of a kind subclass it.

    Limits and capabilities that are None are those of the adapter. With *kind*, so is the address.
    """

    base_url: str = setting(
        "",
        text('an address such as "https://api.example.com/v1"', _BASE_URL, is_address=True),
    )
    # Never the credential itself, and what may be one is not repeated in an error. The file goes
    # before the variable.
    credential_env: str | None = setting(
        None, text("the name of an environment variable", _VARIABLE, is_address=True)
    )
    credential_file: str | None = setting(
        None, text("the absolute path of a file", re.compile(r"/\S+"), is_address=True)
    )
    # Names the account when its credential is rotated; without it the credential's hash does.
    account: str | None = setting(None, PLAIN_NAME)
    allow_private: bool = setting(False, FLAG)
    connect_seconds: float = setting(10.0, number(0.1, 600))
    read_seconds: float = setting(60.0, number(0.1, 3600))
    max_items: int | None = setting(None, whole(1, 1_000_000))
    max_bytes: int | None = setting(None, _BYTES)
    max_line_bytes: int | None = setting(None, _BYTES)
    enqueued_tokens: int | None = setting(None, whole(1, 10**15))
    supports_batches: bool | None = setting(None, FLAG)
    lookup: str | None = setting(None, one_of(LOOKUPS))
    can_delete_file: bool | None = setting(None, FLAG)
    can_delete_batch: bool | None = setting(None, FLAG)
    wants_echo: bool | None = setting(None, FLAG)
    # What becomes of a create that cannot be resolved; None: as [batch] says.
    on_ambiguous: str | None = setting(None, one_of(AMBIGUOUS))
    release_after_seconds: float | None = setting(None, number(60, 30 * 86_400))
    # The only adapter of this provider. Without it, each route names an adapter.
    kind: str | None = setting(None, Kind("a registered kind of provider", _is_registered))

    def __post_init__(self) -> None:
        if not self.base_url and _is_registered(self.kind):
            object.__setattr__(self, "base_url", provider_kinds()[str(self.kind)].base_url)
        Section.__post_init__(self)
        refuse(f"{type(self).__name__} cannot be used", self._problems())

    def _problems(self) -> list[str]:
        if self.base_url.startswith("http:") and not self.allow_private:
            return ["base_url is not https; a server of your own may be, with allow_private = true"]
        if self.kind is None:
            return []
        adapter = provider_kinds()[self.kind]
        if not isinstance(self, adapter.settings):
            return [f"kind {self.kind} needs {adapter.settings.__name__}"]
        says = adapter.problem(self)
        return [] if says is None else [says]


@dataclass(frozen=True, slots=True)
class ProviderSettings(CommonProviderSettings):
    """An account at a provider: its one address, and where its credential is kept."""

    api_version: str | None = setting(
        None, text("a version of the provider's API", re.compile(r"[A-Za-z0-9._-]{1,40}"))
    )


def provider_settings_class(kind: object) -> type[CommonProviderSettings] | str:
    """The settings class of a kind of provider, or what is wrong with the kind."""
    if not isinstance(kind, str) or kind not in provider_kinds():
        return f"must be one of {', '.join(provider_kinds())}"
    found: type[CommonProviderSettings] = provider_kinds()[kind].settings
    return found


BUILT_IN_PROVIDERS: Mapping[str, ProviderSettings] = {
    "openai": ProviderSettings(
        base_url="https://api.openai.com/v1",
        credential_env="OPENAI_API_KEY",
    ),
    "gemini": ProviderSettings(
        base_url="https://generativelanguage.googleapis.com",
        credential_env="GEMINI_API_KEY",
    ),
    "anthropic": ProviderSettings(
        base_url="https://api.anthropic.com",
        credential_env="ANTHROPIC_API_KEY",
    ),
    "mistral": ProviderSettings(
        base_url="https://api.mistral.ai",
        credential_env="MISTRAL_API_KEY",
    ),
}


def _money(value: Any) -> Any:
    """What a file says as it was written: 0.1 is a tenth, not the binary number next to it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return Decimal(str(value))


def _is_money(value: Any) -> bool:
    return (
        isinstance(value, Decimal)
        and value.is_finite()
        and 0 <= value <= 1_000_000
        and value == value.quantize(Decimal("0.000001"))
    )


USD = Kind(
    "an amount of dollars from 0 to 1,000,000 with at most six decimals", _is_money, read=_money
)
_DAY = Kind(
    "a day such as 2026-06-01",
    lambda v: isinstance(v, date) and not isinstance(v, datetime) and v > date.min,
)


@dataclass(frozen=True, slots=True)
class PriceSettings(Section):
    """What a model costs from a day on: dollars for a million tokens of each class.

    A model that ends with ``*`` stands for all that begin like it. A class without a price is not
    free: a call that used it counts as unpriced.
    """

    provider: str = setting("", PLAIN_NAME)
    model: str = setting(
        "", text("a model's name, or its beginning and *", re.compile(r"[^\s*]{1,200}\*?|\*"))
    )
    mode: str = setting("", one_of(MODES))
    valid_from: date = setting(date.min, _DAY)
    input: Decimal | None = setting(None, USD)
    cache_read: Decimal | None = setting(None, USD)
    cache_write_short: Decimal | None = setting(None, USD)
    cache_write_long: Decimal | None = setting(None, USD)
    output: Decimal | None = setting(None, USD)
    # The longest input, in tokens, that this price holds for.
    input_up_to: int | None = setting(None, whole(1, 10**9))
    source: str = setting("", text())

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if self.input is None or self.output is None:
            refuse("PriceSettings cannot be used", ["it needs input and output"])


def doubled_prices(prices: Iterable[PriceSettings]) -> list[str]:
    """Prices that are said twice: nobody could tell which one holds."""
    seen: set[tuple[object, ...]] = set()
    found = []
    for price in prices:
        name = (price.provider, price.model, price.mode, price.valid_from, price.input_up_to)
        if name in seen:
            found.append("prices names twice: " + ", ".join(str(part) for part in name))
        seen.add(name)
    return found


# The tenants that have no budget of their own.
EVERY_OTHER = "default"


@dataclass(frozen=True, slots=True)
class BudgetSettings(Section):
    """What one tenant may spend at providers in a day, by UTC."""

    usd_per_day: Decimal | None = setting(None, USD)

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if self.usd_per_day is None:
            refuse("BudgetSettings cannot be used", ["a budget needs usd_per_day"])


BUDGETED = Kind(
    f'a tenant\'s UUID in lower case, or "{EVERY_OTHER}"',
    lambda v: v == EVERY_OTHER or fits(UUID, v),
)

# Both runs have their own schedule and limits, independent of the profile. Answers are already paid
# for, so the collector's limit is above the submitter's: otherwise it would never catch up. Without
# queues in the settings, the runs serve all of them.
SUBMITTER = "batch_submitter"
COLLECTOR = "batch_collector"


def batch_runs(submitter: str, collector: str) -> dict[str, RunSettings]:
    """The defaults of a run that submits batches and of one that collects them."""
    return {
        submitter: RunSettings(
            queues=tuple(BUILT_IN_QUEUES), schedule=Cadence(every=timedelta(minutes=15))
        ),
        collector: RunSettings(
            queues=tuple(BUILT_IN_QUEUES),
            max_jobs_per_run=100_000,
            schedule=Cadence(every=timedelta(minutes=30)),
        ),
    }


BATCH_RUNS: Mapping[str, RunSettings] = batch_runs(SUBMITTER, COLLECTOR)


def submitter_of(settings: Settings) -> str:
    """The name of the run that submits batches in a deployment with these settings."""
    return run_in_use(SUBMITTER, settings.runs)


def collector_of(settings: Settings) -> str:
    """The name of the run that collects batches in a deployment with these settings."""
    return run_in_use(COLLECTOR, settings.runs)
