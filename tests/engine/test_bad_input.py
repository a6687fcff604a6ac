"""Bad input: a clear error or a quarantined row; nothing is half-written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

import pytest

from holdfast import (
    Actor,
    ConfigError,
    FakeClock,
    Holdfast,
    InvalidJob,
    JobRequest,
    Priority,
    Snooze,
    State,
    UnknownKind,
)
from holdfast.engine import maintenance
from holdfast.errors import ForeignKeyScope, RowInvalid, SecretInPayload
from tests.engine.planting import plant
from tests.pure.test_secret import SECRETS
from tests.rows import outcome_of
from tests.story import ORG, OTHER_ORG, claim, look, timeline


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    hf.job("report.export")(lambda job, payload: payload)
    return hf


def nothing_was_written(hf: Holdfast) -> bool:
    counts = look(
        hf.store,
        "SELECT (SELECT count(*) FROM holdfast.job) AS jobs,"
        " (SELECT count(*) FROM holdfast.job_event) AS events",
    )[0]
    return (counts["jobs"], counts["events"]) == (0, 0)


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


BAD_FIELDS: list[tuple[str, Any]] = [
    ("org_id", None),
    ("org_id", "not a uuid"),
    ("org_id", 7),
    ("org_id", "0198c0de-0000-7000-8000-00000000000g"),
    ("project_id", "x"),
    ("actor", ""),
    ("actor", 42),
    ("actor", "user:"),
    ("actor", "a\x00b"),
    ("actor", "\ud800"),
    ("actor", Actor("robot", "r2")),  # type: ignore[arg-type]
    ("actor", Actor("user", 42)),  # type: ignore[arg-type]
    ("request_id", ""),
    ("request_id", "a\nb"),
    ("request_id", "x" * 201),
    ("request_id", 5),
    ("correlation_id", "\x1b[31m"),
    ("idempotency_key", "\x00"),
    ("idempotency_key", "x" * 501),
    ("idempotency_key", 7),
    ("queue", "default"),
    ("queue", "q:deadletter"),
    ("queue", "q:Ünicode"),
    ("queue", "q:x\n"),
    ("queue", "q:" + "x" * 10_000),
    ("queue", 3),
    ("priority", "urgent"),
    ("priority", 0),
    ("max_attempts", 0),
    ("max_attempts", 101),
    ("max_attempts", "5"),
    ("max_attempts", True),
    ("not_before_at", datetime(2026, 1, 1)),  # noqa: DTZ001
    ("not_before_at", "2026-01-01T00:00:00Z"),
    ("not_before_at", datetime(9000, 1, 1, tzinfo=UTC)),
    ("not_before_at", datetime(1970, 1, 1, tzinfo=UTC)),
    ("not_before_at", datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))),
    ("not_before_at", datetime.min.replace(tzinfo=timezone(timedelta(hours=5)))),
    ("traceparent", "00-xyz"),
    ("traceparent", 7),
    # Of the right shape, but invalid: version ff, no trace, no span.
    ("traceparent", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("traceparent", "00-00000000000000000000000000000000-b7ad6b7169203331-01"),
    ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"),
    ("traceparent", "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01"),
    ("unit_key", ""),
    ("unit_key", "\udfff"),
]


@pytest.mark.req("J-36")
def test_a_wrong_field_is_named_and_nothing_is_written(work: Holdfast) -> None:
    for name, value in BAD_FIELDS:
        with pytest.raises(InvalidJob) as caught:
            work.enqueue("report.export", {}, **{"org_id": ORG, name: value})
        assert list(caught.value.fields) == [name], value

    assert nothing_was_written(work)


@pytest.mark.req("J-35", "J-36")
def test_every_bad_field_is_named_in_one_error(work: Holdfast) -> None:
    with pytest.raises(InvalidJob) as caught:
        work.enqueue(
            "report.export", {"n": float("nan")}, org_id="x", project_id="y", actor=1,
            request_id="", correlation_id=7, idempotency_key="", queue="z", priority="p",
            max_attempts=0, not_before_at="now", traceparent="t", unit_key=9,
        )  # fmt: skip

    assert set(caught.value.fields) == {
        "payload", "org_id", "project_id", "actor", "request_id", "correlation_id",
        "idempotency_key", "queue", "priority", "max_attempts", "not_before_at", "traceparent",
        "unit_key",
    }  # fmt: skip
    assert nothing_was_written(work)


BAD_PAYLOADS: list[Any] = [
    None, [], "text", 7, {1: 2}, {"a": object()}, {"a": b"x"}, {"a": {1, 2}},
    {"a": float("nan")}, {"a": float("inf")}, {"a": 10**400}, {"a": "x\x00y"}, {"x\x00": 1},
    {"a": "\ud800"}, {"a": ["\udfff"]}, {"a": datetime.now(UTC)}, nested(33), nested(1_000),
    nested(100_000), {"a": "x" * 263_000}, {"a": ["x" * 100] * 9_000}, {"a": list(range(20_000))},
]  # fmt: skip


def test_a_payload_that_cannot_be_stored_is_refused_alike_by_both_databases(
    work: Holdfast,
) -> None:
    for payload in BAD_PAYLOADS:
        with pytest.raises(InvalidJob) as caught:
            work.enqueue("report.export", payload, org_id=ORG)
        assert list(caught.value.fields) == ["payload"]
        assert len(str(caught.value)) < 400

    assert nothing_was_written(work)


def test_the_largest_payload_is_counted_in_bytes_and_passes(work: Holdfast) -> None:
    limit = work.settings.payload_limit_bytes
    fits = "ü" * ((limit - 8) // 2)

    enqueued = work.enqueue("report.export", {"a": fits}, org_id=ORG)
    with pytest.raises(InvalidJob, match="bytes, the limit is"):
        work.enqueue("report.export", {"a": fits + "ü"}, org_id=ORG)

    assert work.get(enqueued.id, org_id=ORG).payload == {"a": fits}


def test_strange_but_honest_text_is_kept_as_it_is(work: Holdfast) -> None:
    strange = {"bidi": "a\u202eb", "zero": "a\u200bb", "q": "'; DROP TABLE job; --", "e": "\u0007"}

    enqueued = work.enqueue("report.export", strange, org_id=ORG)
    work.worker().run_once()

    job = work.get(enqueued.id, org_id=ORG)
    assert (job.payload, job.result) == (strange, strange)


def test_any_mapping_may_be_a_payload(work: Holdfast) -> None:
    enqueued = work.enqueue("report.export", MappingProxyType({"a": {"b": 1}}), org_id=ORG)

    assert work.get(enqueued.id, org_id=ORG).payload == {"a": {"b": 1}}


@pytest.mark.req("X-10")
def test_a_payload_with_a_secret_is_refused_and_the_secret_is_not_repeated(
    work: Holdfast,
) -> None:
    for secret in SECRETS.values():
        with pytest.raises(SecretInPayload) as caught:
            work.enqueue("report.export", {"call": {"with": [secret]}}, org_id=ORG)
        assert "call.with[0]" in str(caught.value)
        assert secret not in str(caught.value)

    assert nothing_was_written(work)


@pytest.mark.req("I-03", "X-07")
def test_a_key_made_for_another_tenant_is_refused(work: Holdfast) -> None:
    foreign = f"report.export:{OTHER_ORG}::abc"

    with pytest.raises(ForeignKeyScope, match="another tenant"):
        work.enqueue("report.export", {}, org_id=ORG, idempotency_key=foreign)

    assert nothing_was_written(work)


def test_an_unknown_job_type_is_refused_with_what_to_do(work: Holdfast) -> None:
    with pytest.raises(UnknownKind, match="Import the module that declares it"):
        work.enqueue("no.such", {}, org_id=ORG)

    assert nothing_was_written(work)


def test_an_option_that_does_not_exist_is_named(work: Holdfast) -> None:
    with pytest.raises(InvalidJob, match="idempotencykey: is not an option of enqueue"):
        work.enqueue("report.export", {}, org_id=ORG, idempotencykey="k")


@pytest.mark.parametrize(
    "name", ["", "Report", "report export", "report.", "a" * 101, "{", "rëport", "x\n", "q:default"]
)
def test_an_unreadable_job_type_is_refused_at_its_declaration(hf: Holdfast, name: str) -> None:
    with pytest.raises(ConfigError):
        hf.job(name)(lambda job, payload: None)


def test_a_declaration_that_cannot_work_is_refused(hf: Holdfast) -> None:
    hf.job("twice.declared")(lambda job, payload: None)

    with pytest.raises(ConfigError, match="declared twice"):
        hf.job("twice.declared")(lambda job, payload: None)
    with pytest.raises(ConfigError, match="two arguments"):
        hf.job("too.few")(lambda job: None)
    with pytest.raises(ConfigError, match="from 1 to 100"):
        hf.job("no.attempt", max_attempts=0)(lambda job, payload: None)
    with pytest.raises(ConfigError, match="longer than zero"):
        hf.job("no.time", timeout=0)(lambda job, payload: None)
    with pytest.raises(ConfigError, match="not registered"):
        hf.job("no.category", category="fancy")(lambda job, payload: None)
    with pytest.raises(ConfigError, match="must look like"):
        hf.job("no.queue", queue="fast lane")(lambda job, payload: None)


def test_a_snooze_into_the_far_future_is_cut_to_what_an_instant_can_hold(hf: Holdfast) -> None:
    @hf.job("long.sleep")
    def sleep(job: object, payload: object) -> None:
        raise Snooze(timedelta(days=900_000_000))

    enqueued = hf.enqueue("long.sleep", {}, org_id=ORG)
    counts = hf.worker().run_once()

    record = hf.get(enqueued.id, org_id=ORG).record
    assert counts.outcomes == {"snoozed": 1}
    assert record["not_before_at"] > hf.clock.now() + timedelta(days=365)


@pytest.mark.parametrize("reason", ["a\x00b", "\ud800"])
def test_a_cancel_reason_that_cannot_be_stored_is_refused_alike(
    work: Holdfast, reason: str
) -> None:
    enqueued = work.enqueue("report.export", {}, org_id=ORG)

    with pytest.raises(InvalidJob, match="reason"):
        work.cancel(enqueued.id, org_id=ORG, reason=reason)

    assert work.get(enqueued.id, org_id=ORG).state is State.QUEUED


PLANTED = {
    "attempts beyond the budget": "UPDATE holdfast.job_envelope SET max_attempts = 0",
    "a result before the end": outcome_of("canceled"),
    "an end before the end": outcome_of("failed", lease_token=0),
    "an unknown actor": "UPDATE holdfast.job_envelope SET actor_type = 'robot'",
    "a payload that is no object": "UPDATE holdfast.job_envelope SET payload = '[1]'",
    "another tenant's key": "UPDATE holdfast.job_envelope"
    f" SET idempotency_key = 'report.export:{OTHER_ORG}::k'",
    "another project's key": f"UPDATE holdfast.job_envelope SET project_id = '{OTHER_ORG}'",
    "an unknown state": outcome_of("asleep"),
    "a legacy state": outcome_of("running"),
    "a stage that never was": "UPDATE holdfast.job_envelope SET stage = 'nowhere'",
    "a limit key that never was": "UPDATE holdfast.job_envelope SET limit_key = 'nowhere'",
    "another queue": "UPDATE holdfast.job_envelope SET origin_queue = 'q:nowhere'",
}


# No later write checks these again.
HARMLESS = {PLANTED["an unknown actor"], PLANTED["a limit key that never was"]}
HARMLESS |= {PLANTED[name] for name in PLANTED if name.startswith("another")}


def planted_with(hf: Holdfast, fault: str, job_id: str) -> None:
    plant(hf, fault if ":id" in fault else f"{fault} WHERE id = :id", id=job_id)


@pytest.mark.both_databases
@pytest.mark.req("X-08")
@pytest.mark.parametrize("fault", PLANTED.values(), ids=PLANTED.keys())
def test_a_row_that_breaks_a_rule_never_stops_the_others(
    work: Holdfast, clock: FakeClock, fault: str
) -> None:
    ran: list[str] = []
    work.job("seen.work")(lambda job, payload: ran.append(job.id))
    planted = work.enqueue("report.export", {}, org_id=ORG, priority=Priority.CRITICAL)
    planted_with(work, fault, planted.id)
    others = work.enqueue_many("seen.work", [{}, {}, {}], org_id=ORG)
    worker = work.worker()

    for _ in range(3):
        worker.run_once(limit=2)

    assert sorted(ran) == sorted(item.id for item in others)
    assert {work.get(item.id, org_id=ORG).state for item in others} == {State.COMPLETED}
    (row,) = look(work.store, "SELECT state FROM holdfast.job WHERE id = :id", id=planted.id)
    if fault not in HARMLESS:
        assert row["state"] != "completed"


@pytest.mark.both_databases
@pytest.mark.parametrize("fault", ["payload = '[1]'", "stage = 'nowhere'"])
def test_a_planted_row_becomes_a_dead_letter(work: Holdfast, fault: str) -> None:
    ran: list[str] = []
    work.job("seen.work")(lambda job, payload: ran.append(job.id))
    planted = work.enqueue("seen.work", {}, org_id=ORG)
    planted_with(work, f"UPDATE holdfast.job_envelope SET {fault}", planted.id)

    work.worker().run_once()

    job = work.get(planted.id, org_id=ORG)
    assert job.state is State.FAILED
    assert job.error_class in ("ROW_INVALID", "PIPELINE_CHANGED")
    assert job.record["result"] is None
    assert timeline(work, planted)[-1] == "job.deadlettered"
    assert ran == []


@pytest.mark.both_databases
def test_a_stale_row_that_breaks_a_rule_does_not_stop_the_rescue_of_others(
    work: Holdfast, clock: FakeClock
) -> None:
    poison, sound = work.enqueue_many("report.export", [{}, {}], org_id=ORG)
    claim(work, limit=2)
    plant(
        work,
        "UPDATE holdfast.job_running SET attempt_count = -1, max_attempts = -1 WHERE job_id = :id",
        id=poison.id,
    )

    clock.advance(seconds=61)
    maintenance.rescue_jobs(work.store, limit=10)

    assert work.get(sound.id, org_id=ORG).last_error == "stale_claim_requeued"
    assert work.get(poison.id, org_id=ORG).state is State.FAILED


def test_a_job_in_an_unknown_state_raises_a_clear_error(work: Holdfast) -> None:
    planted = work.enqueue("report.export", {}, org_id=ORG)
    plant(work, outcome_of("asleep"), id=planted.id)

    with pytest.raises(RowInvalid) as caught:
        work.get(planted.id, org_id=ORG)

    assert caught.value.context == {"job_id": planted.id, "column": "state"}


def test_a_request_object_is_checked_like_everything_else(work: Holdfast) -> None:
    with pytest.raises(InvalidJob, match="org_id"):
        work.enqueue_many("report.export", [JobRequest({}, "nobody")])

    assert nothing_was_written(work)
