"""The sealed audit is an extension: the core works without it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
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

WITHOUT_SEAL = """
import importlib, json, pkgutil, sys

HIDDEN = "holdfast.sealed_audit"

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == HIDDEN or name.startswith(HIDDEN + "."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
import holdfast
from click.testing import CliRunner
from holdfast.cli import cli

found = [one.name for one in pkgutil.walk_packages(holdfast.__path__, "holdfast.")]
modules = [name for name in found if not name.startswith((HIDDEN, "holdfast.__main__"))]
for name in modules:
    importlib.import_module(name)

url, org_id = sys.argv[1:]
hf = holdfast.Holdfast(url)
hf.job("greet")(lambda job, payload: None)
job = hf.enqueue("greet", {}, org_id=org_id)
hf.worker().run_once()
admin = hf.operate(actor="user:root", role="admin")
listed = CliRunner().invoke(cli, ["--db", url, "audit", "list", "--org", org_id, "--json"])
print(json.dumps({
    "modules": len(modules),
    "components": sorted(hf.store.component_versions()),
    "events": [event.name for event in admin.audit.query(org_id=org_id)],
    "listed": len(json.loads(listed.output)),
    "verbs": [verb for verb in ("verify", "cover", "export", "seal") if hasattr(admin.audit, verb)],
    "violated": [finding.id for finding in admin.verify().violated],
    "problems": [one.check for one in admin.doctor() if one.severity == "problem"],
    "checks": [one.check for one in admin.doctor() if one.check == "sealing"],
    "missing": CliRunner().invoke(cli, ["--db", url, "audit", "verify"]).exit_code,
}))
hf.close()
"""


def test_without_the_folder_jobs_run_and_their_audit_is_listed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/core.db"
    command = [sys.executable, "-c", WITHOUT_SEAL, url, ORG]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found.pop("modules") > 200
    assert found == {
        "components": ["artifacts", "core"],
        "events": ["job.succeeded", "job.started", "job.enqueued"],
        "listed": 3,
        "verbs": [],
        "violated": [],
        "problems": [],
        "checks": [],
        "missing": 2,
    }


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
        # The first pass notes how far it may seal, the second one seals.
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
