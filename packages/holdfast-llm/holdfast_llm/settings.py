"""The settings of batch processing: providers, prices, budgets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from holdfast.config.extensions import run_in_use
from holdfast.config.registered import provider_kinds
from holdfast.config.run import RunSettings
from holdfast.config.section import BUILT_IN_QUEUES
from holdfast.config.setting_type import (
    FLAG,
    PLAIN_NAME,
    UUID,
    Cadence,
    Section,
    SettingType,
    is_valid,
    number,
    one_of,
    refuse,
    setting,
    text,
    whole,
)
from holdfast.config.settings import Settings

# "quarantine" is an alias of "hold".
AMBIGUOUS = ("hold", "quarantine", "wait", "release_after")
LOOKUPS = ("key", "count", "none")
MODES = ("batch", "async")

_SECONDS = number(1, 7 * 86_400)


@dataclass(frozen=True, slots=True)
class BatchSettings(Section):
    """Leases, timeouts and polling of batch processing: `[batch]`."""

    key: str = setting(
        "",
        text("empty or text of 16 or more characters", re.compile(r"|.{16,1000}"), is_secret=True),
    )
    """Secret that signs item names and encrypts stored answers. If empty, a key is derived from the
    account, and stored answers are only compressed."""
    environment: str = setting("main", PLAIN_NAME)
    """Distinguishes the batches of deployments that share an account."""
    merge_groups: bool = setting(False, FLAG)
    """Allow groups with the same provider, adapter, base URL and model to share a batch. A group is
    never split."""
    lease_seconds: float = setting(300.0, number(5, 86_400))
    """Lease duration of a provider batch."""
    settle_seconds: float = setting(900.0, _SECONDS)
    """How long a batch creation without an answer may still take effect at the provider."""
    count_settle_seconds: float = setting(3600.0, _SECONDS)
    """The same for providers without an input file that can be deleted. If the provider answered
    with an error, `settle_seconds` applies."""
    fence_seconds: float = setting(120.0, _SECONDS)
    """How long after deleting the input file the provider is asked once more."""
    max_rounds: int = setting(5, whole(1, 100))
    """Maximum number of creations without a usable answer. Then the jobs are released and the alert
    `create_unanswered` is raised. Also the number of times incomplete results are read again."""
    give_up_seconds: float = setting(6 * 3600.0, _SECONDS)
    """After this time without an answer the batch is held for an operator."""
    on_ambiguous: str = setting("hold", one_of(AMBIGUOUS))
    """What happens to a batch creation that a lookup can neither confirm nor rule out: `hold`
    (alias `quarantine`) waits for an operator, `wait` keeps looking, `release_after` releases the
    jobs after a time and may pay twice."""
    release_after_seconds: float = setting(24 * 3600.0, number(60, 30 * 86_400))
    """With `release_after`: time from the creation to the release of the jobs."""
    keep_answer_seconds: float = setting(30 * 86_400.0, number(3600, 365 * 86_400))
    """How long the raw answer of a paid call is kept if application code fails on it."""
    poll_seconds: float = setting(60.0, number(1, 86_400))
    """First polling interval of a batch. It grows by half with each poll."""
    max_poll_seconds: float = setting(900.0, number(1, 86_400))
    """Maximum polling interval of a batch."""
    deadline_seconds: float = setting(48 * 3600.0, number(60, 30 * 86_400))
    """When to cancel a batch whose provider names no deadline."""
    circuit_seconds: float = setting(300.0, _SECONDS)
    """How long the circuit of an account stays open after a refusal. The time grows fourfold with
    each refusal."""
    max_circuit_seconds: float = setting(86_400.0, _SECONDS)
    """Maximum time that the circuit of an account stays open."""
    micro_items: int = setting(16, whole(1, 1000))
    """Maximum number of direct calls that are dispatched together."""
    micro_seconds: float = setting(2.0, number(0, 60))
    """Maximum time that a direct call waits for others."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        pairs = (("poll_seconds", "max_poll_seconds"), ("circuit_seconds", "max_circuit_seconds"))
        refuse(
            "Invalid BatchSettings",
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

    Limits and capabilities that are not set have the adapter's defaults. With *kind*, so has the
    base URL.
    """

    base_url: str = setting(
        "",
        text('an address such as "https://api.example.com/v1"', _BASE_URL, is_address=True),
    )
    """Base URL of the API. The credential is sent to this address only."""
    credential_env: str | None = setting(
        None, text("the name of an environment variable", _VARIABLE, is_address=True)
    )
    """Environment variable that holds the credential."""
    credential_file: str | None = setting(
        None, text("the absolute path of a file", re.compile(r"/\S+"), is_address=True)
    )
    """File that holds the credential. It takes precedence over the environment variable. Without
    either, requests carry no credential."""
    account: str | None = setting(None, PLAIN_NAME)
    """Name of the account, so that a rotated credential belongs to the same account. The default is
    a hash of the credential."""
    allow_private: bool = setting(False, FLAG)
    """Allow a server in a private network, and plain HTTP."""
    connect_seconds: float = setting(10.0, number(0.1, 600))
    """Timeout for connecting."""
    read_seconds: float = setting(60.0, number(0.1, 3600))
    """Timeout for the next bytes of a response."""
    max_items: int | None = setting(None, whole(1, 1_000_000))
    """Maximum number of items per batch. The default is the adapter's."""
    max_bytes: int | None = setting(None, _BYTES)
    """Maximum size of a batch in bytes. The default is the adapter's."""
    max_line_bytes: int | None = setting(None, _BYTES)
    """Maximum size of one item in bytes. The default is the adapter's."""
    enqueued_tokens: int | None = setting(None, whole(1, 10**15))
    """Maximum number of input tokens of one model that may wait in the batches of this account."""
    supports_batches: bool | None = setting(None, FLAG)
    """Whether the server has a batch API. If false, only direct calls are made. The default is the
    adapter's."""
    lookup: str | None = setting(None, one_of(LOOKUPS))
    """How a batch is found again: by our `key` in its metadata, by time and item `count`, or
    `none`. The default is the adapter's."""
    can_delete_file: bool | None = setting(None, FLAG)
    """Whether input files can be deleted, so that a later creation fails. If false, an unanswered
    creation is looked up for `batch.count_settle_seconds`. The default is the adapter's."""
    can_delete_batch: bool | None = setting(None, FLAG)
    """Whether batches can be deleted. The default is the adapter's."""
    wants_echo: bool | None = setting(None, FLAG)
    """Whether every answer must repeat a token, so that mixed-up answers are detected. If false,
    tenants do not share batches. The default is the adapter's."""
    on_ambiguous: str | None = setting(None, one_of(AMBIGUOUS))
    """Overrides `batch.on_ambiguous` for this account."""
    release_after_seconds: float | None = setting(None, number(60, 30 * 86_400))
    """Overrides `batch.release_after_seconds` for this account."""
    kind: str | None = setting(None, SettingType("a registered kind of provider", _is_registered))
    """The only adapter of this provider. If not set, each route names an adapter."""

    def __post_init__(self) -> None:
        if not self.base_url and _is_registered(self.kind):
            object.__setattr__(self, "base_url", provider_kinds()[str(self.kind)].base_url)
        Section.__post_init__(self)
        refuse(f"Invalid {type(self).__name__}", self._problems())

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
    """An account at a provider: its base URL and its credential: `[providers.NAME]`."""

    api_version: str | None = setting(
        None, text("a version of the provider's API", re.compile(r"[A-Za-z0-9._-]{1,40}"))
    )
    """Version of the provider's API, for `gemini_generate`, `anthropic_messages` and the Azure
    adapters. On Azure it selects the older URL scheme."""


def provider_settings_class(kind: object) -> type[CommonProviderSettings] | str:
    """The settings class of a kind of provider, or an error message."""
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
    """Keep the decimal value as written: 0.1 is a tenth, not the nearest binary number."""
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


USD = SettingType(
    "an amount of dollars from 0 to 1,000,000 with at most six decimals", _is_money, read=_money
)
_DAY = SettingType(
    "a day such as 2026-06-01",
    lambda v: isinstance(v, date) and not isinstance(v, datetime) and v > date.min,
)


@dataclass(frozen=True, slots=True)
class PriceSettings(Section):
    """The price of a model from a day on, in dollars per million tokens: `[[prices]]`.

    It takes precedence over the built-in list price of the same model.
    """

    provider: str = setting("", PLAIN_NAME)
    """Provider of `[providers.NAME]`."""
    model: str = setting(
        "", text("a model's name, or its beginning and *", re.compile(r"[^\s*]{1,200}\*?|\*"))
    )
    """Model name, or a prefix followed by `*`. An exact name takes precedence over a prefix, a
    longer prefix over a shorter one."""
    mode: str = setting("", one_of(MODES))
    """`batch` for provider batches, `async` for direct calls."""
    valid_from: date = setting(date.min, _DAY)
    """First day (UTC) of this price, such as `2026-06-01`. It is valid until the next one for the
    same model."""
    input: Decimal | None = setting(None, USD)
    """Dollars per million input tokens."""
    cache_read: Decimal | None = setting(None, USD)
    """Dollars per million tokens read from the provider's cache. A call that uses tokens without a
    price counts as unpriced."""
    cache_write_short: Decimal | None = setting(None, USD)
    """Dollars per million tokens written to the short-lived cache."""
    cache_write_long: Decimal | None = setting(None, USD)
    """Dollars per million tokens written to the long-lived cache."""
    output: Decimal | None = setting(None, USD)
    """Dollars per million output tokens."""
    input_up_to: int | None = setting(None, whole(1, 10**9))
    """Maximum input length in tokens for this price. Longer inputs need a second price."""
    source: str = setting("", text())
    """Where the price was published. For information only."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if self.input is None or self.output is None:
            refuse("Invalid PriceSettings", ["it needs input and output"])


def doubled_prices(prices: Iterable[PriceSettings]) -> list[str]:
    """Duplicate prices, which would be ambiguous."""
    seen: set[tuple[object, ...]] = set()
    found = []
    for price in prices:
        name = (price.provider, price.model, price.mode, price.valid_from, price.input_up_to)
        if name in seen:
            found.append("prices names twice: " + ", ".join(str(part) for part in name))
        seen.add(name)
    return found


# Applies to tenants without a budget of their own.
EVERY_OTHER = "default"


@dataclass(frozen=True, slots=True)
class BudgetSettings(Section):
    """Daily budget of a tenant at providers: `[budgets."UUID"]`, or `[budgets.default]`."""

    usd_per_day: Decimal | None = setting(None, USD)
    """Maximum spending per UTC day in dollars. 0 sends nothing."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if self.usd_per_day is None:
            refuse("Invalid BudgetSettings", ["a budget needs usd_per_day"])


BUDGETED = SettingType(
    f'a tenant\'s UUID in lower case, or "{EVERY_OTHER}"',
    lambda v: v == EVERY_OTHER or is_valid(UUID, v),
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
