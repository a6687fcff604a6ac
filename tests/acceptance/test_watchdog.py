"""A worker process with a dead thread exits with 75, and its supervisor starts another."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import State
from holdfast.engine.worker.supervisor import RECYCLE
from tests.acceptance.app import make
from tests.acceptance.processes import Command, all_in, wait_until
from tests.operate.sound import assert_sound
from tests.story import ORG


def start(url: str, folder: Path, part: str, *options: str) -> Command:
    """``holdfast worker`` with an application whose first worker process is broken."""
    env = {
        "HOLDFAST_DB": url,
        "BROKEN_ONCE": str(folder / "broken"),
        "BROKEN_PART": part,
        "SUPERVISED": "yes" if "--processes" in options else "",
    }
    return Command("--app", "tests.acceptance.broken_app:hf", "worker", *options, env=env)


@pytest.mark.req("I-18")
@pytest.mark.parametrize("part", ["settle-buffer", "lease-renewer"])
def test_a_worker_process_with_a_dead_thread_exits_with_75(
    url: str, tmp_path: Path, part: str
) -> None:
    with make(url) as hf:
        hf.enqueue("work", {}, org_id=ORG)

        command = start(url, tmp_path, part)
        _, errors = command.wait()

        assert command.returncode == RECYCLE
        assert "worker.thread_died" in errors
        assert f"holdfast-{part} died" in errors


@pytest.mark.req("I-18")
def test_a_supervisor_replaces_a_worker_with_a_dead_thread(url: str, tmp_path: Path) -> None:
    with make(url) as hf:
        command = start(url, tmp_path, "settle-buffer", "--processes", "2")
        wait_until((tmp_path / "broken").exists)

        # No job ends before both workers have started one.
        folder = tmp_path / "met"
        folder.mkdir()
        payload = {"meet": str(folder), "processes": 2}
        jobs = hf.enqueue_many("work", [payload] * 20, org_id=ORG)
        wait_until(lambda: all_in(hf, jobs, State.COMPLETED))

        assert command.returncode is None
        assert "worker.thread_died" in command.log()
        command.terminate()
        command.wait()
        assert command.returncode == 0
        assert_sound(hf)
