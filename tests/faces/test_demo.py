"""The demo, without a terminal: real processes, a real kill, and the database's own accounts."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from holdfast import FakeClock, Holdfast
from holdfast.demo.app import BAKERY, FLOOD, LANE, QUIET
from holdfast.demo.app import hf as demo_hf
from holdfast.demo.scene import Scene
from holdfast.demo.stage import Stage
from holdfast.demo.story import FLOOD_JOBS, Story
from holdfast.demo.verdict import judge
from holdfast.demo.view import PROMISE
from holdfast.demo.waits import Fairness, Waits, measure
from holdfast.engine.claim import Order, claim_jobs
from holdfast.engine.maintenance import rescue_jobs
from holdfast.store import open_store
from tests.story import by_hand


def test_the_demo_kills_a_worker_beside_a_flood_and_nobody_is_lost_or_starved(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    found = re.findall(r"^  ([a-z-]+(?: back)?) +([\d,]+)   \S", done.stdout, re.M)
    counts = {what: int(count.replace(",", "")) for what, count in found}
    assert counts["lost"] == counts["doubled"] == counts["tampered"] == 0
    assert counts["dead-lettered"] == counts["retried"] == 1
    assert counts["completed"] == counts["enqueued"] - 1
    assert counts["brought back"] >= 1
    assert counts["executions"] > counts["enqueued"] > FLOOD_JOBS
    assert re.search(r"kill -9 \d+: worker one dies with \d+ jobs in its hands", done.stdout)
    assert re.search(
        r"Gull & Gull Leaflets: [\d,]+ waiting, [\d,]+ done.*quiet tenants", done.stdout
    )
    assert re.search(
        rf"^  {FLOOD.name} +{FLOOD_JOBS:,} jobs +\S+ m?s at the median", done.stdout, re.M
    )
    for firm in QUIET:
        assert re.search(rf"^  {firm.name} +\d+ jobs +\S+ m?s at the median", done.stdout, re.M)
    assert re.search(r"The flood: 3,000 jobs\. The quiet tenants beside it waited", done.stdout)
    assert "the second order is the first job" in done.stdout
    assert PROMISE in done.stdout
    assert "\x1b" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_verdict_sees_what_is_lost_and_what_is_doubled(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/demo.db"
    app = Holdfast(url)
    for handler in demo_hf.registry:
        app.registry.handlers.setdefault(handler.job_type, handler)
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
    found = judge(store, {waiting.id, ended.id, "never-written"})
    store.close()

    assert (found.lost, found.doubled, found.completed, found.completed_once) == (2, 1, 1, 0)
    assert "nothing is lost" in found.problems
    assert "nothing is doubled" in found.problems
    assert "every accepted job is in the database" in found.problems


def served(hf: Holdfast, clock: FakeClock, order: Order) -> Fairness:
    """A flood, a quiet job of everybody right behind it, and five claims a second."""
    for handler in demo_hf.registry:
        hf.registry.handlers.setdefault(handler.job_type, handler)
    payload = {"number": 1, "seconds": 0}
    hf.enqueue_many(FLOOD.job_type, [payload] * 40, org_id=FLOOD.org_id)
    for firm in QUIET:
        hf.enqueue(firm.job_type, payload, org_id=firm.org_id)
    claimed = True
    while claimed:
        clock.advance(seconds=1)
        claimed = bool(
            claim_jobs(
                hf.store, queue="q:default", worker_id="w1", limit=5, lease_ms=60_000, order=order
            )
        )
    return measure(hf.store)


def test_the_verdict_measures_what_a_quiet_tenant_waits_beside_a_flood(
    hf: Holdfast, clock: FakeClock
) -> None:
    fair = served(hf, clock, Order.FAIR)

    # The first claim has one of everybody; the flood's 39 others are claimed five at a time.
    assert fair.quiet == Waits(jobs=4, median=1.0, worst=1.0)
    assert fair.flood == Waits(jobs=40, median=5.0, worst=9.0)
    assert [(firm, waits.jobs) for firm, waits in fair.by_firm] == [
        (FLOOD, 40),
        *((firm, 1) for firm in QUIET),
    ]
    assert fair.holds
    assert fair.sentence.endswith("1.0 s at worst; the flood's own jobs 5.0 s at the median.")


def test_a_job_that_was_brought_back_has_waited_until_its_first_start(
    hf: Holdfast, clock: FakeClock
) -> None:
    before = served(hf, clock, Order.FAIR)
    clock.advance(seconds=61)

    assert len(rescue_jobs(hf.store, limit=100)) == 44
    assert claim_jobs(hf.store, queue="q:default", worker_id="w2", limit=44, lease_ms=60_000)
    assert measure(hf.store) == before


def test_the_verdict_sees_a_quiet_tenant_behind_the_flood(hf: Holdfast, clock: FakeClock) -> None:
    first_come = served(hf, clock, Order.CREATED_AT_ASC)

    assert first_come.quiet == Waits(jobs=4, median=9.0, worst=9.0)
    assert not first_come.holds
    assert "the quiet tenants waited much less than the flood" in judge(hf.store, set()).problems


def test_a_tenant_that_was_never_served_did_not_wait_little(hf: Holdfast, clock: FakeClock) -> None:
    fair = served(hf, clock, Order.FAIR)
    unserved = tuple(
        (firm, Waits.from_seconds([]) if firm == LANE else own) for firm, own in fair.by_firm
    )

    assert not replace(fair, by_firm=unserved).holds


def test_the_picture_draws_every_wait_on_one_scale() -> None:
    scene = Scene(began_at=time.monotonic())
    scene.flood.waiting, scene.flood.done = 1_740, 1_260
    scene.flood.last_wait = scene.flood.worst_wait = 2.4
    for bar in scene.quiet:
        bar.done, bar.last_wait, bar.worst_wait = 12, 0.012, 0.55
    stage = Stage(Console(file=StringIO(), record=True, width=88, color_system=None))
    stage.console.print(stage.picture(scene))
    flood, *quiet = [
        line for line in stage.console.export_text().splitlines() if "█" in line or "░" in line
    ]

    assert re.search(r"Gull & Gull Leaflets +1,740 +1,260 +█{22} +2\.4 s +2\.4 s", flood)
    assert len(quiet) == len(QUIET)
    assert all(re.search(r" 12 +▏░{4} +12 ms +550 ms", line) for line in quiet)


@pytest.mark.parametrize(("problems", "exit_code"), [((), 0), (("nothing is lost",), 1)])
def test_the_exit_code_is_the_verdict(
    problems: tuple[str, ...],
    exit_code: int,
    hf: Holdfast,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from holdfast.cli import demo

    found = replace(judge(hf.store, set()), problems=problems)
    monkeypatch.setattr(Story, "run", lambda story: found)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)

    assert CliRunner().invoke(demo.demo).exit_code == exit_code


def test_without_rich_the_demo_says_how_to_get_it_and_goes_on_plainly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from holdfast.cli import demo
    from holdfast.demo.view import Lines

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setitem(sys.modules, "holdfast.demo.stage", None)

    assert isinstance(demo._view(plain=False), Lines)
    assert "pip install 'holdfast-jobs[demo]'" in capsys.readouterr().out


def test_a_terminal_with_rich_gets_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.cli import demo

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)

    assert isinstance(demo._view(plain=False), Stage)
    assert not isinstance(demo._view(plain=True), Stage)
