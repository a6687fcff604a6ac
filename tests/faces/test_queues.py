"""holdfast queues: what operators see and change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import cli
from holdfast.errors import ConfigError, UnknownQueue
from tests.story import ORG


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/work.db"


def call(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["--db", url, "queues", *arguments])


def shown(url: str, queue: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call(url, "show", queue, "--json").output)
    return found


def test_the_list_names_every_queue_with_its_rules(url: str) -> None:
    rows = {row["queue"]: row for row in json.loads(call(url, "list", "--json").output)}

    assert rows["q:critical"]["weight"] == 8
    assert (rows["q:maintenance"]["max_running"], rows["q:maintenance"]["rate"]) == (
        4,
        "240/minute",
    )
    assert "q:deadletter" not in rows
    assert "q:notifications" in call(url, "list").output


def test_setting_some_rules_leaves_the_others_and_is_kept_as_an_operators(url: str) -> None:
    assert call(url, "set", "q:default", "--max-running", "9", "--rate", "5/second").exit_code == 0
    assert call(url, "set", "q:default", "--max-depth", "100").exit_code == 0
    assert call(url, "set", "q:default", "--without", "rate").exit_code == 0

    found = shown(url, "q:default")
    assert (found["weight"], found["max_running"], found["max_depth"]) == (4, 9, 100)
    assert (found["rate"], found["set_by"]) == (None, "operator")
    assert call(url, "reset", "q:default").exit_code == 0
    assert shown(url, "q:default")["set_by"] == "code"


def test_pausing_asks_for_a_reason_and_shows_it(url: str) -> None:
    assert call(url, "pause", "q:exports").exit_code == 2
    assert "paused" in call(url, "pause", "q:exports", "--reason", "disk full").output
    assert "was paused already" in call(url, "pause", "q:exports", "--reason", "x").output
    assert shown(url, "q:exports")["pause_reason"] == "disk full"
    assert "disk full" in call(url, "list").output
    assert "resumed" in call(url, "resume", "q:exports", "--reason", "new disk").output
    assert shown(url, "q:exports")["paused_at"] is None


def test_tenants_and_keys_get_their_limits(url: str) -> None:
    assert call(url, "tenant", ORG, "--weight", "3", "--max-running", "7").exit_code == 0
    assert call(url, "key", "provider:x", "--rate", "60/minute").exit_code == 0
    assert isinstance(call(url, "key", "provider:x").exception, ConfigError)


@pytest.mark.parametrize(
    "arguments",
    [
        ["set", "q:default"],
        ["set", "q:default", "--max-running", "0"],
        ["set", "q:default", "--rate", "often"],
        ["set", "q:default", "--without", "weight"],
        ["tenant", ORG, "--weight", "11"],
    ],
)
def test_what_cannot_be_a_rule_is_wrong_usage(url: str, arguments: list[str]) -> None:
    assert call(url, *arguments).exit_code == 2


@pytest.mark.parametrize("verb", ["show", "pause", "resume", "reset", "set"])
def test_an_unknown_queue_is_not_found(url: str, verb: str) -> None:
    options = {"pause": ["--reason", "x"], "resume": ["--reason", "x"], "set": ["--weight", "2"]}

    assert isinstance(call(url, verb, "q:nope", *options.get(verb, [])).exception, UnknownQueue)
