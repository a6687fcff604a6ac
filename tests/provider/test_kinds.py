"""Kinds of providers are registered by entry points, each with its own settings and checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from holdfast import ConfigError, Settings
from holdfast.config.registered import PROVIDERS, provider_kinds
from holdfast.config.setting_type import setting, text
from holdfast_llm.batch.accounts import ConfiguredAccounts
from holdfast_llm.provider.openai import CHAT, OpenAI
from holdfast_llm.provider.route import Route
from holdfast_llm.settings import CommonProviderSettings, ProviderSettings

ROUTE = Route("ours", "regional_chat", "m1")


@dataclass(frozen=True, slots=True)
class RegionalSettings(CommonProviderSettings):
    """The keys of a provider with regions."""

    region: str = setting("eu", text("a region"))


@dataclass(frozen=True, slots=True)
class Regional(OpenAI):
    """Accepts addresses of one domain, and sends its region with every call."""

    kind: str = "regional_chat"
    surface: Any = CHAT
    base_url: str = "https://eu.regional.example/v1"
    region: str = "eu"

    settings = RegionalSettings

    def problem(self, settings: Any) -> str | None:
        host = settings.base_url.split("/")[2]
        return None if host.endswith(".regional.example") else "base_url must be at regional"

    def configured(self, settings: Any) -> Self:
        return replace(self, region=settings.region)

    def headers(self, credential: str) -> dict[str, str]:
        return {"x-region": self.region}


@pytest.fixture(autouse=True)
def regional(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if a distribution with the kind ``regional_chat`` were installed."""
    ours = entry_points(group=PROVIDERS)
    point = EntryPoint("regional_chat", "tests.provider.test_kinds:Regional", PROVIDERS)
    vars(point).update(dist=SimpleNamespace(name="a-region"))
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group: [*ours, point] if group == PROVIDERS else entry_points(group=group),
    )
    provider_kinds.cache_clear()
    yield
    provider_kinds.cache_clear()


def load(folder: Path, *lines: str) -> Settings:
    file = folder / "holdfast.toml"
    file.write_text("\n".join(["[providers.ours]", *lines, ""]))
    return Settings.load(env={}, file=file)


def test_a_registered_kind_has_its_own_settings_and_address(tmp_path: Path) -> None:
    settings = load(tmp_path, 'kind = "regional_chat"', 'region = "us"', "max_items = 7")

    account = ConfiguredAccounts(settings, env={}).for_route(ROUTE)

    assert isinstance(settings.providers["ours"], RegionalSettings)
    assert account.base_url == "https://eu.regional.example/v1"
    assert account.limits.max_items == 7
    assert isinstance(account.adapter, Regional)
    assert account.adapter.region == "us"


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (['kind = "regional_chat"', "region = 1"], r"toml:3: providers\.ours\.region = 1 must be"),
        (['kind = "regional_chat"', 'api_version = "1"'], r"api_version is an unknown key"),
        (['kind = "pigeon"'], r"ours\.kind = 'pigeon' must be one of anthropic_messages, azure"),
        (['kind = "azure_chat"'], r"base_url is needed"),
        (
            ['kind = "regional_chat"', 'base_url = "https://secret.example/v1"'],
            r"\[providers\.ours\] base_url must be at regional",
        ),
        (
            ['kind = "regional_chat"', 'base_url = "http://eu.regional.example/v1"'],
            r"base_url is not https",
        ),
    ],
)
def test_settings_of_a_kind_are_checked_when_they_are_loaded(
    tmp_path: Path, lines: list[str], says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        load(tmp_path, *lines)

    assert "secret.example" not in str(refused.value)


def test_a_kind_changes_a_built_in_provider(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text('[providers.openai]\nkind = "openai_chat"\n')

    found = Settings.load(env={}, file=file).providers["openai"]

    assert (found.base_url, found.credential_env) == ("https://api.openai.com/v1", "OPENAI_API_KEY")


def test_a_route_uses_no_other_adapter_than_that_of_the_kind(tmp_path: Path) -> None:
    accounts = ConfiguredAccounts(load(tmp_path, 'kind = "regional_chat"'), env={})

    with pytest.raises(ConfigError, match=r"providers\.ours\.kind is 'regional_chat'"):
        accounts.for_route(replace(ROUTE, adapter_kind="openai_chat"))


def test_an_adapter_with_its_own_settings_needs_a_section_of_its_kind(tmp_path: Path) -> None:
    accounts = ConfiguredAccounts(
        load(tmp_path, 'base_url = "https://eu.regional.example/v1"'), env={}
    )

    with pytest.raises(ConfigError, match=r'set providers\.ours\.kind = "regional_chat"'):
        accounts.for_route(ROUTE)
    with pytest.raises(ConfigError, match="kind regional_chat needs RegionalSettings"):
        ProviderSettings(kind="regional_chat")
