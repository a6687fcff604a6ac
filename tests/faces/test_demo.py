"""The demo without a terminal: real processes, a real kill, and counts from the database."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from holdfast import FakeClock, Holdfast
from holdfast.demo.acts import ActReport, ActsProcess, ActState, Count, run_acts
from holdfast.demo.app import BAKERY, FLOOD, LANE, QUIET
from holdfast.demo.app import hf as demo_hf
from holdfast.demo.stage import Stage
from holdfast.demo.state import DemoState
from holdfast.demo.story import Story
from holdfast.demo.summary import summarize
from holdfast.demo.view import CONSOLE, PROMISE, Lines
from holdfast.demo.waits import Fairness, Waits, measure
from holdfast.engine.claim import Order, claim_jobs
from holdfast.engine.maintenance import rescue_jobs
from holdfast.store import open_store
from tests.faces.conftest import Run
from tests.short_demo import FLOOD_JOBS, PROGRAM
from tests.story import by_hand


def counts_of(printed: str) -> dict[str, list[int]]:
    """The counts of the summary by name: first those of the jobs, then those of the acts."""
    found: dict[str, list[int]] = {}
    for name, count in re.findall(r"^  ([a-z-]+(?: [a-z]+)?) +([\d,]+)   \S", printed, re.M):
        found.setdefault(name, []).append(int(count.replace(",", "")))
    return found


def test_the_demo_loses_doubles_overpays_and_leaks_nothing_and_leaves_its_database(
    tmp_path: Path, run: Run
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "In total: lost 0, doubled 0, paid twice 0, leaked 0\n" in done.stdout
    counts = counts_of(done.stdout)
    assert counts["lost"] == counts["doubled"] == [0, 0, 0]
    assert (counts["paid twice"], counts["leaked"], counts["tampered"]) == ([0], [0, 0], [0])
    assert counts["dead-lettered"] == counts["retried"] == [1]
    assert counts["completed"][0] == counts["enqueued"][0] - 1
    assert counts["rescued"][0] >= 1
    assert counts["executions"][0] > counts["enqueued"][0] > FLOOD_JOBS
    assert (counts["sent"], counts["held"], counts["accepted"]) == ([1], [1], [2])
    # Each message is rewritten once and judged once.
    assert (counts["rewritten"], counts["charges"]) == ([3], [6])
    check_the_captions(done.stdout)
    check_the_commands(done.stdout, tmp_path)
    check_the_databases(tmp_path, run)


def check_the_captions(printed: str) -> None:
    assert re.search(r"kill -9 \d+: worker one is killed with \d+ jobs in flight", printed)
    assert re.search(r"Gull & Gull Leaflets: [\d,]+ waiting, [\d,]+ done.*quiet tenants", printed)
    assert re.search(rf"^  {FLOOD.name} +{FLOOD_JOBS:,} jobs +\S+ m?s median", printed, re.M)
    for firm in QUIET:
        assert re.search(rf"^  {firm.name} +\d+ jobs +\S+ m?s median", printed, re.M)
    assert re.search(rf"The flood: {FLOOD_JOBS} jobs\. The quiet tenants beside it waited", printed)
    assert "with one idempotency key: one job" in printed
    assert "Mail: smtp: no lookup exists, the delivery is held for an operator." in printed
    assert "Rewrite: Nora writes: Take the damn bins out for once, you lazy slob!" in printed
    assert "Rewrite: Ben reads: Could you take the bins out? It would help me a lot." in printed
    assert PROMISE in printed
    assert "\x1b" not in printed


def check_the_commands(printed: str, folder: Path) -> None:
    (left,) = folder.iterdir()
    assert {path.name for path in left.glob("*.db")} == {"demo.db", "mail.db", "rewrite.db"}
    # Each is run below in a shell that names another application.
    commands = re.findall(
        r"^  (\S+ --app holdfast\.demo\.app:hf --db sqlite:///.*)$", printed, re.M
    )
    expected = ("tea.pour", "DEFECT", "no violations")
    *reading, console = commands
    assert printed.endswith(f"{CONSOLE}\n  {console}\n")
    assert console.endswith(" serve --dev")
    for command, text in zip(reading, expected, strict=True):
        shown = subprocess.run(
            shlex.split(command),
            env={**os.environ, "HOLDFAST_APP": "missing:hf"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (shown.returncode, shown.stderr) == (0, "")
        assert text in shown.stdout


def check_the_databases(folder: Path, run: Run) -> None:
    for path in folder.glob("*/*.db"):
        shown = run("--db", f"sqlite:///{path}", "verify")
        assert (shown.code, shown.err) == (0, ""), (path.name, shown.out)
    # The mail act leaves a delivery for an operator, which the doctor reports.
    (rewrites,) = folder.glob("*/rewrite.db")
    shown = run("--db", f"sqlite:///{rewrites}", "doctor")
    assert (shown.code, shown.err) == (0, ""), shown.out


def test_without_acts_the_demo_shows_the_jobs_only(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("holdfast.demo.story.find_acts", dict)
    story = Story(tmp_path, Lines())

    story._start_acts()

    assert story.acts is None
    assert summarize(hf.store, set()).totals == "lost 0, doubled 0"


def acts_of(folder: Path, **acts: str) -> dict[str, ActState]:
    """Run acts in their process until it ends."""
    process = ActsProcess(acts, folder)
    captions = []
    while not process.has_ended:
        captions += process.read_captions()
        time.sleep(0.02)
    captions += process.read_captions()
    found = {act.title: act for act in process.complete()}
    process.stop()
    assert captions == [(act.title, said) for act in found.values() for said in act.captions]
    return found


def unlucky(report: ActReport) -> None:
    """An act that loses something, and then fails."""
    report.say("It begins.")
    report.count("lost", 2, "not found again")
    report.require("the sky is blue", holds=False)
    raise RuntimeError("no more")


def test_an_act_that_fails_or_loses_something_fails_the_demo(hf: Holdfast, tmp_path: Path) -> None:
    acts = acts_of(tmp_path, Unlucky=f"{__name__}:unlucky", Last="holdfast_simulator.demo:run")

    summary = summarize(hf.store, set()).with_acts(list(acts.values()))

    assert acts["Unlucky"].counts == [Count("lost", 2, "not found again")]
    assert summary.totals == "lost 2, doubled 0"
    assert "the sky is blue" in summary.problems
    assert "Unlucky: lost is 0, not 2" in summary.problems
    assert "the act Unlucky completes; its log ends with: RuntimeError: no more" in summary.problems
    assert "the act Last completes; its log ends with: RuntimeError: no more" in summary.problems


def test_an_act_without_its_imports_is_left_out(tmp_path: Path) -> None:
    lines = StringIO()

    run_acts({"Absent": "there_is_no_such_module:run"}, tmp_path, lines)

    assert "Left out, because there_is_no_such_module is not installed." in lines.getvalue()
    assert '"ended": true' in lines.getvalue()


def test_the_summary_sees_what_is_lost_and_what_is_doubled(tmp_path: Path) -> None:
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
        "INSERT INTO holdfast.audit_event (org_id, job_id, job_type, name, attempt, actor_type,"
        " actor_id, request_id, correlation_id, at) SELECT org_id, id, job_type, 'job.succeeded',"
        " 1, actor_type, actor_id, request_id, correlation_id, created_at FROM holdfast.job"
        " WHERE id = :id",
        id=ended.id,
    )
    found = summarize(store, {waiting.id, ended.id, "never-written"})
    store.close()

    assert (found.lost, found.doubled, found.completed, found.completed_once) == (2, 1, 1, 0)
    assert "nothing is lost" in found.problems
    assert "nothing is doubled" in found.problems
    assert "every accepted job is in the database" in found.problems


def served(hf: Holdfast, clock: FakeClock, order: Order) -> Fairness:
    """A flood, then a job of each quiet tenant, and five claims a second."""
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


def test_the_summary_measures_what_a_quiet_tenant_waits_beside_a_flood(
    hf: Holdfast, clock: FakeClock
) -> None:
    fair = served(hf, clock, Order.FAIR)

    # The first claim has one job of each tenant; the flood's 39 others are claimed five at a time.
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


def test_the_summary_sees_a_quiet_tenant_behind_the_flood(hf: Holdfast, clock: FakeClock) -> None:
    first_come = served(hf, clock, Order.CREATED_AT_ASC)

    assert first_come.quiet == Waits(jobs=4, median=9.0, worst=9.0)
    assert not first_come.holds
    assert (
        "the quiet tenants waited much less than the flood" in summarize(hf.store, set()).problems
    )


def test_a_tenant_that_was_never_served_did_not_wait_little(hf: Holdfast, clock: FakeClock) -> None:
    fair = served(hf, clock, Order.FAIR)
    unserved = tuple(
        (firm, Waits.from_seconds([]) if firm == LANE else own) for firm, own in fair.by_firm
    )

    assert not replace(fair, by_firm=unserved).holds


def test_the_picture_draws_every_wait_on_one_scale() -> None:
    state = DemoState(began_at=time.monotonic())
    state.flood.waiting, state.flood.done = 1_740, 1_260
    state.flood.last_wait = state.flood.worst_wait = 2.4
    for bar in state.quiet:
        bar.done, bar.last_wait, bar.worst_wait = 12, 0.012, 0.55
    state.acts = {"Mail": ActState("Mail", captions=["1", "2", "3", "The answer was lost."])}
    stage = Stage(Console(file=StringIO(), record=True, width=88, height=40, color_system=None))
    stage.console.print(stage.picture(state))
    drawn = stage.console.export_text()
    flood, *quiet = [line for line in drawn.splitlines() if "█" in line or "░" in line]

    assert re.search(r"Gull & Gull Leaflets +1,740 +1,260 +█{22} +2\.4 s +2\.4 s", flood)
    assert len(quiet) == len(QUIET)
    assert all(re.search(r" 12 +▏░{4} +12 ms +550 ms", line) for line in quiet)
    assert re.search(r" Mail +2 ", drawn)
    assert "The answer was lost." in drawn


@pytest.mark.parametrize(("problems", "exit_code"), [((), 0), (("nothing is lost",), 1)])
def test_the_exit_code_follows_the_problems(
    problems: tuple[str, ...],
    exit_code: int,
    hf: Holdfast,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    from holdfast.cli import demo

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = replace(summarize(hf.store, set()), problems=problems)
    monkeypatch.setattr(Story, "run", lambda story: found)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)

    assert CliRunner().invoke(demo.demo).exit_code == exit_code


def test_without_rich_the_demo_says_how_to_install_it_and_prints_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from holdfast.cli import demo

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setitem(sys.modules, "holdfast.demo.stage", None)

    assert isinstance(demo._view(plain=False), Lines)
    assert "pip install 'holdfast-jobs[demo]'" in capsys.readouterr().out


def test_a_terminal_with_rich_gets_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.cli import demo

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)

    assert isinstance(demo._view(plain=False), Stage)
    assert not isinstance(demo._view(plain=True), Stage)
