"""A busy store, made once on each database; every test that needs it gets a copy."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psycopg
import pytest

from holdfast import ArtifactSettings, FakeClock
from tests.conftest import TEMPLATE
from tests.operate.busy import Busy, make_busy
from tests.operate.sound import assert_sound
from tests.postgres_server import PostgresServer
from tests.story import make_holdfast

NAME = "busy"


@dataclass(frozen=True)
class Mould:
    """The store that is copied: its jobs, the time there, and how to copy it."""

    busy: Busy
    now: datetime
    copy: Callable[[], AbstractContextManager[str]]


def make_mould(url: str, folder: Path, copy: Callable[[], AbstractContextManager[str]]) -> Mould:
    clock = FakeClock()
    artifacts = ArtifactSettings(store=f"file://{folder}/artifacts")
    with make_holdfast(url, clock, artifacts=artifacts) as hf:
        busy = make_busy(hf, clock)
        assert_sound(hf)
    return Mould(busy, clock.now(), copy)


@pytest.fixture(scope="session")
def sqlite_mould(tmp_path_factory: pytest.TempPathFactory) -> Mould:
    folder = tmp_path_factory.mktemp(NAME)
    numbers = itertools.count()

    @contextmanager
    def copy() -> Iterator[str]:
        made = folder / f"copy{next(numbers)}.db"
        shutil.copy(folder / "busy.db", made)
        yield f"sqlite:///{made}"
        made.unlink()

    return make_mould(f"sqlite:///{folder}/busy.db", folder, copy)


@pytest.fixture(scope="session")
def postgres_mould(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mould]:
    numbers = itertools.count()
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:

        @contextmanager
        def copy() -> Iterator[str]:
            name = f"{NAME}{next(numbers)}"
            admin.execute(f"CREATE DATABASE {name} TEMPLATE {NAME} STRATEGY FILE_COPY")
            yield postgres.dsn(name)
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")

        admin.execute(f"CREATE DATABASE {NAME} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY")
        yield make_mould(postgres.dsn(NAME), tmp_path_factory.mktemp(NAME), copy)
        admin.execute(f"DROP DATABASE {NAME} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgres"])
def mould(request: pytest.FixtureRequest) -> Mould:
    found: Mould = request.getfixturevalue(f"{request.param}_mould")
    return found
