"""The demo, without a terminal: real processes, a real kill, and the database's own accounts."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.demo import verdict as verdicts
from holdfast.demo.app import BAKERY, hf
from holdfast.demo.view import PROMISE
from holdfast.store import open_store
from tests.story import by_hand


def test_the_demo_kills_a_worker_and_every_job_still_ends_once(tmp_path: Path) -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    took = time.monotonic() - began

    assert (done.returncode, done.stderr) == (0, "")
    counts = dict(re.findall(r"^  ([a-z-]+(?: back)?) +(\d+)   \S", done.stdout, re.M))
    assert counts["lost"] == counts["doubled"] == counts["tampered"] == "0"
    assert counts["dead-lettered"] == counts["retried"] == "1"
    assert int(counts["completed"]) == int(counts["enqueued"]) - 1
    assert int(counts["brought back"]) >= 1
    assert int(counts["executions"]) > int(counts["enqueued"])
    assert re.search(r"kill -9 \d+: worker one dies with \d+ jobs in its hands", done.stdout)
    assert "the second order is the first job" in done.stdout
    assert PROMISE in done.stdout
    assert "\x1b" not in done.stdout
    assert list(tmp_path.iterdir()) == []
    assert took < 30


def test_the_verdict_sees_what_is_lost_and_what_is_doubled(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/demo.db"
    app = Holdfast(url)
    for handler in hf.registry:
        app.registry.add(handler)
    payload = {"number": 1, "seconds": 0}
    waiting = app.enqueue("bread.bake", payload, org_id=BAKERY.org_id, queue="q:exports")
    ended = app.enqueue("bread.bake", payload, org_id=BAKERY.org_id)
    app.worker(queues=["q:default"]).run_once()
    app.close()

    store = open_store(url)
    by_hand(
        store,
        "INSERT INTO holdfast.job_event (org_id, job_id, job_type, name, attempt, actor_type,"
        " actor_id, request_id, correlation_id, at) SELECT org_id, id, job_type, 'job.succeeded',"
        " 1, actor_type, actor_id, request_id, correlation_id, created_at FROM holdfast.job"
        " WHERE id = :id",
        id=ended.id,
    )
    found = verdicts.judge(store, {waiting.id, ended.id, "never-written"})
    store.close()

    assert (found.lost, found.doubled, found.completed, found.completed_once) == (2, 1, 1, 0)
    assert "nothing is lost" in found.problems
    assert "nothing is doubled" in found.problems
    assert "every accepted job is in the database" in found.problems


def test_without_rich_the_demo_says_how_to_get_it_and_goes_on_plainly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from holdfast.cli import demo
    from holdfast.demo.view import Lines

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setitem(sys.modules, "holdfast.demo.stage", None)

    assert isinstance(demo._view(plain=False), Lines)
    assert "pip install 'holdfast[demo]'" in capsys.readouterr().out


def test_a_terminal_with_rich_gets_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.cli import demo
    from holdfast.demo.stage import Stage

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)

    assert isinstance(demo._view(plain=False), Stage)
    assert not isinstance(demo._view(plain=True), Stage)
