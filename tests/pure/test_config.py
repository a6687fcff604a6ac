"""Settings: read once, validated once, frozen."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from holdfast import ConfigError, Settings


def test_the_argument_beats_the_environment_beats_the_file_beats_the_default(
    tmp_path: Path,
) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text('db = "sqlite:///file.db"\nlease_seconds = 30\nclaim_limit = 7\n')
    env = {"HOLDFAST_DB": "sqlite:///env.db", "HOLDFAST_LEASE_SECONDS": "20"}

    settings = Settings.load(db="sqlite:///given.db", env=env, file=file)

    assert (settings.db, settings.lease_seconds, settings.claim_limit, settings.poll_seconds) == (
        "sqlite:///given.db", 20.0, 7, 1.0,
    )  # fmt: skip


def test_without_anything_the_embedded_database_is_used(tmp_path: Path) -> None:
    assert Settings.load(env={}, file=tmp_path / "none.toml").db == "sqlite:///holdfast.db"


@pytest.mark.parametrize(
    "wrong",
    [
        {"db": "mysql://host/name"},
        {"payload_limit_bytes": 10},
        {"lease_seconds": 0},
        {"poll_seconds": 0},
        {"rescue_seconds": 0},
        {"claim_limit": 0},
        {"settle_limit": 100_000},
        {"prune_after_days": 1},
        {"unknown_type_patience_seconds": -1},
        {"lease_seconds": float("nan")},
    ],
)
def test_a_setting_that_cannot_be_used_is_named(wrong: dict[str, Any]) -> None:
    (name,) = wrong

    with pytest.raises(ConfigError, match=name):
        Settings(**wrong)


def test_every_bad_setting_is_named_in_one_error() -> None:
    with pytest.raises(ConfigError) as caught:
        Settings(db="nonsense", claim_limit=0, lease_seconds=-1)

    assert all(name in str(caught.value) for name in ("db", "claim_limit", "lease_seconds"))


@pytest.mark.req("I-08")
def test_job_rows_cannot_be_set_to_leave_before_the_longest_key_expires() -> None:
    with pytest.raises(ConfigError, match="prune_after_days"):
        Settings(prune_after_days=29)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nonsense = 1", "unknown setting 'nonsense'"),
        ('claim_limit = "many"', "claim_limit must be a int"),
        ("claim_limit = true", "claim_limit must be a int"),
        ("claim_limit = 1.5", "claim_limit must be a int"),
        ("db = [", "not valid TOML"),
    ],
)
def test_a_bad_file_is_refused_with_the_reason(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(text)

    with pytest.raises(ConfigError, match=says):
        Settings.load(env={}, file=file)


def test_a_bad_environment_variable_is_named() -> None:
    with pytest.raises(ConfigError, match="HOLDFAST_CLAIM_LIMIT must be a int"):
        Settings.load(env={"HOLDFAST_CLAIM_LIMIT": "lots"})


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().db = "sqlite:///other.db"  # type: ignore[misc]
