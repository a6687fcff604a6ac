"""Fixtures of the review tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import FakeClock, Holdfast
from holdfast_simulator import Simulator
from tests.apps_review.bench import Bench
from tests.apps_review.office import KEY, Model, Office
from tests.outbox.scripted import ScriptedChannel


@pytest.fixture
def bench(hf: Holdfast, clock: FakeClock) -> Bench:
    return Bench(hf, clock, ScriptedChannel(clock))


@pytest.fixture
def critic() -> Model:
    return Model()


@pytest.fixture
def simulator(
    critic: Model, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Simulator]:
    monkeypatch.setenv(KEY, "not-a-real-key")
    with Simulator(clock=clock, responder=critic) as made:
        yield made


@pytest.fixture
def office(url: str, clock: FakeClock, tmp_path: Path, simulator: Simulator) -> Iterator[Office]:
    made = Office(url, clock, tmp_path, simulator)
    yield made
    made.hf.close()
