"""A failed item is not sent to another provider; its retries become less frequent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast import FakeClock, RetryPolicy
from holdfast_llm import Route
from holdfast_simulator.prompt import ItemError, Prompt, Said
from holdfast_simulator.simulator import Simulator
from tests.batch.house import COLLECTOR, SUBMITTER, House, Shorten, run
from tests.story import ORG


def unable(prompt: Prompt) -> Said:
    """A model that is always unavailable."""
    return Said(error=ItemError(503, "server_error"))


@pytest.fixture
def house(url: str, clock: FakeClock) -> Iterator[House]:
    with Simulator(clock=clock, responder=unable) as sim, House(url, clock, sim) as made:
        yield made


@pytest.mark.req("R-16", "R-17", "R-18", "R-19", "R-20", "R-21")
def test_a_job_fails_where_it_was_sent_with_growing_pauses_though_another_provider_is_there(
    house: House, clock: FakeClock
) -> None:
    hf = house.hf
    other = replace(hf.settings.providers["openai"], base_url=f"{house.sim.origin}/anthropic")
    hf.settings = replace(hf.settings, providers={**hf.settings.providers, "anthropic": other})
    route = Route(
        "openai", "openai_responses", "model-1", prompt_version="v3", lane="same_language"
    )
    work = hf.batch("letter.write", route=route, max_attempts=3, retry=RetryPolicy.by_run())
    work(Shorten)
    job = hf.enqueue("letter.write", {"text": "Dear housemate"}, org_id=ORG)
    before = hf.get(job.id, org_id=ORG).record["routing_decision"]

    pauses = []
    for attempt in (1, 2, 3):
        run(hf, SUBMITTER)
        clock.advance(minutes=5)
        run(hf, COLLECTOR)
        record = hf.get(job.id, org_id=ORG).record
        assert record["attempt_count"] == attempt
        if record["state"] == "queued":
            pauses.append(record["not_before_at"] - clock.now())
            clock.advance(pauses[-1])

    ended = hf.get(job.id, org_id=ORG)
    assert (ended.state, ended.error_class) == ("failed", "UPSTREAM_DOWN")
    assert ended.record["last_error_at"] is not None
    assert pauses == [timedelta(seconds=900), timedelta(seconds=7200)]
    assert ended.record["routing_decision"] == before
    asked = Counter(batch.provider for batch in house.sim.state.batches.values())
    assert asked == {"openai": 3}
    assert house.sim.journal.find(provider="anthropic") == []
