"""A handler's transaction commits only while the claim of its job holds.

On SQLite the open block has the only write lock, so no other worker can claim the job before its
commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from holdfast import Context, FakeClock, Holdfast
from holdfast.engine.context import CancelToken
from holdfast.engine.maintenance import rescue_jobs
from holdfast.errors import LeaseLost
from holdfast.store.postgres_transaction import PostgresTransaction
from tests.engine.domain import make_domain, titles
from tests.story import ORG, claim, make_holdfast


@pytest.fixture
def here(postgres_url: str, clock: FakeClock) -> Iterator[Holdfast]:
    with make_holdfast(postgres_url, clock) as hf:
        hf.job("sheet.make")(lambda job, payload: None)
        make_domain(hf.store)
        yield hf


@pytest.fixture
def elsewhere(here: Holdfast, postgres_url: str, clock: FakeClock) -> Iterator[Holdfast]:
    """Another process of the same application."""
    with make_holdfast(postgres_url, clock) as hf:
        yield hf


def claimed_context(hf: Holdfast) -> Context:
    hf.enqueue("sheet.make", {}, org_id=ORG)
    (claimed,) = claim(hf, worker="slow")
    return Context(claimed, hf.store, CancelToken())


def write_and(context: Context, then: Callable[[], None]) -> None:
    """Write in the job's transaction, and call a function before it ends."""
    with context.transaction() as connection:
        connection.execute("UPDATE run_sheet SET title = 'by the slow one'")
        then()


def test_a_transaction_does_not_commit_after_the_lease_was_lost(
    here: Holdfast, elsewhere: Holdfast, clock: FakeClock
) -> None:
    context = claimed_context(here)

    def lose() -> None:
        clock.advance(seconds=61)
        assert len(rescue_jobs(elsewhere.store, limit=1)) == 1

    with pytest.raises(LeaseLost):
        write_and(context, lose)

    assert titles(here.store) == ["as it was"]


def test_a_transaction_does_not_commit_after_another_worker_claimed_the_job(
    here: Holdfast, elsewhere: Holdfast, clock: FakeClock
) -> None:
    context = claimed_context(here)

    def lose() -> None:
        clock.advance(seconds=61)
        rescue_jobs(elsewhere.store, limit=1)
        assert len(claim(elsewhere, worker="next")) == 1

    with pytest.raises(LeaseLost):
        write_and(context, lose)

    assert titles(here.store) == ["as it was"]


def test_the_fence_holds_the_row_until_the_commit(
    here: Holdfast, elsewhere: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rescue between the check and the COMMIT skips the job."""
    context, commit = claimed_context(here), PostgresTransaction._commit
    rescued: list[int] = []

    def come_between(transaction: PostgresTransaction) -> None:
        clock.advance(seconds=61)
        rescued.append(len(rescue_jobs(elsewhere.store, limit=1)))
        commit(transaction)

    monkeypatch.setattr(PostgresTransaction, "_commit", come_between)
    with context.transaction() as connection:
        connection.execute("UPDATE run_sheet SET title = 'in time'")

    assert (rescued, titles(here.store)) == ([0], ["in time"])
