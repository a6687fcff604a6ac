"""Post: the messages and their delivery job are stored in one transaction."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import FakeClock, Holdfast
from holdfast.config import QueueSettings
from holdfast.document import decode
from holdfast.engine.job import SYSTEM
from holdfast.errors import ConfigError, InvalidJob, QueueFull
from holdfast.outbox import post as posting
from holdfast.outbox.delivery import State
from holdfast.store import Store
from holdfast.telemetry.trace import read_traceparent, trace
from tests.outbox.scripted import intend_one, letter, outbox_with, state_of
from tests.outbox.test_intend import connect
from tests.story import ORG, look, make_holdfast


def count(store: Store, table: str) -> int:
    return int(look(store, f"SELECT count(*) AS n FROM holdfast.{table}")[0]["n"])


def written(store: Store) -> tuple[int, int]:
    return count(store, "delivery"), count(store, "job")


def payloads(store: Store) -> list[list[str]]:
    rows = look(store, "SELECT CAST(payload AS text) AS payload FROM holdfast.job ORDER BY id")
    return [decode(row["payload"])["deliveries"] for row in rows]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"priority": "bogus"}, "priority"),
    ({"colour": "red"}, "colour"),
    ({"queue": "q:nowhere"}, "queue"),
    ({"scheduled_for": "tomorrow"}, "scheduled_for"),
]


def test_a_post_with_a_wrong_option_is_refused_and_nothing_is_ever_sent(
    hf: Holdfast, clock: FakeClock, url: str
) -> None:
    channel = outbox_with(hf)
    _ = hf.store
    for options, field in WRONG:
        with pytest.raises(InvalidJob) as refused:
            hf.outbox.post([letter()], org_id=ORG, **options)
        assert list(refused.value.fields) == [field]
        # Also if the caller continues, and commits.
        with connect(url) as conn:
            with pytest.raises(InvalidJob):
                hf.outbox.post([letter()], org_id=ORG, conn=conn, **options)
            conn.commit()
        conn.close()
    assert written(hf.store) == (0, 0)
    clock.advance(minutes=10)
    hf.outbox.reconcile()
    assert channel.sends == []


@pytest.mark.parametrize("is_own", [True, False])
def test_where_the_queue_is_full_nothing_is_intended_either(
    hf: Holdfast, url: str, is_own: bool
) -> None:
    outbox_with(hf)
    hf.queues.set("q:notifications", QueueSettings(max_depth=1), actor=SYSTEM)
    hf.outbox.post([letter("zoe")], org_id=ORG)
    with connect(url) as conn:
        with pytest.raises(QueueFull):
            hf.outbox.post([letter()], org_id=ORG, conn=conn if is_own else None)
        conn.commit()
    conn.close()
    assert written(hf.store) == (1, 1)


@pytest.mark.parametrize("option", ["scheduled_for", "not_before_at"])
def test_a_message_posted_for_later_is_not_sent_before_its_time(
    hf: Holdfast, clock: FakeClock, option: str
) -> None:
    channel = outbox_with(hf)
    due: dict[str, Any] = {option: clock.now() + timedelta(hours=24)}
    (one,) = hf.outbox.post([letter()], org_id=ORG, **due)

    for _ in range(4):
        clock.advance(hours=5)
        hf.worker().run_once()
        hf.outbox.reconcile()
        hf.outbox.deliver([one.id], org_id=ORG)
    assert channel.sends == []

    clock.advance(hours=5)
    hf.worker().run_once()
    assert state_of(hf, one).state is State.SENT
    assert len(channel.sends) == 1


def test_the_later_of_two_times_counts(hf: Holdfast, clock: FakeClock) -> None:
    outbox_with(hf)
    late, early = clock.now() + timedelta(hours=3), clock.now() + timedelta(hours=1)
    for number, (of_intent, of_job) in enumerate(((late, early), (early, late)), 1):
        intent = letter(version=number, not_before_at=of_intent)
        (one,) = hf.outbox.post([intent], org_id=ORG, scheduled_for=of_job)
        assert state_of(hf, one).not_before_at == late


def test_a_long_list_is_shared_out_among_jobs(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posting, "PER_JOB", 2)
    channel = outbox_with(hf)
    for key in (None, "mine"):
        letters = [letter(f"{key}-{number}") for number in range(5)]
        hf.outbox.post(letters, org_id=ORG, idempotency_key=key)
    assert sorted(map(len, payloads(hf.store))) == [1, 1, 2, 2, 2, 2]
    hf.worker().run_once()
    assert channel.accepted.total() == 10


def test_more_than_one_payload_can_hold_is_posted(hf: Holdfast) -> None:
    outbox_with(hf)
    made = hf.outbox.post([letter(version=number) for number in range(1, 1_202)], org_id=ORG)
    assert len(made) == 1_201
    assert sorted(map(len, payloads(hf.store))) == [201, 500, 500]


def test_what_was_intended_before_is_delivered_with_the_others(hf: Holdfast) -> None:
    outbox_with(hf)
    first, gone = intend_one(hf, letter("ann")), intend_one(hf, letter("zoe"))
    hf.outbox.deliver([gone.id], org_id=ORG)

    posted = hf.outbox.post([letter("ann"), letter("zoe"), letter("bob")], org_id=ORG)
    again = hf.outbox.post([letter("ann"), letter("zoe"), letter("bob")], org_id=ORG)

    assert [one.created for one in posted] == [False, False, True]
    assert [one.id for one in again] == [one.id for one in posted]
    assert payloads(hf.store) == [[first.id, posted[2].id]]
    assert hf.outbox.post([], org_id=ORG) == []


def test_the_same_on_an_event_loop(postgres_url: str) -> None:
    async def write(hf: Holdfast, how: str) -> None:
        with suppress(ZeroDivisionError):
            async with await psycopg.AsyncConnection.connect(postgres_url) as conn:
                with pytest.raises(ConfigError, match="apost"):
                    hf.outbox.post([letter()], org_id=ORG, conn=conn)
                with pytest.raises(InvalidJob):
                    await hf.outbox.apost([letter()], org_id=ORG, conn=conn, priority="bogus")
                await hf.outbox.apost([letter(how)], org_id=ORG, conn=conn)
                if how == "undone":
                    raise ZeroDivisionError
        await hf.outbox.apost([letter(f"{how}-alone")], org_id=ORG)

    with make_holdfast(postgres_url, FakeClock()) as hf:
        outbox_with(hf)
        asyncio.run(write(hf, "undone"))
        assert written(hf.store) == (1, 1)
        asyncio.run(write(hf, "done"))
        assert written(hf.store) == (3, 3)


def test_a_post_is_traced_as_an_enqueue(hf: Holdfast) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace(hf, provider)
    outbox_with(hf)

    hf.outbox.post([letter()], org_id=ORG)

    (row,) = look(hf.store, "SELECT traceparent FROM holdfast.job")
    (span,) = exporter.get_finished_spans()
    assert span.name == "enqueue outbox.deliver"
    parent = read_traceparent(row["traceparent"])
    assert parent is not None
    assert parent.span_id == span.get_span_context().span_id
