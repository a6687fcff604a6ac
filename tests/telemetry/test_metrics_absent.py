"""Metrics are an extra: an application without them needs no packages and has no cost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from holdfast import Holdfast
from holdfast.cli.metrics import metrics
from tests.story import ORG
from tests.telemetry.app import make
from tests.telemetry.exposition import problems_of, value

ROOT = Path(__file__).resolve().parent.parent.parent

WITHOUT = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "prometheus_client":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
"""


def python(text: str, url: str = "sqlite:") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "HOLDFAST_DB": url},
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )


def main(*arguments: str) -> str:
    given = ["--app", "tests.telemetry.app:hf", *arguments]
    return f"from holdfast.cli import main; main({given!r})"


def test_nothing_of_prometheus_is_imported_unless_it_is_asked_for_and_its_absence_is_named() -> (
    None
):
    modules = ["holdfast", "holdfast.cli.worker", "holdfast.cli.metrics", "holdfast.testing"]
    modules += ["holdfast.telemetry.gauges", "holdfast.telemetry.label", "holdfast.telemetry.log"]

    ran = python(
        f"import sys, {', '.join(modules)}\nprint([m for m in sys.modules if 'prometheus' in m])\n"
        + WITHOUT
        + "from holdfast.errors import ConfigError\n"
        "try:\n    from holdfast.telemetry.metrics import Metrics\n"
        "except ConfigError as exc:\n    print(exc)"
    )

    assert ran.stdout.splitlines() == [
        "[]",
        "Metrics need the extra: pip install 'holdfast-jobs[metrics]'.",
    ], ran.stderr


def test_a_worker_works_without_the_library(url: str) -> None:
    hf = make(url)
    hf.enqueue("ends", {"as": "well"}, org_id=ORG)
    hf.close()

    ran = python(WITHOUT + main("worker", "--until-idle"), url)

    assert ran.returncode == 0, ran.stderr
    assert '"job.completed"' in ran.stderr


def test_a_worker_that_is_to_serve_metrics_says_which_extra_it_needs(url: str) -> None:
    commands = [["worker", "--metrics-port", "9464"], ["metrics"]]

    # Each in a forked child of a process that has imported everything.
    ran = python(
        f"{WITHOUT}\nimport os\nimport holdfast.cli\nfor command in {commands!r}:\n"
        "    child = os.fork()\n    if child == 0:\n"
        "        holdfast.cli.main(['--app', 'tests.telemetry.app:hf', *command])\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n",
        url,
    )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["1", "1"]
    refusals = ran.stderr.splitlines()
    assert len(refusals) == 2, ran.stderr
    for line in refusals:
        assert "Metrics need the extra: pip install 'holdfast-jobs[metrics]'." in line


def test_the_command_prints_the_gauges_once(url: str) -> None:
    hf: Holdfast = make(url)
    hf.enqueue_many("awaits", [{}] * 7, org_id=ORG)
    hf.close()

    ran = CliRunner().invoke(metrics, obj={"db": url, "app": None})

    assert ran.exit_code == 0, ran.output
    assert problems_of(ran.output) == []
    assert value(ran.output, "holdfast_db_up") == 1
    # The application is not named here, but it wrote its queue into the store before its first job.
    assert value(ran.output, "holdfast_queue_depth", queue="q:mail", state="ready") == 7
    assert "jobs_enqueued_total" not in ran.output

    with_app = CliRunner().invoke(
        metrics, obj={"db": url, "app": "tests.telemetry.app:hf"}, env={"HOLDFAST_DB": url}
    )
    assert value(with_app.output, "holdfast_queue_depth", queue="q:mail", state="ready") == 7
    assert value(with_app.output, "holdfast_dead_letters_open", job_type="awaits") == 0
