"""The sealed audit is an extension; test_core_alone.py proves that the core works without it."""

from __future__ import annotations

from typing import ClassVar

import pytest
from click.testing import CliRunner

from holdfast import ConfigError, FakeClock
from holdfast.cli import cli
from holdfast.config import RunSettings
from holdfast.operate import nouns
from holdfast.operate.audit import AuditTrail
from holdfast.sealed_audit.extension import SealExtension
from holdfast.store.migrate import latest
from tests.story import ORG, OTHER_ORG, look, make_holdfast


def test_settings_that_leave_the_extension_out_create_none_of_its_tables(sqlite_url: str) -> None:
    with make_holdfast(sqlite_url, FakeClock(), extensions=()) as hf:
        hf.job("plain")(lambda job, payload: None)
        for org_id in (ORG, OTHER_ORG):
            hf.enqueue("plain", {}, org_id=org_id)
        hf.worker().run_once()
        audit = hf.operate(actor="user:root", role="admin").audit

        assert type(audit) is AuditTrail
        assert {event.org_id for event in audit.query(org_id=ORG)} == {ORG}
        assert hf.store.component_versions() == {"core": latest(hf.store.dialect)}


def test_a_worker_seals_without_being_asked(url: str, clock: FakeClock) -> None:
    with make_holdfast(url, clock) as hf:
        hf.worker(queues=["q:default"])

        assert "seal" in [chore.name for chore in hf.registry.chores]


def test_the_first_verb_that_needs_seals_creates_their_tables_on_sqlite(sqlite_url: str) -> None:
    with make_holdfast(sqlite_url, FakeClock()) as hf:
        hf.job("plain")(lambda job, payload: None)
        hf.enqueue("plain", {}, org_id=ORG)
        assert "seal" not in hf.store.component_versions()
        audit = hf.operate(actor="user:root", role="admin").audit
        assert len(audit.query(org_id=ORG)) == 1

        assert audit.seal().events == 1

        assert list(audit.verify()) == []
        assert len(audit.query(org_id=ORG)) == 1
        assert "seal" in hf.store.component_versions()


def test_events_that_are_older_than_the_extension_are_sealed_later(sqlite_url: str) -> None:
    with make_holdfast(sqlite_url, FakeClock(), extensions=()) as hf:
        hf.job("plain")(lambda job, payload: None)
        hf.enqueue("plain", {}, org_id=ORG)
    with make_holdfast(sqlite_url, FakeClock()) as hf:
        sealed = hf.operate(actor="user:root", role="admin").audit.seal()

        assert (sealed.events, sealed.is_whole) == (1, True)


def test_a_process_that_only_performs_runs_seals_before_them(url: str, clock: FakeClock) -> None:
    runs = {"sweep": RunSettings(queues=("q:default",), max_jobs_per_run=1)}
    with make_holdfast(url, clock, runs=runs) as hf:
        hf.job("plain")(lambda job, payload: None)
        hf.enqueue("plain", {}, org_id=ORG)
        # The first pass records how far it may seal, the second one seals.
        for _ in range(2):
            hf.runs.trigger("sweep", actor="user:olga", role="admin", reason="test")
            cursor = look(hf.store, "SELECT sealed_to, next_to FROM holdfast.audit_cursor")[0]

        assert cursor["next_to"] > 0


def test_a_noun_that_extends_the_core_must_be_a_subclass() -> None:
    class Careless(SealExtension):
        nouns: ClassVar[dict[str, str]] = {"audit": "holdfast.operate.jobs:Jobs"}

    with pytest.raises(ConfigError, match="must be a subclass"):
        nouns.find("audit", [Careless()])


def test_the_commands_of_the_extension_are_listed_with_those_of_the_core() -> None:
    shown = CliRunner().invoke(cli, ["audit", "--help"]).output

    assert all(f"  {name} " in shown for name in ("export", "list", "seal", "verify"))
    assert "audit seal" not in CliRunner().invoke(cli, ["--help"]).output
