"""What the stories of the rewrite begin with: a stage without an orchestrator, or one with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import FakeClock, Holdfast
from holdfast_rewrite.rewrites import Rewrites
from tests.apps.household import Heard, furnish, rewriting
from tests.apps.planted import Stage, set_stage


@pytest.fixture
def stage(hf: Holdfast, clock: FakeClock) -> Stage:
    return set_stage(hf, clock)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def hf(url: str, clock: FakeClock) -> Iterator[Holdfast]:
    made = rewriting(url, clock)
    yield made
    made.close()


@pytest.fixture
def rewrites(hf: Holdfast, heard: Heard) -> Rewrites:
    made = Rewrites(hf, classifier=heard)
    furnish(made)
    return made
