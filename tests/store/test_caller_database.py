"""A caller's connection must use the application's database, and a new file needs no set-up."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast import ConfigError, Holdfast
from tests.outbox.scripted import letter
from tests.story import ORG, look


def connect(url: str) -> Any:
    if url.startswith("sqlite:"):
        return sqlite3.connect(url.removeprefix("sqlite:///"))
    return psycopg.connect(url)


def other_database(url: str, tmp_path: Path) -> str:
    if url.startswith("sqlite:"):
        return f"sqlite:///{tmp_path}/other.db"
    return url.rpartition("/")[0] + "/postgres"


def test_a_connection_to_another_database_is_refused(
    hf: Holdfast, url: str, tmp_path: Path
) -> None:
    hf.job("mail.send")(lambda job, payload: None)
    with connect(other_database(url, tmp_path)) as theirs:
        with pytest.raises(ConfigError, match="conn= is a connection to") as refused:
            hf.enqueue("mail.send", {}, org_id=ORG, conn=theirs)
        with pytest.raises(ConfigError, match="the job would never run"):
            hf.outbox.intend([letter()], org_id=ORG, conn=theirs)

    assert "Give both the same database" in str(refused.value)
    assert look(hf.store, "SELECT id FROM holdfast.job") == []


def test_a_connection_is_checked_once(hf: Holdfast, url: str) -> None:
    hf.job("mail.send")(lambda job, payload: None)
    with connect(url) as ours:
        for _ in range(3):
            hf.enqueue("mail.send", {}, org_id=ORG, conn=ours)
        known = hf.callers._known

        assert len(known) == (0 if hf.callers.is_embedded else 1)
    assert len(look(hf.store, "SELECT id FROM holdfast.job")) == 3


def test_the_same_file_by_another_path_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with Holdfast(f"sqlite:///{tmp_path}/real/work.db") as hf:
        hf.job("mail.send")(lambda job, payload: None)
        theirs = sqlite3.connect(tmp_path / "link" / "work.db")
        with theirs:
            assert hf.enqueue("mail.send", {}, org_id=ORG, conn=theirs).created
        theirs.close()


def plain(path: Path) -> Any:
    return sqlite3.connect(path)


def in_autocommit(path: Path) -> Any:
    return sqlite3.connect(path, isolation_level=None)


def with_a_session(path: Path) -> Any:
    return Session(sa.create_engine(f"sqlite:///{path}", poolclass=sa.NullPool))


@pytest.mark.parametrize("make", [plain, in_autocommit, with_a_session])
def test_the_first_enqueue_with_a_connection_creates_the_tables(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "new.db"
    hf = Holdfast(f"sqlite:///{path}")
    hf.queue("q:mail", max_depth=9)
    hf.job("mail.send", queue="q:mail")(lambda job, payload: None)
    theirs = make(path)
    statement: Any = "CREATE TABLE purchase (number INTEGER)"
    theirs.execute(sa.text(statement) if make is with_a_session else statement)

    for _ in range(2):
        hf.enqueue("mail.send", {}, org_id=ORG, conn=theirs)
    theirs.commit()
    theirs.close()

    with hf:
        assert hf.worker().run_once().outcomes == {"completed": 2}
        (rule,) = look(hf.store, "SELECT max_depth FROM holdfast.queue WHERE name = 'q:mail'")
        assert rule["max_depth"] == 9


def test_a_rolled_back_first_enqueue_leaves_no_tables(tmp_path: Path) -> None:
    hf = Holdfast(f"sqlite:///{tmp_path}/new.db")
    hf.job("mail.send")(lambda job, payload: None)
    theirs = plain(tmp_path / "new.db")
    theirs.execute("BEGIN")
    hf.enqueue("mail.send", {}, org_id=ORG, conn=theirs)
    theirs.rollback()

    assert theirs.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    theirs.close()
