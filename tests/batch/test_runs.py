"""The submitter and collector runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast, RunReport
from holdfast.config import RunSettings, Settings
from holdfast.engine.bounded_run import pending_of, perform_run
from holdfast.engine.run_log import Trigger, TriggerKind
from holdfast.engine.schedule.dispatcher import dispatch_once
from holdfast.engine.schedule.rows import list_schedules, sync_schedules
from holdfast.testing import HoldfastApp
from holdfast_llm import Item, Reply, Request, Route
from tests.batch.scripted import Lose, ScriptedAccounts, ScriptedProvider
from tests.failpoints import BatchPoint as Point
from tests.failpoints import install
from tests.operate.sound import assert_sound
from tests.story import ORG, OTHER_ORG, look, timeline

SUBMITTER, COLLECTOR = "batch_submitter", "batch_collector"
CRON = Trigger(TriggerKind.CRON)
ROUTE = Route("openai", "openai_chat", "model-1")


class Shout:
    """Returns a text in capitals."""

    def request(self, item: Item) -> Request:
        return Request((item.payload["text"],), "Shout.")

    def accept(self, item: Item, reply: Reply) -> Any:
        return {"said": reply.text}


@pytest.fixture
def provider(clock: FakeClock) -> ScriptedProvider:
    return ScriptedProvider(clock)


@pytest.fixture
def app(hf: Holdfast, provider: ScriptedProvider) -> Holdfast:
    hf.batch.accounts = ScriptedAccounts(provider)
    hf.batch("text.shout", route=ROUTE, max_attempts=3)(Shout)
    return hf


def enqueue(hf: Holdfast, count: int = 1, **options: Any) -> list[Any]:
    payloads = [{"text": f"text {number}"} for number in range(count)]
    return hf.enqueue_many("text.shout", payloads, **{"org_id": ORG, **options})


def submit(hf: Holdfast) -> RunReport:
    return perform_run(hf, SUBMITTER, trigger=CRON)


def collect(hf: Holdfast) -> RunReport:
    return perform_run(hf, COLLECTOR, trigger=CRON)


def states(hf: Holdfast) -> Counter[str]:
    return Counter(row["state"] for row in look(hf.store, "SELECT state FROM holdfast.job"))


# -- the declared runs


@pytest.mark.req("B-12")
def test_the_two_runs_are_there_with_the_first_job_type_of_the_lane(hf: Holdfast) -> None:
    assert hf.settings.runs == {}

    hf.batch("text.shout", route=ROUTE)(Shout)

    assert list(hf.settings.runs) == [SUBMITTER, COLLECTOR]
    assert str(hf.settings.run_of(SUBMITTER).schedule) == "every 15m"
    assert str(hf.settings.run_of(COLLECTOR).schedule) == "every 30m"


def test_what_the_settings_say_of_them_holds(hf: Holdfast) -> None:
    own = RunSettings(queues=("q:exports",), max_jobs_per_run=7)
    hf.settings = replace(hf.settings, runs={SUBMITTER: own})

    hf.batch("text.shout", route=ROUTE)(Shout)

    assert hf.settings.runs[SUBMITTER] is own
    assert hf.settings.run_of(SUBMITTER).max_jobs_per_run == 7
    assert str(hf.settings.run_of(SUBMITTER).schedule) == "every 15m"


def test_a_file_may_set_one_thing_about_them_and_leave_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(
        f'[runs.{SUBMITTER}]\nmax_jobs_per_run = 500\n[runs.{COLLECTOR}]\nschedule = "every 5m"\n'
    )

    settings = Settings.load(env={}, file=file)

    assert settings.run_of(SUBMITTER).max_jobs_per_run == 500
    assert str(settings.run_of(SUBMITTER).schedule) == "every 15m"
    assert str(settings.run_of(COLLECTOR).schedule) == "every 5m"
    assert settings.run_of(COLLECTOR).max_jobs_per_run == 100_000


@pytest.mark.req("B-12", "J-04", "P-01")
def test_the_dispatcher_submits_and_collects_by_the_clock(
    app: Holdfast, clock: FakeClock, provider: ScriptedProvider
) -> None:
    sync_schedules(app)
    assert {entry.schedule.name for entry in list_schedules(app.store)} == {SUBMITTER, COLLECTOR}
    (job,) = enqueue(app)

    clock.advance(minutes=14)
    dispatch_once(app)
    assert states(app) == {"queued": 1}
    clock.advance(minutes=1)
    dispatch_once(app)
    assert states(app) == {"batch_submitted": 1}
    provider.complete()
    clock.advance(minutes=15)
    dispatch_once(app)

    assert states(app) == {"completed": 1}
    assert timeline(app, job) == [
        "job.enqueued",
        "job.started",
        "job.submitted",
        "job.succeeded",
    ]
    assert provider.double_paid() == {}


# -- their run log and their bounds


@pytest.mark.req("A-06", "B-08")
def test_the_ledger_says_what_each_of_them_did_and_with_which_settings(
    app: Holdfast, clock: FakeClock, provider: ScriptedProvider
) -> None:
    enqueue(app, 3)

    handed = submit(app)
    provider.complete()
    clock.advance(minutes=5)
    brought = collect(app)

    assert (handed.claimed_count, handed.left_count, handed.submitted_count) == (3, 3, 3)
    assert handed.outcome == "done"
    assert handed.model_counts == brought.model_counts == {"openai/model-1": 3}
    assert (brought.claimed_count, brought.succeeded_count, brought.left_count) == (3, 3, 0)
    assert [report.settings["eligible_statuses"] for report in (handed, brought)] == [
        ["queued"],
        ["batch_submitted"],
    ]
    assert "q:default" in handed.settings["queues"]
    assert handed.settings["max_jobs_per_run"] == 25


@pytest.mark.req("B-01", "B-06")
def test_a_submitter_takes_no_more_than_it_may_and_the_rest_stays_queued(app: Holdfast) -> None:
    enqueue(app, 60)

    reports = [submit(app) for _ in range(3)]

    assert [report.claimed_count for report in reports] == [25, 25, 10]
    assert [report.outcome for report in reports] == ["full", "full", "done"]
    assert states(app) == {"batch_submitted": 60}


def test_nothing_to_do_is_a_run_that_is_skipped(app: Holdfast) -> None:
    assert (submit(app).outcome, collect(app).outcome) == ("skipped", "skipped")


def test_what_a_submitter_would_find_is_counted(app: Holdfast) -> None:
    enqueue(app, 2)
    enqueue(app, 1, routing_decision={"execution_mode": "async"})

    assert (pending_of(app, SUBMITTER), pending_of(app, COLLECTOR)) == (2, 0)


def test_a_queue_of_the_applications_own_is_served_without_being_named(
    app: Holdfast,
) -> None:
    app.queue("q:slow")
    enqueue(app, 1, queue="q:slow")

    assert submit(app).claimed_count == 1


def test_a_run_of_jobs_leaves_what_waits_for_the_lane_to_the_submitter(app: Holdfast) -> None:
    runs = {**app.settings.runs, "nightly": RunSettings(queues=("q:default",))}
    app.settings = replace(app.settings, runs=runs)
    enqueue(app)

    assert perform_run(app, "nightly", trigger=CRON).outcome == "skipped"
    assert states(app) == {"queued": 1}


def test_both_serve_every_tenant(
    app: Holdfast, clock: FakeClock, provider: ScriptedProvider
) -> None:
    enqueue(app, 2)
    enqueue(app, 2, org_id=OTHER_ORG)

    submit(app)
    provider.complete()
    clock.advance(minutes=5)
    collect(app)

    assert states(app) == {"completed": 4}


def test_the_collector_ends_abandoned_calls_though_no_batch_is_due(
    app: Holdfast, clock: FakeClock
) -> None:
    (job,) = enqueue(app, routing_decision={"execution_mode": "async"}, max_attempts=1)

    def die(point: Any) -> None:
        raise KeyboardInterrupt

    stop = install(app, Point, die)
    with pytest.raises(KeyboardInterrupt):
        app.worker().run_once()
    stop()
    clock.advance(seconds=61)

    assert collect(app).outcome == "done"

    items = look(app.store, "SELECT state FROM holdfast.batch_item")
    assert [item["state"] for item in items] == ["unknown"]
    assert app.get(job.id, org_id=ORG).state == "failed"


def test_what_a_submitter_finds_of_another_one_is_not_in_its_own_counts(
    app: Holdfast, clock: FakeClock, provider: ScriptedProvider
) -> None:
    kept, stopped = enqueue(app, 2)
    provider.script("create", Lose(accepted=True))
    submit(app)
    assert states(app) == {"processing": 2}
    app.cancel(stopped.id, org_id=ORG)
    clock.advance(minutes=5)

    report = submit(app)

    assert (report.claimed_count, report.submitted_count, report.canceled_count) == (0, 0, 0)
    assert app.get(kept.id, org_id=ORG).state == "batch_submitted"
    assert app.get(stopped.id, org_id=ORG).state == "canceled"
    assert_sound(app)


def test_the_store_is_sound_after_calls_batches_and_deaths(
    app: Holdfast, clock: FakeClock, provider: ScriptedProvider
) -> None:
    enqueue(app, 3)
    enqueue(app, 2, routing_decision={"execution_mode": "async"})
    provider.script("call", Lose(accepted=True))

    app.worker().run_once()
    submit(app)
    provider.complete()
    clock.advance(minutes=10)
    app.worker().run_once()
    collect(app)

    assert states(app) == {"completed": 5}
    assert_sound(app)


# -- in an application's own tests


def test_an_applications_tests_hand_over_collect_and_crash_where_they_like() -> None:
    hf = Holdfast("sqlite:")
    under_test = HoldfastApp(hf)
    provider = ScriptedProvider(under_test.clock)
    hf.batch.accounts = ScriptedAccounts(provider)
    hf.batch("text.shout", route=ROUTE)(Shout)
    (job,) = enqueue(hf)

    with under_test.crash_after("created"):
        under_test.submit()
    under_test.clock.advance(minutes=30)
    under_test.submit()
    provider.complete()
    under_test.clock.advance(minutes=5)
    report = under_test.collect()

    assert report.succeeded_count == 1
    assert provider.double_paid() == {}
    assert hf.get(job.id, org_id=ORG).result is not None
    under_test.close()
