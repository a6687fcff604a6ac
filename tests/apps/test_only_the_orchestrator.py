"""Only the orchestrator enqueues a rewrite: every other way is refused, a unit has one job."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg

from holdfast import EnqueueRefused, FakeClock, Holdfast, HoldfastError, JobRequest
from holdfast_rewrite import Rewrites
from holdfast_rewrite.enums import JOB_TYPE
from tests.apps.household import HOME, count, furnish, request_row, rewriting, submission
from tests.operate.sound import assert_sound
from tests.story import make_holdfast

ROUTE = {"provider": "openai", "adapter_kind": "openai_responses", "model": "gpt-5.2"}


@pytest.fixture
def unit(rewrites: Rewrites) -> dict[str, Any]:
    """An execution unit that has its job: what a second enqueue for it would be called with."""
    answer = rewrites.submit(submission())
    row = request_row(rewrites.hf.store, answer.rewrite_request_id)
    payload = rewrites.hf.get(row["job_id"], org_id=HOME).payload
    return {"payload": payload, "org_id": HOME, "routing_decision": ROUTE}


Way = Callable[[Holdfast, dict[str, Any]], Any]


def many(hf: Holdfast, unit: dict[str, Any]) -> Any:
    options = {**unit}
    return hf.enqueue_many(JOB_TYPE, [options.pop("payload")], **options)


def ready_made(hf: Holdfast, unit: dict[str, Any]) -> Any:
    return hf.enqueue_many(JOB_TYPE, [JobRequest(**unit)])


def of_tenant(hf: Holdfast, unit: dict[str, Any]) -> Any:
    options = {**unit}
    return hf.for_org(options.pop("org_id")).enqueue(JOB_TYPE, **options)


def with_unit(hf: Holdfast, unit: dict[str, Any]) -> Any:
    return hf.enqueue(JOB_TYPE, **unit, unit_key="a-unit-of-my-own")


def on_own_connection(hf: Holdfast, unit: dict[str, Any]) -> Any:
    db = hf.settings.db
    conn: Any = (
        psycopg.connect(db)
        if db.startswith("postgres")
        else sqlite3.connect(db.removeprefix("sqlite:///"))
    )
    try:
        return hf.enqueue(JOB_TYPE, **unit, conn=conn)
    finally:
        conn.commit()
        conn.close()


WAYS: dict[str, Way] = {
    "enqueue": lambda hf, unit: hf.enqueue(JOB_TYPE, **unit),
    "enqueue with a unit": with_unit,
    "enqueue_many": many,
    "a ready-made request": ready_made,
    "aenqueue": lambda hf, unit: asyncio.run(hf.aenqueue(JOB_TYPE, **unit)),
    "for_org": of_tenant,
    "the caller's connection": on_own_connection,
}


@pytest.mark.req("O-01", "J-27")
def test_a_second_job_for_a_unit_is_refused_with_the_call_to_use(
    hf: Holdfast, unit: dict[str, Any]
) -> None:
    for name, way in WAYS.items():
        with pytest.raises(HoldfastError, match=r"rewrites\.submit"):
            way(hf, unit)
        assert count(hf.store, "job") == 1, name

    assert_sound(hf)


@pytest.mark.req("O-01", "J-27")
def test_the_sql_function_makes_no_second_job(postgres_url: str, clock: FakeClock) -> None:
    with rewriting(postgres_url, clock) as hf:
        rewrites = Rewrites(hf)
        furnish(rewrites)
        rewrites.submit(submission())

        for options in ("", ", idempotency_key => 'mine'", ", limit_key => 'k'"):
            text = f"SELECT holdfast.enqueue('{JOB_TYPE}', '{{}}', '{HOME}'{options})"
            with (
                psycopg.connect(postgres_url) as conn,
                pytest.raises(pg.CheckViolation, match=r"rewrites\.submit"),
            ):
                conn.execute(text.encode())

        assert count(hf.store, "job") == 1


def test_before_any_application_declared_it_the_database_refuses_it_already(
    url: str, clock: FakeClock
) -> None:
    with make_holdfast(url, clock) as stranger:
        stranger.job(JOB_TYPE)(lambda job, payload: None)

        with pytest.raises(EnqueueRefused, match=r"rewrites\.submit"):
            stranger.enqueue(JOB_TYPE, {}, org_id=HOME)
        with pytest.raises(EnqueueRefused, match=r"rewrites\.submit"):
            stranger.enqueue(JOB_TYPE, {}, org_id=HOME, unit_key="mine")

        assert count(stranger.store, "job") == 0
