"""The settings of batch processing: timeouts, accounts, prices and budgets."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from holdfast import ConfigError, Settings
from holdfast.config import load
from holdfast.config.show import show
from holdfast_llm.settings import (
    BUILT_IN_PROVIDERS,
    BatchSettings,
    BudgetSettings,
    PriceSettings,
    ProviderSettings,
)

ORG = "0198c0de-0000-7000-8000-00000000000a"
PRICE = """
[[prices]]
provider = "openai"
model = "some-model*"
mode = "batch"
valid_from = 2026-06-01
input = 0.1
output = 2
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.toml"


def read(file: Path, text: str, **env: str) -> Settings:
    file.write_text(text)
    return Settings.load(env=env, file=file)


def refusal(file: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(file, text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (BatchSettings, {"key": "short"}),
        (BatchSettings, {"environment": "Not A Name"}),
        (BatchSettings, {"on_ambiguous": "guess"}),
        (BatchSettings, {"max_rounds": 0}),
        (BatchSettings, {"poll_seconds": 900, "max_poll_seconds": 60}),
        (BatchSettings, {"circuit_seconds": 900, "max_circuit_seconds": 60}),
        (ProviderSettings, {}),
        (ProviderSettings, {"base_url": "api.example.com"}),
        (ProviderSettings, {"base_url": "https://user:password@api.example.com"}),
        (ProviderSettings, {"base_url": "http://api.example.com"}),
        (ProviderSettings, {"base_url": "https://a.example.com", "lookup": "guess"}),
        (ProviderSettings, {"base_url": "https://a.example.com", "max_items": 0}),
        (ProviderSettings, {"base_url": "https://a.example.com", "credential_file": "here"}),
        (BudgetSettings, {}),
        (BudgetSettings, {"usd_per_day": Decimal(-1)}),
    ],
    ids=str,
)
def test_a_section_that_cannot_be_used_is_refused(kind: type, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"Invalid {kind.__name__}"):
        kind(**wrong)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[prices]\ninput = 1", "must be tables: [[prices]]"),
        (PRICE.replace("input", "inptu"), "prices.inptu is an unknown key; did you mean 'input'?"),
        (PRICE.replace("0.1", "-0.1"), "must be an amount of dollars from 0 to 1,000,000"),
        (PRICE.replace("0.1", "0.00000001"), "with at most six decimals (price 1)"),
        (PRICE + PRICE.replace("2\n", '"2"\n'), "(price 2)"),
        (PRICE.replace("output = 2", ""), "it needs input and output (price 1)"),
        (PRICE.replace("2026-06-01", '"soon"'), "must be a day such as 2026-06-01"),
        (PRICE.replace("2026-06-01", "2026-06-01T00:00:00Z"), "must be a day such as 2026-06-01"),
        (PRICE + PRICE, "prices names twice: openai, some-model*, batch, 2026-06-01"),
        ("[budgets.acme]\nusd_per_day = 1", "it must be a tenant's UUID in lower case, or"),
        ("[budgets.default]", "a budget needs usd_per_day"),
        ('[providers.own]\ncredential_env = "KEY"', "base_url is needed: an address"),
        ('[providers.openai]\napi_key = "sk-hunter2"', "providers.openai.api_key is an unknown"),
        ('[providers.openai]\ncredential_env = "sk-hunter2"', "must be the name of an environment"),
        ("[batch]\nsettle_second = 1", "did you mean 'settle_seconds'?"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_the_place_and_the_way_out(
    file: Path, text: str, says: str
) -> None:
    said = refusal(file, text)

    assert says in said
    assert "hunter2" not in said


def test_a_price_is_what_was_written_and_not_the_binary_number_next_to_it(file: Path) -> None:
    (price,) = read(file, PRICE).prices

    assert price == PriceSettings(
        provider="openai",
        model="some-model*",
        mode="batch",
        valid_from=date(2026, 6, 1),
        input=Decimal("0.1"),
        output=Decimal(2),
    )


def test_an_account_that_is_built_in_keeps_what_the_file_does_not_set(file: Path) -> None:
    settings = read(file, '[providers.openai]\ncredential_file = "/run/secrets/openai"\n')

    assert settings.providers["openai"] == ProviderSettings(
        base_url="https://api.openai.com/v1",
        credential_env="OPENAI_API_KEY",
        credential_file="/run/secrets/openai",
    )
    assert set(settings.providers) == set(BUILT_IN_PROVIDERS)


def test_the_key_of_the_lane_comes_from_the_environment_and_is_hidden(file: Path) -> None:
    file.write_text(PRICE)
    loaded = load(env={"HOLDFAST_BATCH_KEY": "hunter2-hunter2-hunter2"}, file=file)

    shown = {row.key: row for row in show(loaded)}

    assert loaded.settings.batch.key == "hunter2-hunter2-hunter2"
    assert "hunter2" not in str(list(shown.values()))
    assert shown["providers.openai.credential_env"].value == "OPENAI_API_KEY"
    assert shown["prices"].where == f"{file}:2"
    assert str(shown["prices"].value[0]["input"]) == "0.1"


def test_a_budget_belongs_to_a_tenant_or_to_all_others(file: Path) -> None:
    settings = read(
        file, f'[budgets.default]\nusd_per_day = 20\n[budgets."{ORG}"]\nusd_per_day = 0.5\n'
    )

    assert {name: budget.usd_per_day for name, budget in settings.budgets.items()} == {
        "default": Decimal(20),
        ORG: Decimal("0.5"),
    }
