"""Violations planted one at a time into a sound store: verify finds each and names it.

The run prints how many were found on each database.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from pathlib import Path

import psycopg
import pytest

from holdfast import FakeClock, Holdfast
from holdfast.artifacts.settings import ArtifactSettings
from holdfast.store.dialect import SQLITE
from holdfast_rewrite.settings import RewriteSettings
from tests.apps.household import ROUTE
from tests.conftest import TEMPLATE
from tests.engine.planting import plant
from tests.operate.full_store import FullStore, make_full
from tests.operate.plants import PLANTS, Plant
from tests.operate.sound import assert_sound, report_of
from tests.postgres_server import PostgresServer
from tests.story import make_holdfast

NAME = "full_store"


@dataclass(frozen=True)
class Mould:
    """The store that is copied: what is in it, the time there, and how to copy it."""

    full: FullStore
    now: datetime
    copy: Callable[[], AbstractContextManager[str]]


def make_mould(url: str, folder: Path, copy: Callable[[], AbstractContextManager[str]]) -> Mould:
    clock = FakeClock()
    with open_full(url, clock, folder) as hf:
        full = make_full(hf, clock)
        assert_sound(hf)
    return Mould(full, clock.now(), copy)


def open_full(url: str, clock: FakeClock, folder: Path) -> Holdfast:
    return make_holdfast(
        url,
        clock,
        artifacts=ArtifactSettings(store=f"file://{folder}/artifacts"),
        rewrite=RewriteSettings(routes=(ROUTE,)),
    )


@pytest.fixture(scope="module")
def sqlite_full(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Mould:
    folder = tmp_path_factory.mktemp(NAME)
    numbers = itertools.count()

    @contextmanager
    def copy() -> Iterator[str]:
        made = folder / f"copy{next(numbers)}.db"
        shutil.copy(folder / "full.db", made)
        yield f"sqlite:///{made}"
        made.unlink()

    # With the tables of every installed extension.
    shutil.copy(sqlite_template, folder / "full.db")
    return make_mould(f"sqlite:///{folder}/full.db", folder, copy)


@pytest.fixture(scope="module")
def postgres_full(
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


# All of them by ``make planted``. An ordinary run takes a third of those on PostgreSQL, which are
# most of its time: 236 of 341 seconds.
ALL = bool(os.environ.get("HOLDFAST_PLANTED"))
CASES = [
    pytest.param(one, on, id=f"{on}-{one}")
    for at, one in enumerate(PLANTS)
    for on in one.on
    if ALL or on == "sqlite" or at % 3 == 0
]


@pytest.mark.parametrize(("planted", "database"), CASES)
def test_a_planted_violation_is_found(
    planted: Plant,
    database: str,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    record_property("planted", database)
    record_property("violation", planted.name)
    if planted.out_of_reach:
        record_property("out of reach", planted.out_of_reach)
    mould: Mould = request.getfixturevalue(f"{database}_full")
    clock = FakeClock(mould.now)
    with mould.copy() as url, make_holdfast(url, clock) as hf:
        names = names_of(mould.full)
        try:
            statements = [fill(statement, names) for statement in planted.statements]
            if planted.is_schema:
                change_schema(hf, statements)
            else:
                for statement in statements:
                    plant(hf, statement)
            wanted = fill(planted.subject, names)
            found = [
                f"{finding.id} {one.subject}: {one.detail}"
                for finding in report_of(hf).violated
                for one in finding.violations
            ]
        finally:
            change_schema(hf, list(filter(None, planted.undo.split(";;"))))
    is_found = any(wanted in line for line in found)
    if planted.out_of_reach:
        assert not is_found, f"{planted.name} is found after all: {found}"
        return
    assert is_found, f"{planted.name} was not found; verify says {found}"


def names_of(full: FullStore) -> dict[str, str]:
    """What a plant may name: the ids of the full store."""
    busy = {
        f"busy.{name}.id": attrgetter(f"busy.{name}.id")(full)
        for name in full.busy.__dataclass_fields__
    }
    mine = {name: getattr(full, name) for name in full.__dataclass_fields__ if name != "busy"}
    return {**busy, **mine}


def fill(text: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def change_schema(hf: Holdfast, statements: list[str]) -> None:
    """Run *statements* as whoever owns the tables."""
    if hf.store.dialect is SQLITE:
        with closing(sqlite3.connect(hf.settings.db.removeprefix("sqlite:///"))) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()
    else:
        with psycopg.connect(hf.settings.db) as session:
            for statement in statements:
                session.execute(statement.encode())
