"""Lease renewal inside a worker: a handler whose lease is lost, or about to end, has to stop."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.engine.context import CancelToken
from holdfast.engine.maintenance import rescue_jobs
from holdfast.engine.worker.executor_pool import InFlight
from holdfast.engine.worker.lease_renewer import LeaseRenewer
from tests.engine.faulty import FaultyStore
from tests.rows import expire_lease
from tests.story import ORG, claim

LEASE = 60.0


@pytest.fixture
def work(hf: Holdfast) -> Holdfast:
    hf.job("slow.work")(lambda job, payload: None)
    return hf


def hold_one(hf: Holdfast) -> InFlight:
    """A claim that was made, and renewed for the last time, at second 0."""
    hf.enqueue("slow.work", {}, org_id=ORG)
    (claimed,) = claim(hf)
    return InFlight(claimed, CancelToken(), claimed_at=0.0, renewed_at=0.0)


def renewing(hf: Holdfast, held: InFlight, store: Any = None) -> Callable[[float], None]:
    """The renewal pass of a worker with this claim, at a given second."""
    hands: Any = None
    keeper = LeaseRenewer(
        store or hf.store,
        hands,
        {held.claim_id: held},
        settings=hf.settings,
        rng=random.Random(7),
        recycle=lambda stuck: None,
    )
    assert hf.settings.lease_seconds == LEASE

    def renew(now: float) -> None:
        keeper._renew_due(now)
        keeper._stop_unrenewed(now)

    return renew


def test_a_handler_whose_lease_is_lost_has_to_stop(work: Holdfast) -> None:
    held = hold_one(work)
    expire_lease(work.store, held.job.id)
    rescue_jobs(work.store, limit=1)

    renewing(work, held)(LEASE / 3)

    assert held.token.lease_lost


def test_a_lease_is_renewed_after_a_third_of_its_time(work: Holdfast) -> None:
    held = hold_one(work)
    renew = renewing(work, held)

    renew(LEASE / 3 - 1)
    assert held.renewed_at == 0.0
    renew(LEASE / 3)
    assert held.renewed_at == LEASE / 3
    assert not held.token.is_set


def test_a_handler_has_to_stop_before_a_lease_ends_that_cannot_be_renewed(work: Holdfast) -> None:
    """After the end of the lease another worker may run the job."""
    held = hold_one(work)
    renew = renewing(work, held, FaultyStore(work.store).be_away(1_000))

    renew(LEASE * 0.5)
    assert not held.token.is_set
    renew(LEASE * 0.95)
    assert held.token.lease_lost
