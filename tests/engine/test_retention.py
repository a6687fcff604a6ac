"""Retention: ended jobs are deleted after their time, never before, and in bounded passes."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Enqueued, FakeClock, Holdfast, JobNotFound, RuleViolated, State
from holdfast.config import RetentionRule, RetentionSettings
from holdfast.engine import retention
from holdfast.engine.category import CATEGORIES, CategoryRules, make_category
from holdfast.engine.retention import (
    check_retention,
    keep_of,
    prune_jobs,
)
from holdfast.engine.retention import prune as prune_all
from holdfast.engine.worker.worker import run_maintenance
from holdfast.errors import ConfigError, RuleBroken
from holdfast.store import Tx, open_store
from tests.story import ORG, by_hand, claim, look, make_holdfast, timeline

MONTH = RetentionSettings(keep_days=30)


def breaks(job: object, payload: object) -> None:
    raise ValueError


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    hf.job("report.export")(lambda job, payload: None)
    hf.job("report.break", max_attempts=1)(breaks)
    return hf


def give_up(hf: Holdfast) -> None:
    """End every dead letter at the moment at which its job failed: its retention starts then."""
    by_hand(
        hf.store,
        "UPDATE holdfast.dead_letter SET state = 'discarded', version = version + 1,"
        " ending = 'given up', ended_at = created_at WHERE ended_at IS NULL",
    )


def prune(hf: Holdfast, rules: RetentionSettings = MONTH, limit: int = 1_000) -> int:
    return prune_jobs(hf.store, rules, limit=limit)


def is_kept(hf: Holdfast, job: Enqueued) -> bool:
    try:
        hf.get(job.id, org_id=ORG)
    except JobNotFound:
        return False
    return True


# -- when a job is deleted


@pytest.mark.req("I-08")
@pytest.mark.parametrize("job_type", ["report.export", "report.break"])
def test_a_job_row_never_leaves_before_its_key_expires(
    work: Holdfast, clock: FakeClock, job_type: str
) -> None:
    """Even if a retention that is too short passed every check."""
    short = RetentionSettings()
    object.__setattr__(short, "keep_days", 0.0)
    first = work.enqueue(job_type, {}, org_id=ORG, idempotency_key="k")
    work.worker().run_once()
    give_up(work)

    clock.advance(days=30)
    too_early = prune(work, short)
    still = work.enqueue(job_type, {}, org_id=ORG, idempotency_key="k")
    clock.advance(milliseconds=1)
    in_time = prune(work, short)
    again = work.enqueue(job_type, {}, org_id=ORG, idempotency_key="k")

    assert (too_early, in_time) == (0, 1)
    assert (still.id, still.created) == (first.id, False)
    assert again.created


@pytest.mark.parametrize("job_type", ["report.export", "report.break"])
def test_a_job_row_is_kept_as_long_as_the_settings_say(
    work: Holdfast, clock: FakeClock, job_type: str
) -> None:
    enqueued = work.enqueue(job_type, {}, org_id=ORG)
    work.worker().run_once()
    give_up(work)

    clock.advance(days=90)
    before = prune(work, RetentionSettings())
    clock.advance(milliseconds=1)
    after = prune(work, RetentionSettings())

    assert (before, after) == (0, 1)
    assert not is_kept(work, enqueued)


@pytest.mark.req("I-08")
def test_jobs_that_have_not_ended_are_never_pruned(work: Holdfast, clock: FakeClock) -> None:
    waiting, running = work.enqueue_many("report.export", [{}, {}], org_id=ORG)
    claim(work)
    clock.advance(days=1000)

    assert set(prune_all(work.store, MONTH).values()) == {0}
    assert {work.get(item.id, org_id=ORG).state for item in (waiting, running)} == {
        State.QUEUED, State.PROCESSING,
    }  # fmt: skip
    with pytest.raises(RuleBroken):
        by_hand(work.store, "DELETE FROM holdfast.job_envelope WHERE id = :id", id=waiting.id)


@pytest.mark.req("I-08")
def test_a_failed_job_is_kept_while_its_dead_letter_is_open(
    work: Holdfast, clock: FakeClock
) -> None:
    failed = work.enqueue("report.break", {}, org_id=ORG)
    work.worker().run_once()
    clock.advance(days=1000)

    assert set(prune_all(work.store, MONTH).values()) == {0}
    assert is_kept(work, failed)

    give_up(work)
    assert prune(work) == 1
    assert not is_kept(work, failed)


@pytest.mark.req("I-13")
def test_the_job_of_an_execution_unit_is_never_pruned(work: Holdfast, clock: FakeClock) -> None:
    """A kept job proves that the unit had its job; if it were pruned, the unit would run again."""
    units = [
        work.enqueue(job_type, {}, org_id=ORG, unit_key="u")
        for job_type in ("report.export", "report.break")
    ]
    work.worker().run_once()
    give_up(work)
    clock.advance(days=4000)

    assert prune(work) == 0
    again = [
        work.enqueue(job_type, {}, org_id=ORG, unit_key="u")
        for job_type in ("report.export", "report.break")
    ]
    assert [(item.id, item.created) for item in again] == [(item.id, False) for item in units]


BELONGS_TO_A_JOB = (
    "job_envelope", "job_outcome", "job_attempt", "job_cancel", "job_key_seen", "job_stage",
    "dead_letter",
)  # fmt: skip


def test_what_hangs_on_a_job_leaves_with_it_and_its_audit_stays(
    hf: Holdfast, clock: FakeClock
) -> None:
    for name, last in (("review.run", lambda job, payload: 2), ("review.break", breaks)):
        pipeline = hf.pipeline(name)
        pipeline.stage("first")(lambda job, payload: 1)
        pipeline.stage("second", max_attempts=1)(last)
    jobs = [
        hf.enqueue(name, {}, org_id=ORG, idempotency_key="k")
        for name in ("review.run", "review.break")
    ]
    hf.enqueue("review.run", {}, org_id=ORG, idempotency_key="k")
    hf.worker().run_once()
    before = [timeline(hf, job) for job in jobs]
    counts = "SELECT " + ", ".join(
        f"(SELECT count(*) FROM holdfast.{table}) AS {table}" for table in BELONGS_TO_A_JOB
    )
    assert look(hf.store, counts) == [
        {
            "job_envelope": 2, "job_outcome": 2, "job_attempt": 2, "job_cancel": 0,
            "job_key_seen": 1, "job_stage": 3, "dead_letter": 1,
        }
    ]  # fmt: skip

    clock.advance(days=91)
    give_up(hf)
    assert prune(hf) == 2

    assert look(hf.store, counts) == [dict.fromkeys(BELONGS_TO_A_JOB, 0)]
    assert [timeline(hf, job) for job in jobs] == [[*told, "job.pruned"] for told in before]
    assert len(before[0]) == 4


# -- how many at once


def test_a_pass_is_bounded_and_a_second_one_is_harmless(work: Holdfast, clock: FakeClock) -> None:
    work.enqueue_many("report.export", [{} for _ in range(5)], org_id=ORG)
    work.enqueue_many("report.break", [{} for _ in range(2)], org_id=ORG)
    work.worker().run_once()
    give_up(work)
    clock.advance(days=91)

    assert [prune(work, limit=3) for _ in range(4)] == [3, 3, 1, 0]


def test_a_turn_of_upkeep_takes_many_bites_and_has_an_end(
    work: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BITE", 2)
    monkeypatch.setattr(retention, "BITES", 3)
    work.enqueue_many("report.export", [{} for _ in range(7)], org_id=ORG)
    work.worker().run_once()
    clock.advance(days=91)

    turns = [prune_all(work.store, MONTH) for _ in range(3)]

    assert [turn["pruned"] for turn in turns] == [6, 1, 0]


def test_upkeep_prunes_by_the_settings(url: str, clock: FakeClock) -> None:
    rules = RetentionSettings(keep_days=40)
    with make_holdfast(url, clock, retention=rules) as hf:
        hf.job("report.export")(lambda job, payload: None)
        hf.enqueue("report.export", {}, org_id=ORG)
        hf.worker().run_once()

        def turn(**later: float) -> int:
            clock.advance(**later)
            return run_maintenance(hf.store, hf.settings, hf.events).outcomes["pruned"]

        assert turn(days=40) == 0
        assert turn(milliseconds=1) == 1
        assert turn(days=1) == 0


def test_workers_that_prune_at_once_share_the_jobs(postgres_url: str, clock: FakeClock) -> None:
    with make_holdfast(postgres_url, clock) as hf:
        hf.job("report.export")(lambda job, payload: None)
        hf.enqueue_many("report.export", [{} for _ in range(5)], org_id=ORG)
        hf.worker().run_once()
        clock.advance(days=91)
        other = open_store(postgres_url, clock=clock)

        def while_another_prunes(tx: Tx) -> int:
            kind = {"category": None, "job_type": None, "state": None, "keep_ms": 0}
            given = {"rules": [kind], "shortest_ms": 0}
            assert len(tx.many(retention.SQL.find_prunable, **given, limit=3)) == 3
            return prune_jobs(other, MONTH, limit=10)

        assert (hf.store.write(while_another_prunes), prune(hf)) == (2, 3)
        other.close()


def test_pruning_takes_as_many_statements_for_50_jobs_as_for_one(
    work: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.enqueue_many("report.export", [{} for _ in range(52)], org_id=ORG)
    work.enqueue_many("report.break", [{} for _ in range(52)], org_id=ORG)
    work.worker().run_once(limit=110)
    give_up(work)
    clock.advance(days=91)
    ready, counts = Tx._ready, [0]

    def counted(self: Tx, *args: Any) -> Any:
        counts[-1] += 1
        return ready(self, *args)

    monkeypatch.setattr(Tx, "_ready", counted)
    pruned = []
    for limit in (1, 50, 2, 50):
        pruned.append(prune(work, limit=limit))
        counts.append(0)

    assert pruned == [1, 50, 2, 50]
    assert counts[:4] == [4, 4, 8, 5]


# -- rules


RULES = RetentionSettings(
    keep_days=90,
    rules=(
        RetentionRule(keep_days=400, category="export"),
        RetentionRule(keep_days=60, state="canceled"),
        RetentionRule(keep_days=800, category="export", state="failed"),
        RetentionRule(keep_days=35, job_type="report.quick"),
        RetentionRule(keep_days=3000, job_type="report.quick", state="canceled"),
        RetentionRule(keep_days=50, job_type="report.quick", category="export"),
    ),
)


@pytest.mark.parametrize(
    ("category", "job_type", "state", "days"),
    [
        ("general", "report.plain", "completed", 90),
        ("general", "report.plain", "failed", 90),
        ("general", "report.plain", "canceled", 60),
        ("export", "report.plain", "completed", 400),
        ("export", "report.plain", "failed", 800),
        ("export", "report.plain", "canceled", 400),
        ("general", "report.quick", "completed", 35),
        ("general", "report.quick", "failed", 35),
        ("general", "report.quick", "canceled", 3000),
        ("export", "report.quick", "completed", 50),
        ("export", "report.quick", "canceled", 50),
    ],
)
def test_the_most_specific_rule_decides(
    category: str, job_type: str, state: str, days: int
) -> None:
    """A job type's retention overrides the category's, which overrides the state's."""
    kept = keep_of(RULES, category=category, job_type=job_type, state=state)

    assert kept == timedelta(days=days)


TYPES = {
    "mail.send": "notification",
    "mail.quick": "notification",
    "report.plain": "general",
    "report.quick": "export",
    "night.sweep": "maintenance",
}
MIXED = RetentionSettings(
    keep_days=45,
    rules=(
        RetentionRule(keep_days=10, category="notification"),
        RetentionRule(keep_days=8, category="notification", job_type="mail.quick"),
        RetentionRule(keep_days=60, state="failed"),
        RetentionRule(keep_days=31, job_type="report.quick", category="export"),
        RetentionRule(keep_days=70, category="maintenance", state="canceled"),
    ),
)
AGES = (1, 7, 8, 9, 10, 11, 30, 31, 32, 44, 45, 46, 60, 61, 69, 71)


@pytest.mark.req("Q-14", "I-08")
def test_maintenance_drops_what_is_over_and_never_what_a_rule_or_a_key_still_holds(
    hf: Holdfast, clock: FakeClock
) -> None:
    """Every kind in every ended state at every age, pruned by more passes than are needed."""

    def run(job: object, payload: dict[str, Any]) -> None:
        if payload["state"] == "failed":
            raise ValueError

    for job_type, category in TYPES.items():
        hf.job(job_type, category=category, max_attempts=1)(run)
    began, jobs = clock.now(), []
    for age in sorted(AGES, reverse=True):
        clock.advance((began + timedelta(days=max(AGES) - age)) - clock.now())
        for job_type, state in itertools.product(TYPES, ("completed", "failed", "canceled")):
            job = hf.enqueue(job_type, {"state": state}, org_id=ORG)
            if state == "canceled":
                hf.cancel(job.id, org_id=ORG)
            jobs.append((job, job_type, state, age))
        hf.worker().run_once(limit=1_000)
    give_up(hf)
    clock.advance((began + timedelta(days=max(AGES))) - clock.now())
    assert {hf.get(job.id, org_id=ORG).state for job, _, _, _ in jobs} == set(retention_states())

    for _ in range(40):
        prune(hf, MIXED, limit=13)

    kept = {(job_type, state, age) for job, job_type, state, age in jobs if is_kept(hf, job)}
    held = set()
    for _, job_type, state, age in jobs:
        keep = keep_of(MIXED, category=TYPES[job_type], job_type=job_type, state=state)
        key = CATEGORIES[TYPES[job_type]].key_ttl
        if timedelta(days=age) <= max(keep, key):
            held.add((job_type, state, age))
    assert kept == held
    assert 0 < len(held) < len(jobs)


def retention_states() -> tuple[State, ...]:
    return (State.COMPLETED, State.CANCELED, State.FAILED)


HELD = ("job_envelope", "job_outcome", "job_attempt", "job_stage", "dead_letter")


@pytest.mark.req("Q-14")
def test_a_maintenance_handler_cannot_delete_what_retention_holds(work: Holdfast) -> None:
    refused: list[str] = []

    @work.job("night.sweep", category="maintenance")
    def sweep(job: Any, payload: dict[str, Any]) -> None:
        prefix = "holdfast_" if work.store.dialect.name == "sqlite" else "holdfast."
        for table in HELD:
            try:
                with job.transaction() as connection:
                    connection.execute(f"DELETE FROM {prefix}{table}")
            except RuleViolated:
                refused.append(table)

    first = work.enqueue("report.export", {}, org_id=ORG)
    work.worker().run_once()
    work.enqueue("night.sweep", {}, org_id=ORG)
    work.worker().run_once()

    assert refused == list(HELD)
    assert is_kept(work, first)


def test_a_kind_kept_for_years_does_not_slow_the_retention_of_others(
    work: Holdfast, clock: FakeClock
) -> None:
    rules = RetentionSettings(
        keep_days=30, rules=(RetentionRule(keep_days=3000, job_type="report.export"),)
    )
    work.job("report.quick")(lambda job, payload: None)
    work.enqueue_many("report.export", [{} for _ in range(20)], org_id=ORG)
    work.worker().run_once()
    clock.advance(days=10)
    work.enqueue_many("report.quick", [{} for _ in range(3)], org_id=ORG)
    work.worker().run_once()
    clock.advance(days=31)

    assert prune(work, rules, limit=5) == 3
    (left,) = look(work.store, "SELECT count(*) AS n FROM holdfast.job")
    assert left["n"] == 20


def test_a_rule_counts_from_when_it_is_set_also_for_jobs_that_ended_before(
    work: Holdfast, clock: FakeClock
) -> None:
    first, second = work.enqueue_many("report.export", [{}, {}], org_id=ORG)
    work.worker().run_once(limit=2)
    clock.advance(days=100)
    longer = RetentionSettings(
        keep_days=90, rules=(RetentionRule(keep_days=120, category="general"),)
    )

    assert prune(work, longer) == 0
    assert prune(work, RetentionSettings(keep_days=90)) == 2
    assert not is_kept(work, first)
    assert not is_kept(work, second)


# -- invalid retention


@pytest.mark.req("I-08")
@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"keep_days": 29, "category": "export"}, "category 'export' would be kept 29 days"),
        (
            {"keep_days": 7, "job_type": "mail.send"},
            "category 'general', job_type 'mail.send' would be kept 7 days, and its keys live 30",
        ),
        ({"keep_days": 29, "state": "canceled"}, "category 'general' would be kept 29 days"),
    ],
)
def test_a_rule_shorter_than_its_keys_live_is_refused(rule: dict[str, Any], says: str) -> None:
    rules = RetentionSettings(rules=(RetentionRule(**rule),))

    with pytest.raises(ConfigError) as refused:
        check_retention(rules, CATEGORIES.values())
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "rule",
    [
        {"keep_days": 7, "category": "notification"},
        {"keep_days": 7, "category": "notification", "job_type": "mail.send"},
        {"keep_days": 30, "job_type": "mail.send"},
        {"keep_days": 30, "state": "failed"},
    ],
)
def test_a_rule_as_long_as_its_keys_live_is_taken(rule: dict[str, Any]) -> None:
    check_retention(RetentionSettings(rules=(RetentionRule(**rule),)), CATEGORIES.values())


def test_a_declared_category_with_long_keys_needs_a_rule_as_long() -> None:
    year = make_category(
        "contract",
        queue="q:default",
        max_attempts=5,
        longest_delay=timedelta(minutes=5),
        key_ttl=timedelta(days=365),
        rules=CategoryRules.GENERAL,
    )
    categories = [*CATEGORIES.values(), year]

    with pytest.raises(ConfigError, match="category 'contract' would be kept 90 days"):
        check_retention(RetentionSettings(), categories)
    rule = RetentionRule(keep_days=365, category="contract")
    check_retention(RetentionSettings(rules=(rule,)), categories)


def test_two_rules_for_the_same_are_refused() -> None:
    twice = tuple(RetentionRule(keep_days=days, category="export") for days in (40, 50))

    with pytest.raises(ConfigError, match="two rules for category 'export'"):
        check_retention(RetentionSettings(rules=twice), CATEGORIES.values())


@pytest.mark.req("I-08")
def test_a_worker_does_not_start_with_a_retention_that_cannot_be_used(url: str) -> None:
    short = RetentionSettings(rules=(RetentionRule(keep_days=7, category="export"),))

    with make_holdfast(url, retention=short) as hf, pytest.raises(ConfigError, match="'export'"):
        hf.worker()
