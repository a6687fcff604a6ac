"""holdfast config show: the effective settings, and the source of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faces.conftest import Ran, Run

FILE = """
claim_limit = 7
db = "postgresql://me:hunter2@host/jobs?sslpassword=hunter2"
audit_key = "hunter2:of:the:audit"
[artifacts]
link_key = "hunter2-hunter2-hunter2"
[queues."q:reports"]
rate = "100/minute"
[runs.nightly]
queues = ["q:reports"]
profile = "prod"
max_jobs_per_run = 60
[schedules.hourly]
every = "1h"
run = "nightly"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "holdfast.toml"
    path.write_text(FILE)
    return path


def test_every_setting_that_cannot_be_used_has_a_line_and_none_acts_on_a_terminal(
    run: Run, file: Path
) -> None:
    file.write_text('claim_limit = "\\u001b[2J\\nholdfast: done"\nlease_secnds = 3\n')
    done = run("config", "show")

    first, *listed = done.err.splitlines()
    assert (done.code, first) == (1, "holdfast: Invalid settings:")
    assert [line.split(": ")[0] for line in listed] == ["  holdfast.toml:1", "  holdfast.toml:2"]
    assert "\x1b" not in done.err


def rows(done: Ran) -> dict[str, tuple[Any, str, str | None]]:
    return {
        row["key"]: (row["value"], row["source"], row["where"]) for row in done.json["settings"]
    }


@pytest.mark.usefixtures("file")
def test_every_value_in_force_is_shown_with_where_it_comes_from(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_LEASE_SECONDS", "20")
    shown = rows(run("config", "show", "--json", app="my.module:hf"))

    assert shown["claim_limit"] == (7, "file", "holdfast.toml:2")
    assert shown["lease_seconds"] == (20.0, "environment", "HOLDFAST_LEASE_SECONDS")
    assert shown["app"] == ("my.module:hf", "argument", "--app")
    assert shown["poll_seconds"] == (1.0, "default", None)
    assert shown['queues."q:reports".rate'] == ("100/minute", "file", "holdfast.toml:8")
    assert shown["profiles.dev.retry_backoff_seconds"] == ([120, 600], "default", None)
    assert shown["runs.nightly.max_jobs_per_run"] == (60, "file", "holdfast.toml:12")
    assert shown["runs.nightly.claim_timeout_seconds"] == (3600, "profile", "prod")
    assert shown["runs.nightly.schedule"] == ("every 1h", "profile", "prod")
    assert shown["schedules.hourly.every"] == ("1h", "file", "holdfast.toml:14")


@pytest.mark.usefixtures("file")
def test_secrets_and_passwords_are_hidden(run: Run) -> None:
    as_json, as_table = run("config", "show", "--json"), run("config", "show")

    assert "hunter2" not in as_json.out + as_table.out + as_json.err + as_table.err
    assert rows(as_json)["audit_key"][0] == rows(as_json)["artifacts.link_key"][0] == "(hidden)"
    assert rows(as_json)["db"][0] == "postgresql://me@host/jobs?sslpassword=…"


def test_the_table_says_the_same_for_people(run: Run) -> None:
    done = run("config", "show", db="sqlite:///x.db")

    assert done.code == 0
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0] == ["key", "value", "from"]
    assert ["db", "sqlite:///x.db", "--db"] in lines
    assert ["claim_limit", "500", "default"] in lines


def test_an_unknown_variable_is_reported_with_the_nearest_setting(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_LEASE_SECOND", "20")

    done = run("config", "show")

    assert done.code == 0
    assert "HOLDFAST_LEASE_SECOND is not a setting" in done.err
    assert "did you mean HOLDFAST_LEASE_SECONDS?" in done.err


def test_a_bad_file_ends_with_every_reason_and_code_1(run: Run, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("claim_limit = 0\nwat = 1\n")

    done = run("config", "show")

    assert done.code == 1
    assert "holdfast.toml:1: claim_limit = 0 must be" in done.err
    assert "holdfast.toml:2: wat is an unknown key" in done.err


def test_an_invalid_cron_line_is_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(
        '[runs.r]\nqueues = ["q:default"]\n[schedules.odd]\ncron = "99 * * * *"\nrun = "r"\n'
    )

    done = run("config", "show")

    assert done.code == 1
    assert "odd" in done.err
    assert "99" in done.err
