"""Rules of queues, tenants and keys: who sets them, which persist, and their audit."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    ConfigError,
    FakeClock,
    Holdfast,
    KeySettings,
    QueueSettings,
    Rate,
    TenantSettings,
    UnknownQueue,
)
from holdfast.clock import read_instant
from holdfast.config.section import BUILT_IN_QUEUES
from holdfast.engine.audit import PLATFORM_ORG
from holdfast.engine.job import QUEUES
from holdfast.engine.limits import sync_rules
from holdfast.engine.worker.worker import run_maintenance
from holdfast.errors import InvalidArgument, RuleBroken
from holdfast.event import QueueCrowded
from holdfast.sealed_audit.chain import verify_seals
from holdfast.telemetry.log import JsonFormatter, log_event, logger
from tests.engine.flood import OPERATOR, QUEUE, declare, fetcher, fill
from tests.story import ORG, OTHER_ORG, by_hand, look, make_holdfast, seal_all


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    return declare(hf)


def actions(hf: Holdfast) -> list[tuple[str, str, str]]:
    """Operator actions: subject, name, actor."""
    rows = look(
        hf.store,
        "SELECT name, actor_type, actor_id, detail FROM holdfast.job_event"
        " WHERE org_id = :org ORDER BY id",
        org=PLATFORM_ORG,
    )
    return [
        (_detail(row)["subject"], row["name"], f"{row['actor_type']}:{row['actor_id']}")
        for row in rows
    ]


def _detail(row: Any) -> Any:
    return json.loads(row["detail"]) if isinstance(row["detail"], str) else row["detail"]


# -- pause and resume


def test_a_paused_queue_claims_nothing_and_a_resumed_one_continues(work: Holdfast) -> None:
    fill(work, ORG, 6)
    fill(work, ORG, 2, "tell")
    running = fetcher(work, QUEUE, "q:notifications")
    before = running.take(2)

    paused = work.queues.pause(QUEUE, reason="provider is down", actor=OPERATOR)
    while_paused = running.take(10)
    resumed = work.queues.resume(QUEUE, reason="it is back", actor=OPERATOR)
    after = running.take(10)

    assert (paused, resumed) == (True, True)
    assert {job.queue for job in while_paused} <= {"q:notifications"}
    assert len(before) + len(while_paused) + len(after) == 8
    rule = work.queues.rules().queues[QUEUE]
    assert (rule.paused_at, rule.paused_by, rule.pause_reason) == (None, None, None)


def test_jobs_running_when_a_queue_is_paused_finish(work: Holdfast) -> None:
    ended: list[str] = []

    @work.job("slow")
    def slow(job: Any, payload: Any) -> None:
        work.queues.pause(QUEUE, reason="stop here", actor=OPERATOR)
        ended.append(job.id)

    made = [work.enqueue("slow", {}, org_id=ORG) for _ in range(3)]
    counts = [work.worker().run_once(limit=1).claimed for _ in range(3)]

    assert counts == [1, 0, 0]
    assert ended == [made[0].id]
    assert work.get(made[0].id, org_id=ORG).state == "completed"


def test_a_pause_says_who_when_and_why(work: Holdfast, clock: FakeClock) -> None:
    work.queues.pause(QUEUE, reason="  provider is down ", actor=OPERATOR)

    rule = work.queues.rules().queues[QUEUE]

    assert (rule.paused_at, rule.paused_by) == (clock.now(), "user:op")
    assert rule.pause_reason == "provider is down"


def test_a_second_pause_and_a_second_resume_change_nothing_and_say_so(work: Holdfast) -> None:
    first = work.queues.pause(QUEUE, reason="one", actor=OPERATOR)
    second = work.queues.pause(QUEUE, reason="two", actor=OPERATOR)
    reason = work.queues.rules().queues[QUEUE].pause_reason
    third = work.queues.resume(QUEUE, reason="three", actor=OPERATOR)
    fourth = work.queues.resume(QUEUE, reason="four", actor=OPERATOR)

    assert (first, second, reason, third, fourth) == (True, False, "one", True, False)
    assert [name for _, name, _ in actions(work)] == ["queue.paused", "queue.resumed"]


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize("reason", ["", "   ", "x" * 501, "one\ntwo", "\x1b[31mred"])
def test_a_reason_that_says_nothing_or_cannot_be_shown_is_refused(
    work: Holdfast, verb: str, reason: str
) -> None:
    with pytest.raises(InvalidArgument, match="reason: must be 1 to 500 printable"):
        getattr(work.queues, verb)(QUEUE, reason=reason, actor=OPERATOR)

    assert actions(work) == []


@pytest.mark.parametrize("name", ["q:nowhere", "q:deadletter", ""])
def test_an_unregistered_queue_is_refused_and_the_others_are_named(
    work: Holdfast, name: str
) -> None:
    calls: list[Any] = [
        lambda: work.queues.pause(name, reason="why", actor=OPERATOR),
        lambda: work.queues.resume(name, reason="why", actor=OPERATOR),
        lambda: work.queues.set(name, QueueSettings(), actor=OPERATOR),
        lambda: work.queues.reset(name, actor=OPERATOR),
    ]
    for call in calls:
        with pytest.raises(UnknownQueue, match="q:critical, q:default"):
            call()

    assert actions(work) == []


@pytest.mark.both_databases
def test_the_database_refuses_a_pause_without_a_reason(work: Holdfast) -> None:
    with pytest.raises(RuleBroken) as caught:
        by_hand(work.store, "UPDATE holdfast.queue SET paused_at = updated_at, paused_by = 'me'")

    assert caught.value.rule == "queue_paused_says_why"


# -- the audit


def test_everything_an_operator_does_is_audited_under_the_platform_and_the_chain_verifies(
    work: Holdfast,
) -> None:
    queues = work.queues
    queues.pause(QUEUE, reason="why", actor=OPERATOR)
    queues.resume(QUEUE, reason="why not", actor=OPERATOR)
    queues.set(QUEUE, QueueSettings(weight=9, rate=Rate(5, 60)), actor=OPERATOR)
    queues.reset(QUEUE, actor=OPERATOR)
    queues.set_tenant(ORG, TenantSettings(weight=2), actor=OPERATOR)
    queues.reset_tenant(ORG, actor=OPERATOR)
    queues.set_key("llm", KeySettings(max_running=3), actor=OPERATOR)
    queues.reset_key("llm", actor=OPERATOR)

    seal_all(work.store)

    assert actions(work) == [
        ("queue:q:default", "queue.paused", "user:op"),
        ("queue:q:default", "queue.resumed", "user:op"),
        ("queue:q:default", "queue.set", "user:op"),
        ("queue:q:default", "queue.reset", "user:op"),
        (f"tenant:{ORG}", "tenant.set", "user:op"),
        (f"tenant:{ORG}", "tenant.reset", "user:op"),
        ("key:llm", "key.set", "user:op"),
        ("key:llm", "key.reset", "user:op"),
    ]
    assert list(verify_seals(work.store, PLATFORM_ORG)) == []


def test_the_audit_keeps_the_reason_and_the_values(work: Holdfast) -> None:
    work.queues.pause(QUEUE, reason="provider is down", actor=OPERATOR)
    work.queues.set(QUEUE, QueueSettings(weight=9, rate=Rate(5, 60)), actor=OPERATOR)

    rows = look(work.store, "SELECT detail FROM holdfast.job_event ORDER BY id")

    assert [_detail(row) for row in rows] == [
        {"subject": "queue:q:default", "reason": "provider is down"},
        {"subject": "queue:q:default", "weight": 9, "rate": str(Rate(5, 60))},
    ]


def test_what_is_refused_changes_neither_the_rules_nor_their_revision(work: Holdfast) -> None:
    before = work.queues.rules()

    with pytest.raises(ConfigError):
        work.queues.set_tenant("nobody", TenantSettings(weight=2), actor=OPERATOR)
    with pytest.raises(ConfigError):
        work.queues.set_key("Not A Key", KeySettings(max_running=2), actor=OPERATOR)
    with pytest.raises(UnknownQueue):
        work.queues.set("q:nowhere", QueueSettings(), actor=OPERATOR)

    assert work.queues.rules() == before
    assert actions(work) == []


def test_a_tenant_is_one_tenant_however_its_id_is_spelled(work: Holdfast) -> None:
    work.queues.set_tenant(ORG.upper(), TenantSettings(weight=2), actor=OPERATOR)

    assert list(work.queues.rules().tenants) == [ORG]


# -- code, file and operator


def test_what_code_and_file_declare_is_written_when_a_worker_starts(
    url: str, clock: FakeClock
) -> None:
    with make_holdfast(
        url,
        clock,
        queues={"q:mine": QueueSettings(weight=7)},
        tenants={ORG: TenantSettings(weight=3)},
        keys={"llm": KeySettings(rate=Rate(100, 60))},
    ) as hf:
        hf.queue("q:mine", weight=2)
        hf.queue("q:yours", max_running=5)
        hf.worker()
        rules = hf.queues.rules()

    # The file overrides the code, because it is specific to the deployment.
    assert rules.queues["q:mine"].settings.weight == 7
    assert rules.queues["q:yours"].settings == QueueSettings(max_running=5)
    assert rules.tenants == {ORG: TenantSettings(weight=3)}
    assert rules.keys == {"llm": KeySettings(rate=Rate(100, 60))}


def test_a_limit_that_queues_do_not_have_is_refused_with_those_they_have(work: Holdfast) -> None:
    with pytest.raises(
        ConfigError, match=r"'q:mine' has no setting 'max_run'. Settings: weight, max_"
    ):
        work.queue("q:mine", max_run=3)  # type: ignore[call-arg]


def test_the_same_declaration_again_changes_nothing(work: Holdfast) -> None:
    work.queue("q:mine", weight=2)
    first = sync_rules(work.store, work.settings, work.registry.queues)
    revision = work.queues.rules().revision
    second = sync_rules(work.store, work.settings, work.registry.queues)

    assert (first, second) == (True, False)
    assert work.queues.rules().revision == revision


def test_what_is_declared_is_audited_once_and_only_with_what_changed(
    url: str, clock: FakeClock
) -> None:
    with make_holdfast(
        url, clock, tenants={ORG: TenantSettings(weight=3)}, keys={"llm": KeySettings(rate="9/day")}
    ) as hf:
        hf.queue("q:mine", max_running=2)
        hf.worker()
        hf.worker()
    with make_holdfast(url, clock, tenants={ORG: TenantSettings(weight=4)}) as hf:
        hf.worker()
        rules = hf.queues.rules()
        told = look(hf.store, "SELECT detail FROM holdfast.job_event ORDER BY id")

        assert {who for _, _, who in actions(hf)} == {"system:holdfast"}
    assert [_detail(row) for row in told] == [
        {
            "subject": "rules",
            "queues": {"q:mine": {"weight": 1, "max_running": 2}},
            "tenants": {ORG: {"weight": 3}},
            "keys": {"llm": {"rate": "9/day"}},
        },
        {"subject": "rules", "tenants": {ORG: {"weight": 4}}},
    ]
    # A queue that this application does not declare may belong to another one.
    assert (set(rules.keys), "q:mine" in rules.queues) == ({"llm"}, True)


@pytest.mark.req("Q-15")
def test_the_built_in_queues_are_registered_with_what_the_settings_say_of_them(
    work: Holdfast,
) -> None:
    rules = work.queues.rules()

    assert set(QUEUES) == set(rules.queues) == set(BUILT_IN_QUEUES)
    assert {name: rule.settings for name, rule in rules.queues.items()} == BUILT_IN_QUEUES
    assert not sync_rules(work.store, work.settings, {})


def test_what_an_operator_set_survives_the_start_of_workers_until_it_is_reset(
    url: str, clock: FakeClock
) -> None:
    declared = QueueSettings(weight=2)
    with make_holdfast(
        url, clock, tenants={ORG: TenantSettings(weight=2)}, keys={"llm": KeySettings(5)}
    ) as hf:
        hf.queue("q:mine", weight=2)
        hf.worker()
        hf.queues.set("q:mine", QueueSettings(weight=50), actor=OPERATOR)
        hf.queues.set_tenant(ORG, TenantSettings(weight=9), actor=OPERATOR)
        hf.queues.set_key("llm", KeySettings(50), actor=OPERATOR)
        hf.worker()
        kept = hf.queues.rules()

        resets = [
            hf.queues.reset("q:mine", actor=OPERATOR),
            hf.queues.reset("q:mine", actor=OPERATOR),
            hf.queues.reset_tenant(ORG, actor=OPERATOR),
            hf.queues.reset_key("llm", actor=OPERATOR),
        ]
        back = hf.queues.rules()

    assert kept.queues["q:mine"].settings.weight == 50
    assert kept.queues["q:mine"].set_by == "operator"
    assert (kept.tenants[ORG].weight, kept.keys["llm"].max_running) == (9, 50)
    assert resets == [True, False, True, True]
    assert back.queues["q:mine"] == replace(kept.queues["q:mine"], settings=declared, set_by="code")
    assert (back.tenants[ORG].weight, back.keys["llm"].max_running) == (2, 5)


def test_a_built_in_queue_that_is_reset_has_its_own_values_again(work: Holdfast) -> None:
    work.queues.set("q:maintenance", QueueSettings(weight=50), actor=OPERATOR)

    work.queues.reset("q:maintenance", actor=OPERATOR)

    assert work.queues.rules().queues["q:maintenance"].settings == BUILT_IN_QUEUES["q:maintenance"]


def test_an_undeclared_rule_is_removed_by_a_reset(work: Holdfast) -> None:
    work.queues.set_tenant(ORG, TenantSettings(max_running=1), actor=OPERATOR)
    work.queues.set_key("llm", KeySettings(max_running=1), actor=OPERATOR)
    fill(work, ORG, 5, limit_key="llm")
    running = fetcher(work)
    held = running.take(5)

    work.queues.reset_tenant(ORG, actor=OPERATOR)
    work.queues.reset_key("llm", actor=OPERATOR)

    assert (len(held), len(running.take(5))) == (1, 4)
    assert not work.queues.reset_tenant(OTHER_ORG, actor=OPERATOR)
    assert not work.queues.reset_key("nothing", actor=OPERATOR)


def test_a_pause_outlives_set_reset_and_the_start_of_workers(work: Holdfast) -> None:
    work.queues.pause(QUEUE, reason="why", actor=OPERATOR)

    work.queues.set(QUEUE, QueueSettings(weight=9), actor=OPERATOR)
    work.queues.reset(QUEUE, actor=OPERATOR)
    work.worker()

    assert work.queues.rules().queues[QUEUE].pause_reason == "why"


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("queue SET weight = 0", "queue_weight_in_range"),
        ("queue SET weight = 101", "queue_weight_in_range"),
        ("queue SET max_running = 0", "queue_caps_positive"),
        ("queue SET max_running_per_tenant = -1", "queue_caps_positive"),
        ("queue SET max_depth = 0", "queue_caps_positive"),
        ("queue SET max_depth_per_tenant = 0", "queue_caps_positive"),
        ("queue SET small_depth = 0", "queue_caps_positive"),
        ("queue SET rate_count = 5, rate_seconds = NULL", "queue_rate_whole"),
        ("queue SET rate_count = 0, rate_seconds = 5", "queue_rate_whole"),
        ("queue SET set_by = 'nobody'", "queue_set_by_known"),
        ("tenant SET weight = 11", "tenant_weight_in_range"),
        ("tenant SET max_running = 0", "tenant_cap_positive"),
        ("tenant SET set_by = 'nobody'", "tenant_set_by_known"),
        ("limit_key SET max_running = 0", "limit_key_cap_positive"),
        ("limit_key SET rate_count = 5, rate_seconds = NULL", "limit_key_rate_whole"),
        ("limit_key SET set_by = 'nobody'", "limit_key_set_by_known"),
    ],
)
def test_the_database_refuses_a_rule_that_makes_no_sense(
    work: Holdfast, change: str, rule: str
) -> None:
    work.queues.set_tenant(ORG, TenantSettings(weight=2), actor=OPERATOR)
    work.queues.set_key("llm", KeySettings(max_running=2), actor=OPERATOR)

    with pytest.raises(RuleBroken) as caught:
        by_hand(work.store, f"UPDATE holdfast.{change}")

    assert caught.value.rule == rule


def test_an_operator_sees_how_deep_each_queue_is_and_how_old_its_oldest_job(
    work: Holdfast, clock: FakeClock
) -> None:
    first = work.enqueue("work", {}, org_id=ORG)
    clock.advance(minutes=5)
    fill(work, OTHER_ORG, 2)
    fill(work, OTHER_ORG, 1, not_before_at=clock.now() + timedelta(days=1))
    fetcher(work, "q:exports").take(1)

    (row,) = work.queues.waiting()

    assert (row["queue"], row["jobs"], row["tenants"], row["deferred"]) == (QUEUE, 4, 2, 1)
    assert read_instant(row["oldest_at"]) == first.created_at


# -- a queue that must stay small


@pytest.mark.req("Q-23")
def test_a_critical_queue_that_grew_is_reported_once_until_it_was_small_again(
    work: Holdfast,
) -> None:
    told: list[Any] = []
    work.events.subscribe(lambda event: told.append(event) if _is_crowded(event) else None)
    counts = []

    def upkeep() -> None:
        run_maintenance(work.store, work.settings, work.events)
        counts.append(len(told))

    fill(work, ORG, 100, "rush")
    upkeep()
    fill(work, ORG, 1, "rush")
    upkeep()
    fill(work, ORG, 50, "rush")
    upkeep()
    fetcher(work, "q:critical").take(60)
    upkeep()
    fill(work, ORG, 50, "rush")
    upkeep()

    assert counts == [0, 1, 1, 1, 2]
    assert told == [QueueCrowded("q:critical", 100)] * 2


def _is_crowded(event: object) -> bool:
    return isinstance(event, QueueCrowded)


def test_two_queues_are_reported_separately_and_deferred_jobs_do_not_count(
    work: Holdfast, clock: FakeClock
) -> None:
    told: list[str] = []
    work.events.subscribe(lambda event: told.append(event.queue) if _is_crowded(event) else None)  # type: ignore[union-attr]
    work.queue("q:mine", small_depth=2)
    work.worker()
    fill(work, ORG, 101, "rush", not_before_at=clock.now() + timedelta(days=1))
    fill(work, ORG, 3, queue="q:mine")

    for _ in range(2):
        run_maintenance(work.store, work.settings, work.events)

    assert told == ["q:mine"]


def test_a_crowded_queue_is_a_warning_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger=logger.name):
        log_event(QueueCrowded("q:critical", 100))

    (record,) = caplog.records
    line = json.loads(JsonFormatter().format(record))
    assert (line["level"], line["event"]) == ("warning", "queue.crowded")
    assert (line["queue"], line["small_depth"]) == ("q:critical", 100)
