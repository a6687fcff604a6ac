"""Shared fixtures. Every test with `url`, `store` or `hf` runs on both databases."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import settings

from holdfast import ArtifactSettings, FakeClock, Holdfast
from holdfast.config.extensions import installed
from holdfast.engine.worker import lease_renewer
from holdfast.extension import components_of
from holdfast.store import Store, open_store
from tests.alternate import left_out
from tests.databases import TEMPLATE, Databases, share_connections
from tests.postgres_server import MEMORY, PostgresServer, has_room, sweep
from tests.story import forget_ids, make_holdfast

# The databases of tests have the tables of every installed extension.
COMPONENTS = components_of(installed().values())

# Every run generates the same cases, so a failure repeats. "explore" looks for new ones.
settings.register_profile("repeat", derandomize=True, deadline=None, max_examples=30)
settings.register_profile("explore", derandomize=False, deadline=None, max_examples=300)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))


# Workers of tests look for cancel requests and ended leases more often than once a second.
lease_renewer.TICK_SECONDS = 0.05
lease_renewer.CANCEL_LOOK_SECONDS = 0.1

FILES = "holdfast-tests-"
# Files of tests/store that do not test plans, files or connections of a database.
REUSING = {
    "test_caller_connection",
    "test_caller_connection_tenant",
    "test_forged_jobs",
    "test_handler_login",
}


def pytest_configure(config: pytest.Config) -> None:
    """Put the files of tests into memory, which avoids waits for the disk.

    A killed process loses nothing there either; only a machine that stops would.
    """
    if config.option.basetemp is None and not is_worker(config) and _can_run_programs(MEMORY):
        sweep(MEMORY, FILES)
        made = tempfile.mkdtemp(prefix=f"{FILES}{os.getpid()}-", dir=MEMORY)
        config.option.basetemp = f"{made}/files"
        config.add_cleanup(lambda: shutil.rmtree(made, ignore_errors=True))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--alternate",
        action="store_true",
        help="Run the stories that tests/alternate.py names on one of the two databases.",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--alternate"):
        found = left_out(items)
        items[:] = [item for item in items if item not in found]
        config.hook.pytest_deselected(items=list(found))


def _can_run_programs(memory: Path) -> bool:
    """Whether the virtual environments that tests make can be in *memory*."""
    return has_room(memory) and not os.statvfs(memory).f_flag & os.ST_NOEXEC


def is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector: the objects made here are never garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Spare the garbage collector the hundreds of thousands of objects that tests are."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The server. A missing PostgreSQL is a failure, not a skip."""
    server = PostgresServer()
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {TEMPLATE}")
        store = open_store(server.dsn(TEMPLATE), check=False, components=COMPONENTS)
        store.migrate()
        store.close()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def databases(postgres: PostgresServer) -> Iterator[Databases]:
    made = Databases(postgres)
    share_connections(made)
    yield made
    made.close()


@pytest.fixture
def postgres_url(databases: Databases, request: pytest.FixtureRequest) -> Iterator[str]:
    """A migrated database of the test's own.

    For most of tests/store and for query plans it is one that no test has used before.
    """
    in_store = request.path.parent.name == "store" and request.path.stem not in REUSING
    is_fresh = in_store or request.path.stem.endswith("_plans")
    name = databases.take(fresh=is_fresh)
    url = databases.server.dsn(name)
    forget_ids(url)
    yield url
    databases.give_back(name)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/work.db"


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file to copy: that takes 1 ms, where migrating waits 300 ms for the disk."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    store = open_store(f"sqlite:///{path}", check=False, components=COMPONENTS)
    store.migrate()
    store.close()
    return path


@pytest.fixture
def migrated_sqlite_url(sqlite_url: str, sqlite_template: Path) -> str:
    shutil.copy(sqlite_template, sqlite_url.removeprefix("sqlite:///"))
    return sqlite_url


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """A migrated database of either kind."""
    name = {"sqlite": "migrated_sqlite_url", "postgres": "postgres_url"}[request.param]
    found: str = request.getfixturevalue(name)
    return found


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def hf(url: str, clock: FakeClock, tmp_path: Path) -> Iterator[Holdfast]:
    kept = ArtifactSettings(store=f"file://{tmp_path}/artifacts")
    made = make_holdfast(url, clock, artifacts=kept)
    yield made
    made.close()


@pytest.fixture
def store(hf: Holdfast) -> Store:
    return hf.store


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report the used databases to the main process."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["databases"] = sorted(_used)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _used.update(getattr(node, "workeroutput", {}).get("databases", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report which databases the run really used."""
    for line in sorted(_used):
        terminalreporter.write_line(f"database used: {line}")
    for line in _planted(terminalreporter):
        terminalreporter.write_line(line)


def _planted(reporter: pytest.TerminalReporter) -> Iterator[str]:
    """The number of planted violations that verify found, on each database.

    With HOLDFAST_PLANTED set also the result of each, which is what ``make planted`` prints.
    """
    became: dict[str, dict[str, str]] = {}
    for outcome in ("passed", "failed"):
        for report in reporter.stats.get(outcome, []):
            told = dict(report.user_properties)
            if "planted" in told and report.when == "call":
                word = "found" if outcome == "passed" else "NOT FOUND"
                if outcome == "passed" and "out of reach" in told:
                    word = f"out of reach: {told['out of reach']}"
                became.setdefault(told["violation"], {})[told["planted"]] = word
    if os.environ.get("HOLDFAST_PLANTED"):
        for violation, words in sorted(became.items()):
            shown = "; ".join(f"{on} {word}" for on, word in sorted(words.items()))
            yield f"planted: {violation:<60} {shown}"
    for database in sorted({on for words in became.values() for on in words}):
        counts = Counter(
            words[database].partition(":")[0] for words in became.values() if database in words
        )
        told_of = [f"{count} {word}" for word, count in sorted(counts.items())]
        yield f"planted violations on {database}: {counts.total()}, " + ", ".join(told_of)


_used: set[str] = set()
_seen: set[str] = set()


@pytest.fixture(autouse=True)
def _remember_database(request: pytest.FixtureRequest) -> None:
    """Ask each database for its version once."""
    if "url" not in request.fixturenames or len(_seen) == 2:
        return
    url: str = request.getfixturevalue("url")
    kind = url.partition(":")[0]
    if kind not in _seen:
        opened = open_store(url)
        _used.add(opened.version())
        opened.close()
        _seen.add(kind)
