"""Categories: seven built-in ones, more from the application, and all of them in the database."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import ConfigError, Context, FakeClock, Holdfast, InvalidJob, SystemClock
from holdfast.clock import ms
from holdfast.engine.category import CATEGORIES, SQL, CategoryRules, sync_categories
from holdfast.engine.handler import Registry
from holdfast.engine.job import QUEUES, SYSTEM, Completed, State
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.request import DRIFT
from holdfast.engine.settle import settle
from holdfast.errors import RuleBroken
from tests.engine.domain import run_one
from tests.story import ORG, by_hand, claim, events, look, make_holdfast
from tests.test_house import ROOT

DAY = timedelta(days=1)


def lasts(hf: Holdfast, job_id: str) -> timedelta:
    record = hf.get(job_id, org_id=ORG).record
    length: timedelta = record["key_expires_at"] - record["finished_at"]
    return length


def stored(hf: Holdfast) -> dict[str, dict[str, Any]]:
    return {
        row["name"]: dict(row) for row in hf.store.read(lambda tx: tx.many(SQL.list_categories))
    }


@pytest.mark.req("K-09", "K-10")
def test_the_store_and_the_code_agree_on_the_built_in_categories(hf: Holdfast) -> None:
    assert stored(hf) == {
        name: {
            "name": name,
            "queue": category.queue,
            "max_attempts": category.max_attempts,
            "longest_ms": ms(category.retry.longest),
            "key_ttl_ms": category.key_ttl_ms,
            "duty": category.rules,
            "replay_refusal": None,
        }
        for name, category in CATEGORIES.items()
    }


@pytest.mark.req("K-09", "K-10")
@pytest.mark.parametrize(
    ("name", "queue", "attempts", "longest_minutes", "days"),
    [
        ("general", "q:default", 5, 5, 30),
        ("notification", "q:notifications", 10, 30, 7),
        ("audit_enrichment", "q:default", 5, 5, 30),
        ("planning", "q:planning", 3, 2, 30),
        ("export", "q:exports", 5, 10, 30),
        ("import", "q:exports", 5, 10, 30),
        ("maintenance", "q:maintenance", 5, 5, 7),
    ],
)
def test_a_built_in_category_has_the_defaults_of_the_contract(
    hf: Holdfast, name: str, queue: str, attempts: int, longest_minutes: int, days: int
) -> None:
    hf.job("some.work", category=name)(lambda job, payload: None)
    handler = hf.registry.get("some.work")

    assert (handler.queue, handler.first.max_attempts) == (queue, attempts)
    assert handler.first.retry.first == timedelta(seconds=5)
    assert handler.first.retry.longest == timedelta(minutes=longest_minutes)

    enqueued = hf.enqueue("some.work", {}, org_id=ORG)
    hf.cancel(enqueued.id, org_id=ORG)
    assert lasts(hf, enqueued.id) == days * DAY


@pytest.mark.req("Q-15", "Q-16", "Q-17", "Q-18", "Q-19", "Q-22")
def test_routes_are_the_categories_own_and_none_leads_to_the_critical_queue() -> None:
    routes = {category.queue for category in CATEGORIES.values()}

    assert QUEUES == (
        "q:critical", "q:default", "q:notifications", "q:planning", "q:exports", "q:maintenance",
    )  # fmt: skip
    assert routes == set(QUEUES) - {"q:critical"}


@pytest.mark.req("K-11")
def test_the_drift_that_is_tolerated_is_a_minute() -> None:
    assert timedelta(seconds=60) == DRIFT


def test_an_application_declares_a_category_of_its_own(hf: Holdfast) -> None:
    hf.category(
        "report", queue="q:exports", max_attempts=2, longest_delay=timedelta(hours=1),
        key_ttl=90 * DAY,
    )  # fmt: skip
    hf.job("report.make", category="report")(lambda job, payload: None)

    done = run_one(hf, "report.make", {})

    found = hf.get(done.id, org_id=ORG)
    assert (found.state, found.origin_queue, found.max_attempts) == (
        State.COMPLETED, "q:exports", 2,
    )  # fmt: skip
    assert hf.registry.get("report.make").first.retry.longest == timedelta(hours=1)
    assert lasts(hf, done.id) == 90 * DAY


@pytest.mark.req("Q-13")
def test_housekeeping_of_an_own_category_is_on_the_queue_that_bounds_it(hf: Holdfast) -> None:
    hf.category("sweeping", rules="maintenance")
    hf.category("sorting", rules="maintenance", queue="q:default")
    hf.category("telling", rules="notification")

    queues = {name: hf.registry.category(name).queue for name in ("sweeping", "sorting", "telling")}
    assert queues == {
        "sweeping": "q:maintenance", "sorting": "q:default", "telling": "q:default"
    }  # fmt: skip


def test_two_applications_in_one_process_do_not_share_categories(hf: Holdfast) -> None:
    hf.category("report", key_ttl=90 * DAY)

    other = make_holdfast("sqlite:")
    with pytest.raises(ConfigError, match=r"'report' is not registered.*hf.category"):
        other.job("report.make", category="report")(lambda job, payload: None)
    assert "report" not in Registry().categories
    assert "report" not in CATEGORIES


def test_a_process_that_never_heard_of_a_category_keeps_its_keys_as_long(
    url: str, clock: FakeClock
) -> None:
    with make_holdfast(url, clock) as theirs:
        theirs.category("report", key_ttl=90 * DAY)
        theirs.job("report.make", category="report")(lambda job, payload: None)
        theirs.worker()
        jobs = [theirs.enqueue("report.make", {}, org_id=ORG) for _ in range(4)]

    with make_holdfast(url, clock) as stranger:
        completed, exhausted = claim(stranger, limit=2)
        settle(stranger.store, [(completed, Completed())], actor=SYSTEM)
        for _ in range(5):
            clock.advance(timedelta(hours=1))
            rescue_jobs(stranger.store, limit=10)
            by_hand(stranger.store, "UPDATE holdfast.job_waiting SET not_before_at = NULL")
            claim(stranger, limit=2)
        queued = [
            job.id for job in jobs
            if stranger.get(job.id, org_id=ORG).state in (State.QUEUED, State.PROCESSING)
        ]  # fmt: skip
        for job_id in queued:
            stranger.cancel(job_id, org_id=ORG)
        rescue_jobs(stranger.store, limit=10, dead_worker_id="w1")

        ended = [stranger.get(job.id, org_id=ORG) for job in jobs]
        assert {State.COMPLETED, State.CANCELED} <= {job.state for job in ended}
        assert {lasts(stranger, job.id) for job in ended if job.state.is_terminal} == {90 * DAY}
        assert exhausted.id in {job.id for job in ended}


def test_an_unrecorded_category_counts_as_general(hf: Holdfast) -> None:
    hf.category("report", key_ttl=DAY)
    hf.job("report.make", category="report")(lambda job, payload: None)
    done = hf.enqueue("report.make", {}, org_id=ORG)

    hf.cancel(done.id, org_id=ORG)

    # No worker has started and the migration ran without the application: the longer retention is
    # safe.
    assert lasts(hf, done.id) == 30 * DAY


def test_declared_categories_are_stored_once_and_audited(hf: Holdfast) -> None:
    hf.category("report", key_ttl=90 * DAY)
    hf.category("letter", queue="q:notifications", rules="notification")

    assert sync_categories(hf.store, hf.registry.categories.values()) == ["letter", "report"]
    assert sync_categories(hf.store, hf.registry.categories.values()) == []
    hf.worker()

    (told,) = look(
        hf.store, "SELECT actor_id, detail FROM holdfast.job_event WHERE name = 'category.declared'"
    )
    assert "report" in told["detail"]
    assert stored(hf)["letter"]["duty"] == CategoryRules.NOTIFICATION


def test_a_changed_declaration_is_written_again(url: str, clock: FakeClock) -> None:
    for days in (90, 60):
        with make_holdfast(url, clock) as hf:
            hf.category("report", key_ttl=days * DAY)
            hf.worker()
            assert stored(hf)["report"]["key_ttl_ms"] == ms(days * DAY)


def test_the_same_declaration_twice_is_one_and_another_is_an_error(hf: Holdfast) -> None:
    hf.category("report", key_ttl=90 * DAY)
    hf.category("report", key_ttl=90 * DAY)

    with pytest.raises(ConfigError, match="declared twice"):
        hf.category("report", key_ttl=60 * DAY)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("general", {}, "built in"),
        ("Report", {}, "lower-case word"),
        ("report", {"queue": "exports"}, "must look like"),
        ("report", {"queue": "q:deadletter"}, "is reserved"),
        ("report", {"queue": "q:critical"}, "slo="),
        ("report", {"max_attempts": 0}, "max_attempts"),
        ("report", {"max_attempts": 101}, "max_attempts"),
        ("report", {"longest_delay": timedelta(0)}, "longest_delay"),
        ("report", {"key_ttl": timedelta(0)}, "key_ttl"),
        ("report", {"key_ttl": timedelta(days=4000)}, "key_ttl"),
        ("report", {"rules": "anything"}, "rules must be one of"),
    ],
)
def test_a_category_that_cannot_be_is_refused_with_a_reason(
    name: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        make_holdfast("sqlite:").category(name, **options)


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("UPDATE holdfast.category SET key_ttl_ms = 1 WHERE name = 'planning'",
         "category_built_in_stays"),
        ("DELETE FROM holdfast.category WHERE name = 'report'", "category_never_leaves"),
        ("UPDATE holdfast.category SET queue = 'q:critical' WHERE name = 'report'",
         "category_never_critical"),
        ("UPDATE holdfast.category SET duty = 'none' WHERE name = 'report'", "category_duty_known"),
        ("UPDATE holdfast.category SET key_ttl_ms = 0 WHERE name = 'report'", "category_in_range"),
    ],
)  # fmt: skip
def test_the_database_keeps_categories_sound(hf: Holdfast, text: str, rule: str) -> None:
    hf.category("report")
    hf.worker()

    with pytest.raises(RuleBroken) as caught:
        by_hand(hf.store, text)
    assert caught.value.rule == rule


# -- the critical queue


@pytest.mark.req("Q-16", "Q-22")
def test_the_critical_queue_is_for_handlers_with_an_slo(hf: Holdfast) -> None:
    with pytest.raises(ConfigError, match="strict SLO"):
        hf.job("door.open", queue="q:critical")(lambda job, payload: None)
    with pytest.raises(ConfigError, match="strict SLO"):
        hf.pipeline("door.build", queue="q:critical").stage("a")(lambda job, payload: None)
    hf.job("door.open", queue="q:critical", slo=timedelta(seconds=2))(lambda job, payload: None)
    hf.job("door.close")(lambda job, payload: None)

    critical = hf.enqueue("door.open", {}, org_id=ORG)
    plain = hf.enqueue("door.close", {}, org_id=ORG)

    assert hf.get(critical.id, org_id=ORG).queue == "q:critical"
    assert hf.get(plain.id, org_id=ORG).queue == "q:default"
    assert hf.registry.get("door.open").slo == timedelta(seconds=2)
    with pytest.raises(InvalidJob, match="strict SLO"):
        hf.enqueue("door.close", {}, org_id=ORG, queue="q:critical")
    with pytest.raises(ConfigError, match="slo"):
        hf.job("door.lock", slo=timedelta(0))(lambda job, payload: None)


@pytest.mark.req("Q-22")
def test_a_handler_with_an_slo_may_be_sent_to_the_critical_queue(hf: Holdfast) -> None:
    hf.job("door.open", slo=timedelta(seconds=2))(lambda job, payload: None)

    urgent = hf.enqueue("door.open", {}, org_id=ORG, queue="q:critical")

    assert hf.get(urgent.id, org_id=ORG).queue == "q:critical"


# -- schedules


@pytest.mark.req("T-01")
@pytest.mark.parametrize("duty", list(CategoryRules))
def test_what_may_be_scheduled_is_a_matter_of_duty(hf: Holdfast, duty: CategoryRules) -> None:
    hf.category("mine", rules=duty)
    hf.job("some.work", category="mine")(lambda job, payload: None)
    later = hf.clock.now() + timedelta(hours=1)

    if duty in (CategoryRules.MAINTENANCE, CategoryRules.NOTIFICATION):
        enqueued = hf.enqueue("some.work", {}, org_id=ORG, scheduled_for=later)
        assert hf.get(enqueued.id, org_id=ORG).queue == "q:maintenance"
    else:
        with pytest.raises(InvalidJob, match="scheduled_for"):
            hf.enqueue("some.work", {}, org_id=ORG, scheduled_for=later)


# -- the audit


@pytest.mark.req("A-11")
def test_every_event_answers_who_did_what_to_what_for_whom_and_when(hf: Holdfast) -> None:
    hf.job("order.ship")(lambda job, payload: None)
    done = run_one(
        hf, "order.ship", {}, actor="user:42", request_id="r", correlation_id="c",
    )  # fmt: skip

    told = events(hf, done)
    assert [row["name"] for row in told] == ["job.enqueued", "job.started", "job.succeeded"]
    for row in told:
        assert (row["org_id"], row["job_id"], row["job_type"]) == (ORG, done.id, "order.ship")
        assert (row["request_id"], row["correlation_id"]) == ("r", "c")
        assert row["actor_type"] in ("user", "system")
        assert row["actor_id"]
        assert row["at"] is not None
    assert (told[0]["actor_type"], told[0]["actor_id"]) == ("user", "42")


@pytest.mark.req("A-11")
def test_the_page_maps_every_column_of_an_event_onto_the_audit_contract(hf: Holdfast) -> None:
    page = (ROOT / "docs" / "concepts" / "audit.md").read_text()
    section = page[page.index("## Event fields") :].partition("\n## ")[0]
    hf.job("order.ship")(lambda job, payload: None)
    columns = events(hf, hf.enqueue("order.ship", {}, org_id=ORG))[0].keys()

    assert [column for column in columns if f"`{column}`" not in section] == []


def test_the_system_clock_makes_no_difference_to_a_key(url: str) -> None:
    with Holdfast(settings=make_holdfast(url).settings, clock=SystemClock()) as hf:

        @hf.job("note.send", category="notification")
        def send(job: Context, payload: object) -> None:
            return None

        done = run_one(hf, "note.send", {})

        assert abs(lasts(hf, done.id) - 7 * DAY) < timedelta(seconds=1)
