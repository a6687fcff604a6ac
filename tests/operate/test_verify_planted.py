"""Violations planted into a healthy store: verify finds each and names it.

The run prints how many were found on each database.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
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
from tests.operate.full_store import FullStore, make_full
from tests.operate.planting import plant_all
from tests.operate.plants import PLANTS, Plant
from tests.operate.sound import assert_sound, report_of
from tests.postgres_server import PostgresServer
from tests.story import make_holdfast

NAME = "full_store"


@dataclass(frozen=True)
class Mould:
    """The store that is copied: its contents, its time, and how to copy it."""

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
        rewrite=RewriteSettings(routes=(ROUTE,), without_judge="gate_only"),
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


# ``make planted`` plants every violation alone, on each database. An ordinary run takes a third of
# those on PostgreSQL, and plants violations with different subjects together: 213 stores and runs
# of verify on SQLite become 46, and 87 on PostgreSQL become 24.
ALL = bool(os.environ.get("HOLDFAST_PLANTED"))
TOGETHER = 12


def can_share(one: Plant, other: Plant) -> bool:
    """Whether verify distinguishes the two if they are in the same store."""
    if ALL or one.is_schema is not other.is_schema or one.on != other.on:
        return False
    if one.undo or other.undo or one.out_of_reach or other.out_of_reach:
        return False
    if one.subject in other.subject or other.subject in one.subject:
        return False
    return not touched_by(one) & touched_by(other)


@cache
def touched_by(planted: Plant) -> frozenset[str]:
    """The rows of the full store that it names, and the tables in which one row affects others."""
    text = " ".join(planted.statements)
    return frozenset(
        re.findall(r"{[\w.]+}|\b(?:job_event|audit_\w+|batch\w*|provider_call)\b", text)
    )


def groups_on(database: str) -> list[list[Plant]]:
    """The violations that run on *database*, in groups that can share a store."""
    groups: list[list[Plant]] = []
    for at, plant in enumerate(PLANTS):
        if database not in plant.on or not (ALL or database == "sqlite" or at % 3 == 0):
            continue
        for group in groups:
            if len(group) < TOGETHER and all(can_share(plant, other) for other in group):
                group.append(plant)
                break
        else:
            groups.append([plant])
    return groups


GROUPS = {database: groups_on(database) for database in ("sqlite", "postgres")}
CASES = [
    pytest.param(plant, database, number, id=f"{database}-{plant}")
    for database, groups in GROUPS.items()
    for number, group in enumerate(groups)
    for plant in group
]


@pytest.fixture(scope="module")
def findings(request: pytest.FixtureRequest) -> Callable[[str, int], dict[str, list[str]]]:
    """The findings about each violation of a group, by its name; each group runs once."""

    @cache
    def find(database: str, number: int) -> dict[str, list[str]]:
        mould: Mould = request.getfixturevalue(f"{database}_full")
        return find_planted(mould, GROUPS[database][number])

    return find


def find_planted(mould: Mould, group: list[Plant]) -> dict[str, list[str]]:
    """The lines of verify that name this violation and no other one of the group."""
    names = names_of(mould.full)
    statements = [fill(text, names) for planted in group for text in planted.statements]
    with mould.copy() as url, make_holdfast(url, FakeClock(mould.now)) as hf:
        try:
            if group[0].is_schema:
                change_schema(hf, statements)
            else:
                # A statement may need the transaction before it to be committed.
                for texts in [statements] if len(group) > 1 else [[text] for text in statements]:
                    plant_all(hf, texts)
            lines = [
                f"{finding.id} {one.subject}: {one.detail}"
                for finding in report_of(hf, shown=1000).violated
                for one in finding.violations
            ]
        finally:
            for planted in group:
                change_schema(hf, list(filter(None, planted.undo.split(";;"))))
    wanted = {planted.name: fill(planted.subject, names) for planted in group}
    return {
        name: [
            line
            for line in lines
            if text in line and not any(t in line for n, t in wanted.items() if n != name)
        ]
        for name, text in wanted.items()
    }


@pytest.mark.parametrize(("planted", "database", "number"), CASES)
def test_a_planted_violation_is_found(
    planted: Plant,
    database: str,
    number: int,
    findings: Callable[[str, int], dict[str, list[str]]],
    record_property: Callable[[str, object], None],
) -> None:
    record_property("planted", database)
    record_property("violation", planted.name)
    if planted.out_of_reach:
        record_property("out of reach", planted.out_of_reach)

    found = findings(database, number)

    if planted.out_of_reach:
        assert not found[planted.name], f"{planted.name} is found after all: {found}"
        return
    assert found[planted.name], f"{planted.name} was not found; verify says {found}"


def names_of(full: FullStore) -> dict[str, str]:
    """The names that a plant may use: the ids of the full store."""
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
    """Run *statements* as the owner of the tables."""
    if not statements:
        return
    if hf.store.dialect is SQLITE:
        with closing(sqlite3.connect(hf.settings.db.removeprefix("sqlite:///"))) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()
    else:
        with psycopg.connect(hf.settings.db) as session:
            for statement in statements:
                session.execute(statement.encode())
