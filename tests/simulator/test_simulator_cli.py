"""holdfast simulator, as a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner

from holdfast_simulator import SCRIPTS, Simulator
from holdfast_simulator.command import simulator

RUN = "from holdfast_simulator.command import simulator; simulator(prog_name='simulator')"


def test_it_serves_until_it_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def answer(ask):\n    return 'from ' + ask.model\n")
    options = ["--port", "0", "--responder", "mine:answer", "--fault", "list_500,times=1"]
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *options],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    urls: dict[str, str] = {}
    while "control" not in urls:
        name, url = process.stdout.readline().split()
        urls[name] = url
    hello = {"model": "gpt-5.2", "input": "Hello"}
    with httpx2.Client(headers={"authorization": "Bearer any"}) as http:
        listed = http.get(urls["openai"] + "/batches")
        said = http.post(urls["openai"] + "/responses", json=hello).json()
        before = http.get(urls["control"] + "/clock").json()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=20)

    assert listed.status_code == 500
    assert said["output"][0]["content"][0]["text"] == "from gpt-5.2"
    assert before["is_still"] is False
    assert (process.returncode, errors) == (0, "")


def test_it_prints_every_fault_with_its_options() -> None:
    done = CliRunner().invoke(simulator, ["--list-faults"])

    assert done.exit_code == 0
    assert [name for name in SCRIPTS if name not in done.output] == []
    assert 'framing="fixed", share=0.5' in done.output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--fault", "rain"], "there is no fault 'rain'"),
        (["--fault", "slow_down,seconds"], "'seconds' is not option=value"),
        (["--fault", "slow_down,seconds=3"], "has no option seconds"),
        (["--fault", "slow_down,provider=opanai"], "there is no provider 'opanai'"),
        (["--seconds", "nan"], "it must be at most 2,592,000"),
        (["--seconds", "inf"], "it must be at most 2,592,000"),
    ],
)
def test_an_option_that_makes_no_sense_is_wrong_usage(options: list[str], says: str) -> None:
    done = CliRunner().invoke(simulator, ["--port", "0", *options])

    assert done.exit_code == 2
    assert says in done.output


def test_what_cannot_start_says_why() -> None:
    with Simulator() as other:
        port = other.origin.rpartition(":")[2]
        taken = CliRunner().invoke(simulator, ["--port", port])
    unknown = CliRunner().invoke(simulator, ["--port", "0", "--responder", "nowhere:at_all"])

    no_function = CliRunner().invoke(simulator, ["--port", "0", "--responder", "os:sep"])

    assert "Choose another --port" in taken.output
    assert "There is no responder nowhere:at_all" in unknown.output
    assert "The responder os:sep is not a function" in no_function.output
