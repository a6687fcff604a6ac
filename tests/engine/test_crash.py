"""A process is killed before or after a commit: its work has no effect, or is recovered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import FakeClock, Holdfast, State, Worker
from holdfast.engine.claim import ClaimRequest, claim_jobs, claim_queue
from holdfast.engine.fairness import TenantBacklog
from holdfast.engine.job import SYSTEM, Completed
from holdfast.engine.limits import read_rules
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.settle import settle
from tests.engine.faulty import Died, FaultyStore, through
from tests.operate.sound import assert_sound
from tests.story import ORG, claim, look, timeline


class Outside:
    """An external service that counts the effects of each key."""

    def __init__(self, hf: Holdfast) -> None:
        self.effects: dict[str, int] = {}
        self.calls = 0
        hf.job("send.money")(self.handle)

    def handle(self, job: Any, payload: object) -> str:
        self.calls += 1
        self.effects.setdefault(job.idempotency_key, 1)
        return "sent"


@pytest.fixture
def outside(hf: Holdfast) -> Outside:
    return Outside(hf)


@pytest.fixture(autouse=True)
def _leave_a_sound_store(hf: Holdfast) -> Iterator[None]:
    """After every kind of crash, all invariants hold."""
    yield
    assert_sound(hf)


def enqueue(hf: Holdfast) -> Any:
    return hf.enqueue("send.money", {}, org_id=ORG, idempotency_key="payment-1")


def recover(hf: Holdfast, clock: FakeClock) -> None:
    clock.advance(seconds=61)
    rescue_jobs(hf.store, limit=10)
    hf.worker().run_once()


def count_jobs(hf: Holdfast) -> int:
    found: int = look(hf.store, "SELECT count(*) AS n FROM holdfast.job")[0]["n"]
    return found


def ended_once(hf: Holdfast, job: Any) -> bool:
    return (
        hf.get(job.id, org_id=ORG).state is State.COMPLETED
        and timeline(hf, job).count("job.succeeded") == 1
    )


@pytest.mark.req("I-18", "E-14")
def test_a_death_before_the_enqueue_commits_leaves_nothing(hf: Holdfast, outside: Outside) -> None:
    with pytest.raises(Died), through(hf, FaultyStore(hf.store).die_before_commit()):
        enqueue(hf)

    nothing = (count_jobs(hf), look(hf.store, "SELECT * FROM holdfast.job_event"))
    again = enqueue(hf)

    assert nothing == (0, [])
    assert again.created
    assert count_jobs(hf) == 1


@pytest.mark.req("I-18", "I-02")
def test_a_death_after_the_enqueue_committed_is_answered_with_the_same_job(
    hf: Holdfast, outside: Outside
) -> None:
    with pytest.raises(Died), through(hf, FaultyStore(hf.store).die_after_commit()):
        enqueue(hf)

    again = enqueue(hf)
    hf.worker().run_once()

    assert not again.created
    assert count_jobs(hf) == 1
    assert ended_once(hf, again)


@pytest.mark.req("I-18", "C-02")
def test_a_death_before_the_claim_commits_leaves_the_job_queued_and_free_of_charge(
    hf: Holdfast, outside: Outside
) -> None:
    job = enqueue(hf)

    with pytest.raises(Died):
        claim_jobs(
            FaultyStore(hf.store).die_before_commit(),
            queue="q:default", worker_id="w", limit=1, lease_ms=60_000,
        )  # fmt: skip

    found = hf.get(job.id, org_id=ORG)
    assert (found.state, found.attempt_count) == (State.QUEUED, 0)
    assert timeline(hf, job) == ["job.enqueued"]
    hf.worker().run_once()
    assert ended_once(hf, job)


@pytest.mark.req("I-18", "C-09")
def test_a_death_after_the_claim_committed_costs_one_attempt_and_the_job_ends_once(
    hf: Holdfast, outside: Outside, clock: FakeClock
) -> None:
    job = enqueue(hf)

    with pytest.raises(Died):
        claim_queue(
            FaultyStore(hf.store).die_after_commit(),
            read_rules(hf.store),
            ClaimRequest(
                "q:default", "w", 1, 60_000, backlogs=[TenantBacklog("q:default", "", ORG, 1, 1)]
            ),
        )
    recover(hf, clock)

    assert hf.get(job.id, org_id=ORG).attempt_count == 1
    assert outside.calls == 1
    assert ended_once(hf, job)


@pytest.mark.req("I-18")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_death_inside_the_handler_is_run_again_and_takes_effect_once(
    hf: Holdfast, clock: FakeClock, moment: str
) -> None:
    effects: set[str] = set()
    deaths = [Died()]

    @hf.job("send.money")
    def send(job: Any, payload: object) -> str:
        if moment == "before" and deaths:
            raise deaths.pop()
        effects.add(job.idempotency_key)
        if moment == "after" and deaths:
            raise deaths.pop()
        return "sent"

    job = enqueue(hf)
    with pytest.raises(Died):
        hf.worker().run_once()
    recover(hf, clock)

    assert effects == {job.idempotency_key}
    assert ended_once(hf, job)


@pytest.mark.req("I-18", "I-14")
def test_a_death_before_the_outcome_commits_leaves_no_trace_of_it(
    hf: Holdfast, outside: Outside, clock: FakeClock
) -> None:
    job = enqueue(hf)
    dying = FaultyStore(hf.store).die_before_commit(after_writes=1)
    worker = Worker(dying, hf.registry, settings=hf.settings, queues=["q:default"])

    with pytest.raises(Died):
        worker.run_once()
    half_way = hf.get(job.id, org_id=ORG)
    recover(hf, clock)

    assert (half_way.state, half_way.result) == (State.PROCESSING, None)
    assert "job.succeeded" not in timeline(hf, job)[:2]
    assert outside.calls == 2
    assert outside.effects == {job.idempotency_key: 1}
    assert ended_once(hf, job)


@pytest.mark.req("I-18", "I-14")
def test_a_death_after_the_outcome_committed_changes_nothing_on_restart(
    hf: Holdfast, outside: Outside, clock: FakeClock
) -> None:
    job = enqueue(hf)
    dying = FaultyStore(hf.store).die_after_commit(after_writes=1)
    worker = Worker(dying, hf.registry, settings=hf.settings, queues=["q:default"])

    with pytest.raises(Died):
        worker.run_once()
    recover(hf, clock)

    assert outside.calls == 1
    assert ended_once(hf, job)


@pytest.mark.req("I-18", "C-09")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_rescue_that_dies_is_simply_run_again(
    hf: Holdfast, outside: Outside, clock: FakeClock, moment: str
) -> None:
    job = enqueue(hf)
    claim(hf)
    clock.advance(seconds=61)
    dying = FaultyStore(hf.store)
    dying = dying.die_before_commit() if moment == "before" else dying.die_after_commit()

    with pytest.raises(Died):
        rescue_jobs(dying, limit=10)
    rescue_jobs(hf.store, limit=10)

    assert hf.get(job.id, org_id=ORG).attempt_count == 1
    assert timeline(hf, job).count("job.retried") == 1
    hf.worker().run_once()
    assert ended_once(hf, job)


@pytest.mark.req("I-14", "I-18")
def test_a_worker_frozen_past_its_lease_resumes_with_a_lost_claim(
    hf: Holdfast, outside: Outside, clock: FakeClock
) -> None:
    job = enqueue(hf)
    (frozen,) = claim(hf, worker="frozen")
    recover(hf, clock)

    (late,) = settle(hf.store, [(frozen, Completed('"late"'))], actor=SYSTEM)

    assert not late.lease_held
    assert hf.get(job.id, org_id=ORG).result == "sent"
    assert timeline(hf, job)[-1] == "job.lease_lost"


@pytest.mark.req("I-18")
def test_an_outcome_group_that_dies_is_redone_as_a_whole(
    hf: Holdfast, outside: Outside, clock: FakeClock
) -> None:
    jobs = hf.enqueue_many("send.money", [{} for _ in range(5)], org_id=ORG)
    claimed = claim(hf, limit=5)

    with pytest.raises(Died):
        settle(
            FaultyStore(hf.store).die_before_commit(),
            [(job, Completed("1")) for job in claimed],
            actor=SYSTEM,
        )
    states = {hf.get(item.id, org_id=ORG).state for item in jobs}
    recover(hf, clock)

    assert states == {State.PROCESSING}
    assert all(ended_once(hf, item) for item in jobs)
