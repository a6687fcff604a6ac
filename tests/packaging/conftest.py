from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.packaging.environment import ROOT, WHEELS, Environment, build_wheels


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Mapping[str, Path]:
    """The five wheels, built once for all test processes."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "wheels"
    folder.mkdir(exist_ok=True)
    with _locked(folder / "lock"):
        if not (folder / "built").exists():
            build_wheels(folder, *(ROOT / "packages" / name for name in WHEELS))
            (folder / "built").touch()
    return {name: folder / name for name in WHEELS}


@pytest.fixture(scope="session")
def environment(
    tmp_path_factory: pytest.TempPathFactory, wheels: Mapping[str, Path]
) -> Callable[..., Environment]:
    """Make an environment with some distributions; the same names give the same environment."""
    made: dict[tuple[str, ...], Environment] = {}

    def make(*names: str) -> Environment:
        if names not in made:
            made[names] = Environment.create(tmp_path_factory.mktemp("env"), wheels, *names)
        return made[names]

    return make
