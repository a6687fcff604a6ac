"""A small application with tables that handlers may write: run sheets, and their own audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast import ArtifactSettings, Enqueued, FakeClock, Holdfast
from holdfast.engine.job import State
from holdfast.store import Store
from tests.story import ORG, by_hand, look, make_holdfast

AUDIT_TABLE = "run_sheet_audit"


def with_files(url: str, folder: Path, clock: FakeClock | None = None, **settings: Any) -> Holdfast:
    """A Holdfast whose artifacts are in a folder of the test."""
    files = ArtifactSettings(store=f"file://{folder}/files")
    return make_holdfast(url, clock, artifacts=files, **settings)


def make_domain(store: Store) -> None:
    by_hand(store, "CREATE TABLE run_sheet (id integer PRIMARY KEY, title text NOT NULL)")
    by_hand(store, f"CREATE TABLE {AUDIT_TABLE} (sheet integer, said text NOT NULL)")
    by_hand(store, "INSERT INTO run_sheet VALUES (1, 'as it was')")
    if store.dialect.name == "postgres":
        by_hand(store, "GRANT SELECT, INSERT, UPDATE, DELETE ON run_sheet TO holdfast_tenant")
        by_hand(store, "GRANT SELECT ON run_sheet TO holdfast_auditor")
        by_hand(store, f"GRANT SELECT, INSERT ON {AUDIT_TABLE} TO holdfast_auditor")


def titles(store: Store) -> list[str]:
    return [row["title"] for row in look(store, "SELECT title FROM run_sheet ORDER BY id")]


def count(store: Store, table: str) -> int:
    found: int = look(store, f"SELECT count(*) AS n FROM {table}")[0]["n"]
    return found


def run_one(hf: Holdfast, job_type: str, payload: dict[str, Any], **options: Any) -> Enqueued:
    """Enqueue a job and work until nothing is due."""
    enqueued = hf.enqueue(job_type, payload, org_id=ORG, **options)
    hf.worker().run_once()
    return enqueued


def ended(hf: Holdfast, job: Enqueued) -> tuple[State, str | None]:
    found = hf.get(job.id, org_id=job.org_id)
    return found.state, found.error_class


DEAD = (State.FAILED, "RULE_VIOLATED")
DONE = (State.COMPLETED, None)
