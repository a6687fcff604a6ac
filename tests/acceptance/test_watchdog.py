"""A worker process of which a thread died ends with 75, and its supervisor starts another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import State
from holdfast.engine.worker.supervisor import RECYCLE
from tests.acceptance.app import make
from tests.acceptance.processes import ROOT, all_in, wait_until
from tests.operate.sound import assert_sound
from tests.story import ORG

APP = """
    import os
    from pathlib import Path

    from holdfast.engine.worker.lease_renewer import LeaseRenewer
    from holdfast.engine.worker.settle_buffer import SettleBuffer
    from tests.acceptance.app import make

    hf = make(os.environ["HOLDFAST_DB"])

    def broken(*_):
        raise KeyError("broken")

    marker = Path(os.environ["BROKEN_ONCE"])
    if not marker.exists() and "--worker-id" in os.sys.argv or not os.environ.get("SUPERVISED"):
        marker.touch()
        if os.environ["BROKEN_PART"] == "settle-buffer":
            SettleBuffer._settle_group = broken
        else:
            LeaseRenewer._abandon_overdue = broken
"""


class Command:
    """``holdfast worker`` with an application whose first worker process is broken."""

    def __init__(self, url: str, folder: Path, part: str, *options: str) -> None:
        (folder / "broken_app.py").write_text(textwrap.dedent(APP))
        env = {
            **os.environ,
            "HOLDFAST_DB": url,
            "BROKEN_ONCE": str(folder / "broken"),
            "BROKEN_PART": part,
            "SUPERVISED": "yes" if "--processes" in options else "",
            "PYTHONPATH": f"{folder}:{ROOT}",
        }
        command = [sys.executable, "-m", "holdfast", "--app", "broken_app:hf", "worker", *options]
        self.process = subprocess.Popen(
            command, env=env, cwd=ROOT, text=True, stderr=subprocess.PIPE, start_new_session=True
        )

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def commands() -> Iterator[list[Command]]:
    made: list[Command] = []
    yield made
    for command in made:
        command.close()


@pytest.mark.req("I-18")
@pytest.mark.parametrize("part", ["settle-buffer", "lease-renewer"])
def test_a_worker_process_with_a_dead_thread_exits_with_75(
    url: str, tmp_path: Path, commands: list[Command], part: str
) -> None:
    with make(url) as hf:
        hf.enqueue("work", {}, org_id=ORG)

        command = Command(url, tmp_path, part)
        commands.append(command)
        _, errors = command.process.communicate(timeout=90)

        assert command.process.returncode == RECYCLE
        assert "worker.thread_died" in errors
        assert f"holdfast-{part} died" in errors


@pytest.mark.req("I-18")
def test_a_supervisor_replaces_a_worker_with_a_dead_thread(
    url: str, tmp_path: Path, commands: list[Command]
) -> None:
    with make(url) as hf:
        command = Command(url, tmp_path, "settle-buffer", "--processes", "2")
        commands.append(command)
        wait_until((tmp_path / "broken").exists)

        jobs = hf.enqueue_many("work", [{}] * 20, org_id=ORG)
        wait_until(lambda: all_in(hf, jobs, State.COMPLETED))

        assert command.process.poll() is None
        command.process.terminate()
        command.process.communicate(timeout=90)
        assert_sound(hf)
