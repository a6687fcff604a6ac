"""Categories and notes on the command line."""

from __future__ import annotations

import sys

import pytest

from holdfast.engine.category import SQL
from holdfast.store import open_store
from tests.faces.conftest import Run
from tests.story import ORG

APP = "tests.faces.category_rules_app:hf"


@pytest.fixture(autouse=True)
def _imported_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tests.faces.category_rules_app", raising=False)


def stored(url: str) -> set[str]:
    store = open_store(url)
    try:
        return {row["name"] for row in store.read(lambda tx: tx.many(SQL.list_categories))}
    finally:
        store.close()


def test_migrating_with_an_application_writes_its_categories(run: Run, url: str) -> None:
    assert run("migrate", db=url).code == 0
    assert "letter" not in stored(url)

    assert run("migrate", db=url, app=APP).code == 0
    assert "letter" in stored(url)


def test_an_application_that_is_not_there_stops_the_migration(run: Run, url: str) -> None:
    ran = run("migrate", db=url, app="no.such:hf")

    assert ran.code == 1
    assert "no module named" in ran.err


def test_notes_are_shown_with_the_events_they_are_about(run: Run, url: str) -> None:
    job_id = run("enqueue", "enrich", "{}", "--org", ORG, "--json", db=url, app=APP).json["job_id"]
    assert run("worker", "--until-idle", db=url, app=APP).code == 0

    shown = run("jobs", "show", job_id, db=url)
    (note,) = run("jobs", "show", job_id, "--json", db=url).json["notes"]

    assert set(note) == {"event_id", "event_name", "job_id", "name", "note", "created_at"}
    assert (note["event_name"], note["note"]) == ("job.enqueued", {"who": "Ada\x1b[31m"})
    assert "note reader on job.enqueued" in shown.out
    assert "\x1b" not in shown.out
