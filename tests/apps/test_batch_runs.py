"""The complaint rewrite names the two runs of batch processing, as its specification does."""

from __future__ import annotations

import pytest

from holdfast import FakeClock, Holdfast, RunSettings, sync_schedules
from holdfast.engine.schedule.rows import list_schedules
from holdfast_llm.settings import collector_of, submitter_of
from holdfast_rewrite.rewrites import Rewrites
from tests.apps.household import rewriting

PAIR = {"rewrite_batch_submitter": "every 15m", "rewrite_batch_collector": "every 30m"}
GENERIC = {"batch_submitter", "batch_collector"}


@pytest.mark.req("B-12")
def test_the_rewrite_schedules_its_own_pair_instead_of_the_generic_one(
    rewrites: Rewrites, hf: Holdfast
) -> None:
    sync_schedules(hf)

    scheduled = {row.schedule.name for row in list_schedules(hf.store)}
    assert scheduled >= PAIR.keys()
    assert not scheduled & GENERIC
    assert {name: str(hf.settings.run_of(name).schedule) for name in PAIR} == PAIR
    assert {submitter_of(hf.settings), collector_of(hf.settings)} == PAIR.keys()


def test_a_generic_run_that_the_settings_declare_stays(url: str, clock: FakeClock) -> None:
    own = RunSettings(queues=("q:default",), max_jobs_per_run=7)
    with rewriting(url, clock, settings={"runs": {"batch_submitter": own}}) as hf:
        Rewrites(hf)

        assert hf.settings.runs["batch_submitter"] is own
        assert "batch_collector" not in hf.settings.runs
