from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance import processes
from tests.packaging.conftest import environment as environment
from tests.packaging.conftest import wheels as wheels


@pytest.fixture(autouse=True)
def _leave_no_process_behind() -> Iterator[None]:
    yield
    processes.kill_all()
