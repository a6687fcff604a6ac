"""A simulator for each test. One that ends with a defect of its own fails the test."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast_simulator import Simulator

_create = ssl.create_default_context
_create_once = functools.cache(_create)


@pytest.fixture(scope="module", autouse=True)
def _authorities_are_read_once() -> Iterator[None]:
    """Clients read the public authorities when they are made, which takes longer than most tests.

    None of them changes its context: they speak plain HTTP.
    """

    def create(*args: Any, **options: Any) -> ssl.SSLContext:
        return (_create_once if options.get("cafile") else _create)(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", create)
        yield


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator() as running:
        yield running
        assert running.journal.defects == []
