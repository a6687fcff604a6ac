"""Batch processing in the engine: a key, a state, and jobs that claims leave out."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from holdfast import Context, FakeClock, Holdfast, InvalidJob, State
from holdfast.engine.claim import Order, claim_jobs
from holdfast.engine.handler import Handler, Routed
from holdfast.engine.job import BATCH_KEY, SYSTEM, Claimed, Completed, ResultWithRows, Submitted
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.run_log import count_pending
from holdfast.engine.settle import settle
from holdfast.errors import ConfigError
from holdfast.store import Statements, Tx
from holdfast.store.query import Statement
from holdfast_llm.batch.maintenance import SQL as BATCH
from tests.rows import refused_by
from tests.story import ORG, OTHER_ORG, by_hand, claim, look, timeline
from tests.words import kept, make_words, store_words, words_of

JOB = Statements("holdfast.engine", "job.sql")
ROUTE = {"provider": "openai", "adapter_kind": "openai_responses", "model": "small"}


def route(decision: Mapping[str, Any] | None) -> Routed:
    given = {**ROUTE, **(decision or {})}
    if given["model"] == "none":
        raise ValueError("model 'none' has no account")
    return Routed(given, is_batched=given.get("mode") != "call", max_attempts=given.get("most"))


def declare(hf: Holdfast, job_type: str = "letter.write", **own: Any) -> None:
    """A job type with routed requests, as batch processing declares it."""
    hf.job(job_type)(lambda job, payload: None)
    made: Handler = hf.registry.handlers[job_type]
    hf.registry.handlers[job_type] = replace(made, router=route, **own)


@pytest.fixture
def service(hf: Holdfast) -> Holdfast:
    declare(hf)
    hf.job("report.export")(lambda job, payload: None)
    return hf


def submitter_takes(hf: Holdfast, order: Order, limit: int = 10) -> list[Claimed]:
    return claim_jobs(
        hf.store,
        queue="q:default",
        worker_id="submitter",
        limit=limit,
        lease_ms=60_000,
        order=order,
        of_batch=True,
    )


@pytest.mark.parametrize("order", list(Order))
def test_only_the_submitter_claims_batch_jobs(service: Holdfast, order: Order) -> None:
    waits = [service.enqueue("letter.write", {}, org_id=org).id for org in (ORG, OTHER_ORG)]
    plain = service.enqueue("report.export", {}, org_id=ORG).id
    calls = service.enqueue("letter.write", {}, org_id=ORG, routing_decision={"mode": "call"}).id

    ordinary = claim_jobs(
        service.store, queue="q:default", worker_id="w1", limit=10, lease_ms=60_000, order=order
    )
    taken = submitter_takes(service, order)

    assert {job.id for job in ordinary} == {plain, calls}
    assert {job.id for job in taken} == set(waits)
    assert {job.limit_key for job in taken} == {BATCH_KEY}


def test_a_worker_beside_a_waiting_batch_finds_its_own_work_and_then_rests(
    service: Holdfast,
) -> None:
    service.enqueue_many("letter.write", [{}] * 20, org_id=ORG)
    service.enqueue("report.export", {}, org_id=ORG)

    counts = service.worker().run(until_idle=True)

    assert counts.claimed == 1
    profile = service.settings.default_profile
    assert count_pending(service.store, ["q:default"], [], profile) == 0
    assert count_pending(service.store, ["q:default"], [], profile, of_batch=True) == 20


def test_the_route_is_frozen_at_enqueue_and_may_lower_the_budget(service: Holdfast) -> None:
    made = service.enqueue(
        "letter.write", {}, org_id=ORG, routing_decision={"model": "big", "most": 1}
    )

    job = service.get(made.id, org_id=ORG)

    assert job.record["routing_decision"] == {**ROUTE, "model": "big", "most": 1}
    assert job.max_attempts == 1
    text = "UPDATE holdfast.job_envelope SET routing_decision = '{}' WHERE id = :id"
    assert refused_by(service, text, id=made.id) == "job_envelope_never_changes"


@pytest.mark.parametrize(
    ("job_type", "options", "field"),
    [
        ("letter.write", {"routing_decision": {"model": "none"}}, "routing_decision"),
        ("letter.write", {"limit_key": "provider"}, "limit_key"),
        ("letter.write", {"limit_key": BATCH_KEY}, "limit_key"),
        ("report.export", {"limit_key": BATCH_KEY}, "limit_key"),
        ("report.export", {"routing_decision": ROUTE}, "routing_decision"),
    ],
)
def test_a_route_that_cannot_be_and_the_reserved_key_are_refused_at_the_edge(
    service: Holdfast, job_type: str, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidJob, match=field):
        service.enqueue(job_type, {}, org_id=ORG, **options)

    assert look(service.store, "SELECT id FROM holdfast.job") == []


def hand_over(hf: Holdfast, count: int = 1) -> list[Claimed]:
    """Jobs that are in a provider's batch."""
    hf.enqueue_many("letter.write", [{}] * count, org_id=ORG)
    taken = submitter_takes(hf, Order.CREATED_AT_ASC)
    settled = settle(hf.store, [(job, Submitted("batch_7")) for job in taken], actor=SYSTEM)
    assert all(item.lease_held for item in settled)
    return [replace(job, state=State.BATCH_SUBMITTED) for job in taken]


@pytest.mark.req("J-04", "P-04")
def test_a_submitted_job_names_its_batch_and_ends_from_there_under_the_same_claim(
    service: Holdfast, clock: FakeClock
) -> None:
    made = service.enqueue("letter.write", {}, org_id=ORG)
    assert service.get(made.id, org_id=ORG).record["provider_batch_id"] is None
    (job,) = hand_over(service, 0)
    stored = service.get(job.id, org_id=ORG)
    assert (stored.state, stored.record["provider_batch_id"]) == ("batch_submitted", "batch_7")
    assert stored.record["lease_expires_at"] is None
    clock.advance(days=1)
    assert rescue_jobs(service.store, limit=10) == []

    stale = replace(job, lease_token=job.lease_token - 1)
    assert not settle(service.store, [(stale, Completed('"old"'))], actor=SYSTEM)[0].lease_held
    assert settle(service.store, [(job, Completed('"kind words"'))], actor=SYSTEM)[0].lease_held

    assert service.get(job.id, org_id=ORG).result == "kind words"
    assert "job.submitted" in timeline(service, job)


def test_a_job_that_was_to_be_stopped_is_canceled_the_moment_it_is_handed_over(
    service: Holdfast,
) -> None:
    service.enqueue("letter.write", {}, org_id=ORG)
    (job,) = submitter_takes(service, Order.FAIR)
    service.cancel(job.id, org_id=ORG)

    (settled,) = settle(service.store, [(job, Submitted("batch_7"))], actor=SYSTEM)

    assert settled.canceled_instead
    assert service.get(job.id, org_id=ORG).state == State.CANCELED
    assert timeline(service, job)[-2:] == ["job.submitted", "job.canceled"]


def item_of(hf: Holdfast, job: Claimed, mode: str) -> None:
    """An open item at the provider, left by a killed worker."""
    batch = str(uuid.uuid4())
    by_hand(
        hf.store,
        "INSERT INTO holdfast.provider_batch (id, account, provider, adapter_kind, model,"
        " execution_mode, group_key, state, items, bytes, input_tokens, next_at, created_at,"
        " updated_at) VALUES (:id, 'a', 'openai', 'openai_responses', 'm', :mode, 'g', 'prepared',"
        " 1, 1, 1, {now}, {now}, {now}) RETURNING id",
        id=batch,
        mode=mode,
    )
    by_hand(
        hf.store,
        "INSERT INTO holdfast.batch_item (batch_id, batch_item_index, org_id, job_id, job_type,"
        " execution_mode, unit, attempt, lease_token, custom_id, echo, group_key, input_tokens,"
        " created_at) VALUES (:batch, 0, :org_id, :id, :job_type, :mode, :unit, 1, :token, 'c',"
        " 'e', 'g', 1, {now}) RETURNING job_id",
        batch=batch,
        org_id=job.org_id,
        id=job.id,
        job_type=job.job_type,
        unit=job.id,
        mode=mode,
        token=job.lease_token,
    )


def test_the_reaper_leaves_alone_what_may_be_in_a_providers_batch(
    service: Holdfast, clock: FakeClock
) -> None:
    service.enqueue_many("letter.write", [{}, {}, {}], org_id=ORG)
    at_provider, called, neither = submitter_takes(service, Order.CREATED_AT_ASC)
    item_of(service, at_provider, "batch")
    item_of(service, called, "async")
    clock.advance(minutes=5)

    rescued = rescue_jobs(service.store, limit=10, find=BATCH.find_stale)

    assert {settled.job.id for settled in rescued} == {called.id, neither.id}
    assert service.get(at_provider.id, org_id=ORG).state == State.PROCESSING


STORE_WORDS = store_words()


@pytest.fixture
def keeping(hf: Holdfast) -> Holdfast:
    make_words(hf.store)
    hf.job("letter.call", stores=STORE_WORDS)(lambda job, payload: kept(payload["words"]))
    return hf


def test_what_is_kept_beside_a_result_is_written_with_it(keeping: Holdfast) -> None:
    made = keeping.enqueue("letter.call", {"words": "please"}, org_id=ORG)

    keeping.worker().run_once()

    assert keeping.get(made.id, org_id=ORG).result == "done"
    assert words_of(keeping.store) == ["please"]


def test_what_cannot_be_kept_undoes_that_jobs_outcome_and_no_others(keeping: Holdfast) -> None:
    good, bad, fine = keeping.enqueue_many(
        "letter.call", [{"words": "a"}, {"words": "RUDE"}, {"words": "c"}], org_id=ORG
    )
    keeping.worker(concurrency=3).run(until_idle=True)

    states = [keeping.get(job.id, org_id=ORG).state for job in (good, bad, fine)]
    assert states == [State.COMPLETED, State.FAILED, State.COMPLETED]
    assert words_of(keeping.store) == ["a", "c"]
    assert keeping.get(bad.id, org_id=ORG).error_class == "ROW_INVALID"


def test_a_lost_lease_keeps_nothing(keeping: Holdfast, clock: FakeClock) -> None:
    keeping.enqueue("letter.call", {"words": "late"}, org_id=ORG)
    (job,) = claim(keeping)
    clock.advance(minutes=5)
    rescue_jobs(keeping.store, limit=1)

    outcome = Completed('"done"', kept("late").rows)
    stores = keeping.registry.stores_of
    (settled,) = settle(keeping.store, [(job, outcome)], actor=SYSTEM, stores=stores)

    assert not settled.lease_held
    assert words_of(keeping.store) == []


def test_the_rows_of_a_group_are_stored_by_one_statement(
    keeping: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    affected = Tx.affected

    def count(tx: Tx, statement: Statement, /, **params: Any) -> int:
        if statement is STORE_WORDS:
            sizes.append(len(params["said"]))
        return affected(tx, statement, **params)

    monkeypatch.setattr(Tx, "affected", count)
    keeping.enqueue_many("letter.call", [{"words": word} for word in "abc"], org_id=ORG)
    group = [(job, Completed('"done"', kept("x").rows)) for job in claim(keeping, limit=3)]

    settle(keeping.store, group, actor=SYSTEM, stores=keeping.registry.stores_of)

    assert sizes == [3]


def test_a_statement_that_takes_more_than_rows_is_refused(hf: Holdfast) -> None:
    single = Statement("one", "affected", "", "DELETE FROM words WHERE id = :id", frozenset())

    with pytest.raises(ConfigError, match=r"'one' of stores= must take \{rows …\} and no other"):
        hf.job("letter.bad", stores=single)(lambda job, payload: None)


def test_rows_without_a_statement_bury_their_job_and_not_the_worker(hf: Holdfast) -> None:
    @hf.job("letter.lone")
    def lone(job: Context, payload: Any) -> ResultWithRows:
        return kept("words")

    made = hf.enqueue("letter.lone", {}, org_id=ORG)

    hf.worker().run(until_idle=True)

    job = hf.get(made.id, org_id=ORG)
    assert (job.state, job.error_class) == (State.FAILED, "CONFIG_INVALID")
