"""A child that shares this process's memory, as pre-forking servers make them."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

forks = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


def in_child(work: Callable[[], object]) -> str:
    """The result of *work* in a child, or the name of its error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = str(work())
        except BaseException as exc:
            said = type(exc).__name__
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        said = told.read()
    os.waitpid(child, 0)
    return said
