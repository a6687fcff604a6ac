"""Maintenance is bounded, rate-limited and idempotent, and never deletes before retention ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import ConfigError, Context, FakeClock, Holdfast, InvalidJob
from holdfast.config import BUILT_IN_QUEUES
from tests.engine.domain import DEAD, DONE, count, ended, make_domain, run_one, titles
from tests.story import ORG, look, make_holdfast, timeline


def limits(hf: Holdfast) -> list[float | None]:
    return [
        None if stage.timeout is None else stage.timeout.total_seconds()
        for handler in hf.registry
        if handler.job_type != "outbox.deliver"
        for stage in handler.stages
    ]


@pytest.mark.req("Q-12", "Q-13")
def test_a_maintenance_handler_always_has_a_limit() -> None:
    hf = make_holdfast("sqlite:")
    hf.category("sweep", rules="maintenance", queue="q:maintenance")
    hf.job("keys.clean", category="maintenance")(lambda job, payload: None)
    hf.job("index.build", category="maintenance", timeout=3600)(lambda job, payload: None)
    hf.job("dust.sweep", category="sweep", timeout=5)(lambda job, payload: None)
    pipeline = hf.pipeline("attic.tidy", category="maintenance")
    pipeline.stage("look")(lambda job, payload: None)
    pipeline.stage("tidy", timeout=60)(lambda job, payload: None)
    hf.job("order.ship")(lambda job, payload: None)

    # The first one runs bulk actions.
    assert limits(hf) == [None, 600, 3600, 5, 600, 60, None]


@pytest.mark.req("Q-13")
@pytest.mark.parametrize("seconds", [3601, 86_400])
def test_an_hour_is_the_most(seconds: int) -> None:
    hf = make_holdfast("sqlite:")

    with pytest.raises(ConfigError, match="an hour at most"):
        hf.job("index.build", category="maintenance", timeout=seconds)(lambda job, payload: None)
    with pytest.raises(ConfigError, match="an hour at most"):
        hf.pipeline("attic.tidy", category="maintenance").stage("a", timeout=seconds)(
            lambda job, payload: None
        )


@pytest.mark.req("Q-13")
def test_the_queue_of_maintenance_has_a_cap_and_a_rate_from_the_start(hf: Holdfast) -> None:
    (row,) = look(
        hf.store,
        "SELECT max_running, rate_count, rate_seconds FROM holdfast.queue"
        " WHERE name = 'q:maintenance'",
    )
    declared = BUILT_IN_QUEUES["q:maintenance"]

    assert declared.rate is not None
    assert dict(row) == {
        "max_running": declared.max_running,
        "rate_count": declared.rate.count,
        "rate_seconds": declared.rate.seconds,
    }
    assert all(row.values())


@pytest.mark.req("Q-12", "Q-20")
def test_scheduled_housekeeping_under_one_key_is_one_job(hf: Holdfast, clock: FakeClock) -> None:
    hf.job("keys.clean", category="maintenance")(lambda job, payload: None)
    tonight = clock.now() + timedelta(hours=8)

    jobs = [
        hf.enqueue("keys.clean", {}, org_id=ORG, scheduled_for=tonight, idempotency_key="tonight")
        for _ in range(3)
    ]

    assert [job.created for job in jobs] == [True, False, False]
    assert hf.get(jobs[0].id, org_id=ORG).queue == "q:maintenance"


FORBIDDEN = [
    "DELETE FROM holdfast.job_envelope",
    "DELETE FROM holdfast.job_outcome",
    "DELETE FROM holdfast.audit_event",
    "DELETE FROM holdfast.artifact",
    "UPDATE holdfast.job_outcome SET key_expires_at = finished_at",
    "UPDATE holdfast.category SET key_ttl_ms = 1",
    "DROP TRIGGER job_leaves_only_when_ended ON holdfast.job_envelope",
    "DELETE FROM holdfast.audit_seal",
]


@pytest.mark.req("Q-14")
@pytest.mark.parametrize("text", FORBIDDEN)
def test_housekeeping_of_its_own_making_cannot_shorten_what_is_kept(
    hf: Holdfast, text: str
) -> None:
    make_domain(hf.store)
    hf.job("order.ship")(lambda job, payload: None)
    kept = run_one(hf, "order.ship", {})
    if hf.store.dialect.name == "sqlite":
        text = text.replace(" ON holdfast.job_envelope", "").replace("holdfast.", "holdfast_")

    @hf.job("keys.clean", category="maintenance")
    def clean(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            connection.execute("UPDATE run_sheet SET title = 'swept'")
            connection.execute(text)

    swept = run_one(hf, "keys.clean", {})

    assert ended(hf, swept) == DEAD
    assert ended(hf, kept) == DONE
    assert titles(hf.store) == ["as it was"]


@pytest.mark.req("Q-12")
def test_housekeeping_writes_the_application_s_own_tables_and_enqueues(hf: Holdfast) -> None:
    make_domain(hf.store)
    hf.job("order.ship")(lambda job, payload: None)
    made: list[Any] = []

    @hf.job("keys.clean", category="maintenance")
    def clean(job: Context, payload: object) -> None:
        with job.transaction() as connection:
            connection.execute("DELETE FROM run_sheet")
            for _ in range(2):
                made.append(hf.enqueue("order.ship", {}, conn=connection, idempotency_key="one"))

    swept = run_one(hf, "keys.clean", {})

    assert ended(hf, swept) == DONE
    assert count(hf.store, "run_sheet") == 0
    assert [job.created for job in made] == [True, False]
    assert timeline(hf, made[0])[0] == "job.enqueued"


@pytest.mark.req("T-01")
def test_only_maintenance_and_notifications_wait_for_an_hour_of_the_clock(
    hf: Holdfast, clock: FakeClock
) -> None:
    hf.job("order.ship")(lambda job, payload: None)

    with pytest.raises(InvalidJob, match="only for maintenance jobs and delayed notifications"):
        hf.enqueue("order.ship", {}, org_id=ORG, scheduled_for=clock.now() + timedelta(hours=1))
