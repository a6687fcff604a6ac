"""Every later write of a leased batch names its fence; a worker that lost it changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast
from holdfast.store import Row, Statement
from holdfast_llm.batch import collect, lease, send
from holdfast_llm.batch.lease import BatchLost
from tests.batch.outgoing import Outgoing, set_out
from tests.batch.planted import Stage, set_stage
from tests.batch.scripted import Lose
from tests.engine.planting import plant
from tests.story import look

LEASE = {"lease_ms": 60_000}
BACK = {"error_class": "capacity", "error_code": "overflow", "strays": 0, "was": "prepared"}
FILE = {"file_id": "file_9", "content_hash": "c" * 64, "bytes": 1}

PUT_OFF = {
    "delay_ms": 1,
    "polls": 0,
    "rounds": 0,
    "provider_status": None,
    "counts": None,
    "error_code": None,
    "was_scanned": 0,
    "was_answered": 0,
}

# By statement: the state in which it writes, and its parameters.
SUBMITTING: dict[str, tuple[str, dict[str, Any]]] = {
    "put_off": ("prepared", {**PUT_OFF, "rounds": 1, "was": "prepared"}),
    "record_upload": ("prepared", {**FILE, **LEASE}),
    "begin_create": ("uploaded", {"attempt": 1, "content_hash": "c" * 64, "bytes": 1, **LEASE}),
    "step_back": ("uploaded", LEASE),
    "keep_upload": ("creating", {"delay_ms": 1}),
    "record_fence": ("creating", {"attempt": 1, "delay_ms": 1}),
    "quarantine_batch": (
        "creating",
        {"error_class": "UNRESOLVED", "error_code": "not_found", "was": "creating"},
    ),
    "mark_back": ("prepared", {**BACK, **LEASE}),
    "release_batch": ("prepared", {}),
    "return_lease": ("quarantined", {"was": "quarantined"}),
}
COLLECTING: dict[str, tuple[str, dict[str, Any]]] = {
    "put_off": ("submitted", {**PUT_OFF, "polls": 1, "was": "submitted"}),
    "return_lease": ("submitted", {"was": "submitted"}),
    "request_cancel": ("submitted", {}),
    "end_batch": (
        "submitted",
        {
            "provider_status": "completed",
            "result_files": "[]",
            "counts": "{}",
            "error_class": None,
            "error_code": None,
        },
    ),
    "close_batch": ("ended", {"counts": "{}"}),
    "quarantine_batch": (
        "submitted",
        {"error_class": None, "error_code": "cross_wired", "was": "submitted"},
    ),
    "forget_files": ("collected", {}),
}


@pytest.fixture
def out(hf: Holdfast, clock: FakeClock) -> Outgoing:
    return set_out(hf, clock)


@pytest.fixture
def stage(hf: Holdfast, clock: FakeClock) -> Stage:
    return set_stage(hf, clock)


def named(statement: str) -> Statement:
    every = {**lease.SQL.by_name, **send.SQL.by_name, **collect.SQL.by_name}
    return every[statement]


def batch_row(hf: Holdfast) -> Row:
    (row,) = look(hf.store, "SELECT * FROM holdfast.provider_batch")
    return row


def put_in_state(hf: Holdfast, state: str) -> None:
    plant(
        hf,
        "UPDATE holdfast.provider_batch SET state = :word, input_file_id = 'f',"
        " creating_at = updated_at, submitted_at = updated_at, ended_at = updated_at,"
        " collected_at = CASE WHEN :is_collected = 1 THEN updated_at END,"
        " create_attempt = :tries",
        word=state,
        is_collected=int(state == "collected"),
        tries=int(state == "creating"),
    )


@pytest.mark.parametrize("statement", SUBMITTING)
def test_a_submitter_that_lost_the_batch_changes_nothing(out: Outgoing, statement: str) -> None:
    state, params = SUBMITTING[statement]
    out.enqueue("one")
    out.provider.script("upload", Lose())
    out.submit()
    out.later(minutes=10)
    held = out.service().leases.take_to_send("w1")
    assert held is not None
    put_in_state(out.hf, state)
    before = batch_row(out.hf)

    out.later(seconds=1)
    with pytest.raises(BatchLost):
        out.service().leases.write(named(statement), replace(held, fence=held.fence - 1), **params)
    assert batch_row(out.hf) == before

    out.service().leases.write(named(statement), held, **params)
    assert batch_row(out.hf) != before


@pytest.mark.parametrize("statement", COLLECTING)
def test_a_collector_that_lost_the_batch_changes_nothing(stage: Stage, statement: str) -> None:
    state, params = COLLECTING[statement]
    stage.plant("one")
    held = stage.service.leases.take_to_collect("w1")
    assert held is not None
    put_in_state(stage.hf, state)
    # A batch closes only when all its items have ended.
    plant(stage.hf, "UPDATE holdfast.batch_item SET state = 'succeeded', is_open = 0")
    before = batch_row(stage.hf)

    stage.clock.advance(seconds=1)
    with pytest.raises(BatchLost):
        stage.service.leases.write(named(statement), replace(held, fence=held.fence - 1), **params)
    assert batch_row(stage.hf) == before

    stage.service.leases.write(named(statement), held, **params)
    assert batch_row(stage.hf) != before


def test_a_batch_with_an_open_item_cannot_be_closed(stage: Stage) -> None:
    stage.plant("one")
    held = stage.service.leases.take_to_collect("w1")
    assert held is not None
    put_in_state(stage.hf, "ended")

    with pytest.raises(BatchLost):
        stage.service.leases.write(named("close_batch"), held, counts="{}")

    assert batch_row(stage.hf)["state"] == "ended"
