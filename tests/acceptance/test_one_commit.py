"""A handler that commits its rows and is killed: which form of transaction repeats them."""

from __future__ import annotations

import pytest

from holdfast import Enqueued, Holdfast, State
from tests.acceptance.app import make
from tests.acceptance.processes import all_in, start_worker, wait_until
from tests.operate.sound import assert_sound
from tests.story import ORG, by_hand, look, timeline


def make_effects(hf: Holdfast) -> None:
    by_hand(hf.store, "CREATE TABLE effect (job_id text NOT NULL, attempt integer NOT NULL)")
    if hf.store.dialect.name == "postgres":
        by_hand(hf.store, "GRANT SELECT, INSERT ON effect TO holdfast_tenant")


def run_with_deaths(hf: Holdfast, url: str, *, complete: bool) -> tuple[Enqueued, int]:
    """Run a handler that is killed after its block, twice if it runs twice; count the deaths."""
    job = hf.enqueue("effect", {"complete": complete, "deaths": 2}, org_id=ORG)

    def is_done() -> bool:
        return all_in(hf, [job], State.COMPLETED)

    deaths = 0
    while deaths < 3:
        worker = start_worker(url)
        # A handler that completes inside its block is killed after it.
        wait_until(lambda: not worker.is_alive() or (not complete and is_done()))  # noqa: B023
        if worker.is_alive():
            break
        deaths += 1
        if is_done():
            break
    return job, deaths


@pytest.mark.req("I-14", "I-18", "C-09")
@pytest.mark.timeout(300)
def test_a_handler_that_completes_with_its_rows_and_is_killed_leaves_one_effect(url: str) -> None:
    hf = make(url)
    make_effects(hf)

    job, deaths = run_with_deaths(hf, url, complete=True)
    # Another worker, which would run the job again if it were still pending.
    start_worker(url)
    probe = hf.enqueue("work", {}, org_id=ORG)
    wait_until(lambda: all_in(hf, [probe], State.COMPLETED))

    assert deaths == 1
    assert look(hf.store, "SELECT attempt FROM effect") == [{"attempt": 1}]
    assert hf.get(job.id, org_id=ORG).state == State.COMPLETED
    assert timeline(hf, job) == ["job.enqueued", "job.started", "job.succeeded"]
    assert_sound(hf)
    hf.close()


@pytest.mark.timeout(300)
def test_a_handler_that_only_commits_its_rows_repeats_them_for_each_death(url: str) -> None:
    """The documented limit of the plain form."""
    hf = make(url)
    make_effects(hf)

    job, deaths = run_with_deaths(hf, url, complete=False)

    assert deaths == 2
    assert [row["attempt"] for row in look(hf.store, "SELECT attempt FROM effect ORDER BY 1")] == [
        1,
        2,
        3,
    ]
    assert hf.get(job.id, org_id=ORG).state == State.COMPLETED
    assert_sound(hf)
    hf.close()
