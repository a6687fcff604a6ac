"""Every possible row of a job has one reason, and explain raises no error."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import write_instant
from holdfast.config import Settings
from holdfast.engine.job import BATCH_KEY, State
from holdfast.engine.worker.heartbeat import WorkerRow
from holdfast.operate.dead_letter import DeadLetter, DeadLetterKind, DeadLetterState
from holdfast.operate.explanation import Reason
from holdfast.operate.reason import reason_of
from holdfast_llm.operate.explain import Batched, reasons_of

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
SETTINGS = Settings()
_LETTER: dict[str, Any] = {
    **dict.fromkeys(DeadLetter.__slots__),
    "job_id": "j0",
    "stage": "run",
    "replay_count": 1,
    "pipeline_version": "",
}
LETTER = DeadLetter(**_LETTER)

instants = st.integers(-90_000, 90_000).map(lambda seconds: NOW + timedelta(seconds=seconds))
some = st.none() | instants
counts = st.integers(0, 3)
caps = st.none() | st.integers(1, 3)


def rows(**columns: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(columns)


jobs = rows(
    id=st.just("j1"),
    org_id=st.just("o1"),
    job_type=st.sampled_from(["report.export", "other"]),
    state=st.sampled_from(list(State)),
    queue=st.sampled_from(["q:default", "q:maintenance"]),
    origin_queue=st.just("q:default"),
    stage=st.just("run"),
    limit_key=st.sampled_from(["", "openai", BATCH_KEY]),
    attempt_count=counts,
    max_attempts=st.integers(3, 5),
    not_before_at=some,
    lease_expires_at=some,
    claimed_at=some,
    claimed_by=st.sampled_from([None, "w1", "w2"]),
    cancel_requested_at=some,
    deadline_at=some,
    provider_batch_id=st.sampled_from([None, "batch_1"]),
    routing_decision=st.sampled_from([None, '{"provider": "openai", "model": "small"}']),
    replay_of=st.sampled_from([None, "j0"]),
    error_class=st.sampled_from([None, "GONE"]),
    created_at=instants,
    updated_at=instants,
    finished_at=some,
    # One database gives instants as text, the other as datetimes.
    now=st.sampled_from([NOW, write_instant(NOW)]),
)
turns = st.lists(
    rows(
        name=st.sampled_from(
            ["job.enqueued", "job.retried", "job.snoozed", "job.released", "job.cancel_requested"]
        ),
        actor_type=st.just("user"),
        actor_id=st.just("42"),
        detail=st.sampled_from(
            [None, "{}", '{"reason":"unknown_job_type"}', '{"answer":"too_late","reason":"x"}']
        ),
    ),
    max_size=4,
)


def bucket(prefix: str) -> dict[str, st.SearchStrategy[Any]]:
    return {
        f"{prefix}tokens": st.floats(-5, 5),
        f"{prefix}refilled_ms": st.none() | st.floats(-1e6, 1e6),
    }


@st.composite
def limits(draw: st.DrawFn) -> dict[str, Any]:
    drawn = draw(
        rows(
            paused_at=some,
            paused_by=st.just("user:op"),
            pause_reason=st.just("a look"),
            max_running=caps,
            max_running_per_tenant=caps,
            max_running_of_tenant=caps,
            max_running_of_key=caps,
            **bucket(""),
            **bucket("key_"),
        )
    )
    for prefix in ("", "key_"):
        rate = draw(st.none() | st.integers(1, 10))
        drawn[f"{prefix}rate_count"] = rate
        drawn[f"{prefix}rate_seconds"] = None if rate is None else draw(st.integers(1, 600))
    return drawn


workers = st.lists(
    st.builds(
        WorkerRow,
        worker_id=st.sampled_from(["w1", "w2"]),
        state=st.sampled_from(["working", "draining"]),
        queues=st.sampled_from([frozenset(), frozenset({"q:default"})]),
        job_types=st.sampled_from([frozenset(), frozenset({"report.export"})]),
        host=st.just("h"),
        process_id=st.just(1),
        version=st.just("1"),
        lease_ms=st.integers(500, 90_000),
        clock_off_ms=st.none() | st.integers(-90_000, 90_000),
        longest_ms=st.just(0),
        longest_type=st.none(),
        started_at=st.just(NOW),
        seen_at=st.just(NOW),
        silent_ms=st.floats(0, 120_000),
    ),
    max_size=3,
)
letters = st.none() | st.builds(
    lambda **given: replace(LETTER, **given),
    state=st.sampled_from(list(DeadLetterState)),
    kind=st.sampled_from([None, *DeadLetterKind]),
    escalated_at=some,
    verified_at=some,
    job_type=st.sampled_from(["report.export", "complaint_rewrite"]),
)
running = rows(in_queue=counts, of_tenant_here=counts, of_tenant=counts, of_key=counts)

places = st.none() | rows(
    batch_id=st.just("b1"),
    batch_item_index=counts,
    state=st.sampled_from(["prepared", "uploaded", "creating", "submitted", "ended"])
    | st.just("quarantined"),
    provider=st.just("openai"),
    model=st.just("model-1"),
    items=st.integers(1, 9),
    provider_batch_id=st.sampled_from([None, "batch_1"]),
    provider_status=st.sampled_from([None, "in_progress"]),
    error_code=st.sampled_from([None, "cross_wired"]),
    next_at=instants,
    deadline_at=some,
    submitted_at=some,
    updated_at=instants,
    lease_owner=st.sampled_from([None, "run-1"]),
    lease_expires_at=some,
)
circuits = st.none() | rows(
    provider=st.just("openai"),
    error_code=st.just("insufficient_quota"),
    times=st.integers(1, 3),
    opened_at=instants,
    open_until=instants,
)

OF_STATE = {
    State.PROCESSING: {
        Reason.RUNNING,
        Reason.CANCEL_REQUESTED,
        Reason.LEASE_RAN_OUT,
        Reason.HELD,
        Reason.QUARANTINED,
    },
    State.BATCH_SUBMITTED: {Reason.AWAITS_BATCH, Reason.HELD, Reason.QUARANTINED},
    State.COMPLETED: {Reason.COMPLETED},
    State.CANCELED: {Reason.CANCELED, Reason.SUPERSEDED, Reason.DEADLINE_PASSED},
    State.FAILED: {Reason.DEAD_LETTER},
}
WAITING = set(Reason) - {reason for every in OF_STATE.values() for reason in every}
WAITING |= {Reason.CANCEL_REQUESTED}


@given(
    st.builds(
        Batched,
        job=jobs,
        settings=st.just(SETTINGS),
        turns=turns,
        limits=limits(),
        running=running,
        ahead=st.integers(0, 1_000),
        workers=workers,
        runs=st.dictionaries(st.sampled_from(["nightly", "hourly", "weekly"]), some, max_size=2),
        place=places,
        circuit=circuits,
        held_until=some,
        submits_at=some,
        letter=letters,
        replay_job_id=st.sampled_from([None, "j9"]),
    )
)
def test_there_is_one_reason_whatever_is_known(situation: Batched) -> None:
    found = reason_of(situation, reasons_of(situation))

    assert found.reason in OF_STATE.get(found.state, WAITING)
    assert found.line
    assert found.next
    assert "\n" not in found.line + found.next
