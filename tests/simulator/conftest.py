"""A simulator for each test. One that ends with a defect of its own fails the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast_simulator import Simulator


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator() as running:
        yield running
        assert running.journal.defects == []
