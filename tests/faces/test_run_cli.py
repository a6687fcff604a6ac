"""holdfast run, holdfast runs, and the units that call them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from holdfast.cli import cli
from tests.faces.conftest import APP, Run
from tests.story import ORG

ROOT = Path(__file__).resolve().parent.parent.parent
NOBODY = "0198c0de-0000-7000-8000-0000000000ff"
TOLD = {
    "run_id", "name", "profile", "trigger", "actor", "tick", "settings", "max_jobs_per_run",
    "started_at", "finished_at", "outcome", "reason", "claimed_count", "succeeded_count",
    "failed_count", "requeued_count", "released_count", "canceled_count", "left_count",
    "submitted_count", "rate_limit_errors", "capacity_errors", "error_counts", "model_counts",
}  # fmt: skip


@pytest.fixture
def url(url: str, tmp_path: Path) -> str:
    (tmp_path / "holdfast.toml").write_text(
        '[runs.general]\nqueues = ["q:default"]\nmax_jobs_per_run = 2\n'
    )
    return url


def enqueue(run: Run, url: str, count: int) -> None:
    for _ in range(count):
        assert run("enqueue", "greet", "{}", "--org", ORG, db=url, app=APP).code == 0


def logged(err: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in err.splitlines() if line.startswith("{")]


def perform(run: Run, url: str, *more: str) -> Any:
    return run("run", "general", *more, db=url, app=APP)


def test_a_run_takes_as_many_as_it_may_and_says_so(run: Run, url: str) -> None:
    enqueue(run, url, 3)

    first = perform(run, url, "--reason", "provider is back", "--json")
    second = perform(run, url, "--cron", "--json")

    assert (first.code, second.code) == (0, 0)
    assert set(first.json) == TOLD
    assert (first.json["outcome"], first.json["claimed_count"]) == ("full", 2)
    assert (first.json["trigger"], first.json["actor"]) == ("manual", "user:cli")
    assert first.json["reason"] == "provider is back"
    assert (second.json["outcome"], second.json["succeeded_count"]) == ("done", 1)
    assert (second.json["trigger"], second.json["actor"]) == ("cron", "system:cron")


@pytest.mark.req("A-06")
def test_every_run_logs_one_line_with_its_fields(run: Run, url: str) -> None:
    enqueue(run, url, 1)

    done = perform(run, url, "--cron")

    (line,) = (line for line in logged(done.err) if line["event"] == "run.finished")
    wanted = {
        "run_id", "started_at", "finished_at", "max_jobs_per_run", "claimed_count",
        "succeeded_count", "failed_count", "requeued_count", "rate_limit_errors",
        "capacity_errors", "outcome",
    }  # fmt: skip
    assert wanted < set(line)
    assert (line["run"], line["claimed_count"], line["level"]) == ("general", 1, "info")


@pytest.mark.req("B-17")
def test_nothing_pending_is_the_same_line_every_time_and_no_error(run: Run, url: str) -> None:
    first, second = perform(run, url, "--cron"), perform(run, url, "--cron")

    assert (first.code, second.code) == (0, 0)
    for done in (first, second):
        (line,) = (line for line in logged(done.err) if "skipped" in line["event"])
        assert (line["event"], line["level"]) == ("general skipped: no pending items", "info")


def test_an_operators_reason_is_not_in_the_log(run: Run, url: str) -> None:
    enqueue(run, url, 1)

    done = perform(run, url, "--reason", "because of hunter2")

    assert "hunter2" not in done.err
    assert re.search(r"^ *reason +because of hunter2$", done.out, re.M)


@pytest.mark.parametrize("more", [(), ("--reason", " "), ("--reason", "x", "--cron")])
def test_a_person_gives_a_reason_and_a_timer_does_not(
    run: Run, url: str, more: tuple[str, ...]
) -> None:
    done = perform(run, url, *more)

    assert done.code == 2
    assert "--reason TEXT, or --cron" in done.err


def test_an_undeclared_run_is_not_found(run: Run, url: str) -> None:
    done = run("run", "genral", "--cron", db=url, app=APP)

    assert done.code == 3
    assert "Declared: general" in done.err


def test_runs_are_listed_newest_first_and_shown_one_by_one(run: Run, url: str) -> None:
    enqueue(run, url, 3)
    made = [perform(run, url, "--cron", "--json").json["run_id"] for _ in range(3)]

    listed = run("runs", "list", "--json", db=url)
    page = run("runs", "list", "--limit", "1", "--before", made[2], "--json", db=url)
    table = run("runs", "list", "--name", "general", db=url)
    shown = run("runs", "show", made[0], "--json", db=url)
    told = run("runs", "show", made[0], db=url)

    assert [row["run_id"] for row in listed.json] == made[::-1]
    assert [row["run_id"] for row in page.json] == [made[1]]
    assert [line.split()[-5] for line in table.out.splitlines()[1:]] == ["skipped", "done", "full"]
    assert shown.json == listed.json[2]
    assert re.search(r"^Settings\n(.+\n)*  max_runtime_seconds +240$", told.out, re.M)
    assert run("runs", "list", "--name", "other", "--json", db=url).json == []


def test_a_run_that_is_not_there_is_not_found(run: Run, url: str) -> None:
    assert run("runs", "show", NOBODY, db=url).code == 3
    assert run("runs", "show", "nonsense", db=url).code == 2


# -- units


CRON = sorted((ROOT / "deploy" / "cron").iterdir())
UNITS = sorted((ROOT / "deploy" / "systemd").iterdir())


def commands(file: Path) -> Iterator[list[str]]:
    """The arguments of every holdfast that a unit or a crontab calls."""
    for line in file.read_text().splitlines():
        # A line '#* *' of a crontab is a commented example and must work as well.
        found = re.search(r"^(?:ExecStart=\S*/|#?[*\d]\S* .* holdfast )holdfast (\S.*)$", line)
        if found:
            yield found[1].split()


@pytest.mark.req("B-11")
@pytest.mark.parametrize("file", [*CRON, *UNITS], ids=lambda path: path.name)
def test_every_command_of_a_unit_exists_with_its_options(file: Path) -> None:
    called = list(commands(file))

    assert bool(called) == (file.suffix != ".timer")
    for arguments in called:
        group: click.Command = cli
        context = click.Context(cli)
        while isinstance(group, click.Group):
            name = arguments.pop(0)
            found = group.get_command(context, name)
            assert found is not None, f"no command {name}"
            group = found
        # Parses the options as a call does, without the call.
        group.make_context(file.name, arguments)


def test_the_crontab_keeps_the_cadence_of_the_batch_lane() -> None:
    (file,) = CRON
    lines = [line.split() for line in file.read_text().splitlines() if line[:1] in ("*", "0")]

    assert {line[8]: " ".join(line[:5]) for line in lines if len(line) > 8} == {
        "general": "0 * * * *",
        "batch_submitter": "*/15 * * * *",
        "batch_collector": "*/30 * * * *",
    }


def test_the_timer_starts_the_run_of_its_name() -> None:
    timer = (ROOT / "deploy" / "systemd" / "holdfast-run@.timer").read_text()

    assert "Unit=holdfast-run@%i.service" in timer
    assert re.search(r"^OnCalendar=hourly$", timer, re.M)


@pytest.mark.parametrize("file", UNITS, ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong_with_a_unit(file: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not on this machine")
    # An instance of each template, with a command that exists here.
    for unit in UNITS:
        text = unit.read_text().replace("/opt/holdfast/bin/holdfast", "/bin/true")
        (tmp_path / unit.name.replace("@.", "@general.")).write_text(
            text.replace("User=holdfast", "User=root")
        )
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / file.name.replace("@.", "@general."))],
        capture_output=True,
        text=True,
        check=False,
    )

    about = [line for line in checked.stderr.splitlines() if "holdfast" in line]
    assert (checked.returncode, about) == (0, [])
