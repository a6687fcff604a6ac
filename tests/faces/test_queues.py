"""holdfast queues: the commands of operators."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast import Holdfast, TenantSettings
from holdfast.cli import cli
from holdfast.clock import write_instant
from holdfast.errors import ConfigError, UnknownQueue
from tests.faces.conftest import Run
from tests.story import ORG, OTHER_ORG, look, make_holdfast


@pytest.fixture
def url(migrated_sqlite_url: str) -> str:
    return migrated_sqlite_url


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


def test_a_tenants_rule_is_changed_in_parts_shown_and_reset(url: str) -> None:
    def shown() -> Any:
        return json.loads(call(url, "tenant", ORG, "--json").output)

    assert shown() == {"org_id": ORG, "weight": 1, "max_running": None}
    assert call(url, "tenant", ORG, "--weight", "3").exit_code == 0
    assert call(url, "tenant", ORG.upper(), "--max-running", "7").exit_code == 0
    assert shown() == {"org_id": ORG, "weight": 3, "max_running": 7}
    assert call(url, "tenant", ORG, "--without", "max-running").exit_code == 0
    assert shown() == {"org_id": ORG, "weight": 3, "max_running": None}
    assert call(url, "tenant", ORG, "--reset").output == f"{ORG}  reset\n"
    assert call(url, "tenant", ORG, "--reset").output == f"{ORG}  has no rule\n"
    assert isinstance(call(url, "tenant", "nobody", "--weight", "2").exception, ConfigError)


def test_a_keys_rule_is_changed_in_parts_shown_and_reset(url: str) -> None:
    def shown() -> Any:
        return json.loads(call(url, "key", "provider:x", "--json").output)

    assert shown() == {"key": "provider:x", "max_running": None, "rate": None}
    assert call(url, "key", "provider:x", "--rate", "60/minute").exit_code == 0
    assert "60/minute" in call(url, "key", "provider:x", "--max-running", "5").output
    assert shown() == {"key": "provider:x", "max_running": 5, "rate": "60/minute"}
    assert call(url, "key", "provider:x", "--without", "rate").exit_code == 0
    assert shown() == {"key": "provider:x", "max_running": 5, "rate": None}
    # A rule without a limit is not stored.
    nothing = call(url, "key", "provider:x", "--without", "max-running").exception
    assert isinstance(nothing, ConfigError)
    assert call(url, "key", "provider:x", "--reset").output == "provider:x  reset\n"
    assert isinstance(call(url, "key", "No Key", "--max-running", "2").exception, ConfigError)


def test_the_rules_of_tenants_and_keys_are_listed_with_who_set_them(url: str) -> None:
    with make_holdfast(url, tenants={OTHER_ORG: TenantSettings(weight=2)}) as hf:
        hf.worker()
    call(url, "tenant", ORG, "--max-running", "7")
    call(url, "key", "llm", "--rate", "60/minute")

    assert json.loads(call(url, "tenants", "--json").output) == [
        {"org_id": ORG, "weight": 1, "max_running": 7, "set_by": "operator"},
        {"org_id": OTHER_ORG, "weight": 2, "max_running": None, "set_by": "code"},
    ]
    assert json.loads(call(url, "keys", "--json").output) == [
        {"key": "llm", "max_running": None, "rate": "60/minute", "set_by": "operator"}
    ]
    assert "60/minute  operator" in call(url, "keys").output


def test_the_dead_letter_queue_is_not_suggested_for_declaration(url: str) -> None:
    refused = call(url, "pause", "q:deadletter", "--reason", "x").exception

    assert isinstance(refused, UnknownQueue)
    assert "hf.queue(" not in str(refused)
    assert "holdfast dead-letters" in str(refused)


def test_the_list_says_how_much_waits_and_since_when(run: Run, url: str) -> None:
    with Holdfast(url) as hf:
        hf.job("work")(lambda job, payload: None)
        made = hf.enqueue_many("work", [{}, {}], org_id=ORG)
        hf.enqueue("work", {}, org_id=ORG, not_before_at=hf.clock.now() + timedelta(days=1))

    rows = {row["queue"]: row for row in run("queues", "list", "--json", db=url).json}
    found = rows["q:default"]

    assert (found["waiting"], found["deferred"], found["tenants"]) == (3, 1, 1)
    assert found["oldest_at"] == write_instant(made[0].created_at)
    assert rows["q:exports"]["oldest_at"] is None


def test_a_queue_that_is_reset_has_what_is_declared_for_it_at_once(run: Run, url: str) -> None:
    run("queues", "set", "q:maintenance", "--max-running", "90", db=url)

    first = run("queues", "reset", "q:maintenance", db=url)
    second = run("queues", "reset", "q:maintenance", db=url)

    assert first.out == "q:maintenance  reset\n"
    assert second.out == "q:maintenance  already has its declared limits\n"
    assert shown(url, "q:maintenance")["max_running"] == 4


def test_who_asks_is_kept_in_the_audit(run: Run, url: str) -> None:
    run("queues", "pause", "q:exports", "--reason", "disk full", "--actor", "user:42", db=url)

    with Holdfast(url) as hf:
        (row,) = look(hf.store, "SELECT actor_type, actor_id, name FROM holdfast.job_event")

    assert (row["actor_type"], row["actor_id"], row["name"]) == ("user", "42", "queue.paused")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["show", "q:nope"], 3),
        (["pause", "q:nope", "--reason", "x"], 3),
        (["pause", "q:exports"], 2),
        (["resume", "q:exports"], 2),
        (["pause", "q:exports", "--reason", " "], 1),
        (["tenant", "nobody", "--weight", "2"], 1),
        (["tenant", "nobody"], 1),
    ],
)
def test_refusals_have_their_exit_codes(
    run: Run, url: str, arguments: list[str], code: int
) -> None:
    assert run("queues", *arguments, db=url).code == code


@pytest.mark.parametrize(
    "arguments",
    [
        ["set", "q:default"],
        ["set", "q:default", "--max-running", "0"],
        ["set", "q:default", "--rate", "often"],
        ["set", "q:default", "--without", "weight"],
        ["set", "q:default", "--max-depth", "2", "--without", "max-depth"],
        ["tenant", ORG, "--weight", "11"],
    ],
)
def test_what_cannot_be_a_rule_is_wrong_usage(url: str, arguments: list[str]) -> None:
    assert call(url, *arguments).exit_code == 2


@pytest.mark.parametrize("verb", ["show", "pause", "resume", "reset", "set"])
def test_an_unknown_queue_is_not_found(url: str, verb: str) -> None:
    options = {"pause": ["--reason", "x"], "resume": ["--reason", "x"], "set": ["--weight", "2"]}

    assert isinstance(call(url, verb, "q:nope", *options.get(verb, [])).exception, UnknownQueue)
