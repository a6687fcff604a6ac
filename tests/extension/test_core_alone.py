"""The core without its extensions or the other distributions: it imports, and a job runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.extension.hidden import ARTIFACTS, OTHERS, SEAL, tell
from tests.story import ORG

WITHOUT_ARTIFACTS = """
import holdfast

(org_id,) = arguments
hf = holdfast.Holdfast("sqlite:")
said = []

@hf.job("greet")
def greet(job, payload):
    try:
        job.artifacts
    except holdfast.ConfigError as exc:
        said.append(str(exc))
    return {"hello": payload["name"]}

job = hf.enqueue("greet", {"name": "Ada"}, org_id=org_id)
hf.worker().run_once()
told |= {
    "state": hf.get(job.id, org_id=org_id).state,
    "said": said,
    "components": sorted(hf.store.component_versions()),
}
"""

WITHOUT_SEAL = """
import json
import holdfast
from click.testing import CliRunner
from holdfast.cli import cli

url, org_id = arguments
hf = holdfast.Holdfast(url)
hf.job("greet")(lambda job, payload: None)
job = hf.enqueue("greet", {}, org_id=org_id)
hf.worker().run_once()
admin = hf.operate(actor="user:root", role="admin")
listed = CliRunner().invoke(cli, ["--db", url, "audit", "list", "--org", org_id, "--json"])
told |= {
    "components": sorted(hf.store.component_versions()),
    "events": [event.name for event in admin.audit.query(org_id=org_id)],
    "listed": len(json.loads(listed.output)),
    "verbs": [verb for verb in ("verify", "cover", "export", "seal") if hasattr(admin.audit, verb)],
    "violated": [finding.id for finding in admin.verify().violated],
    "problems": [one.check for one in admin.doctor() if one.severity == "problem"],
    "checks": [one.check for one in admin.doctor() if one.check == "sealing"],
    "missing": CliRunner().invoke(cli, ["--db", url, "audit", "verify"]).exit_code,
}
hf.close()
"""

WITHOUT_OTHERS = """
import sqlite3
from holdfast import Holdfast, Settings
from holdfast.store import open_store
from holdfast.store.tables import read_tables

url, org_id = arguments
migrated = open_store(url, check=False)
migrated.migrate()
migrated.close()
hf = Holdfast(settings=Settings.load(db=url, env={}))
done = []
hf.job("order.ship")(lambda job, payload: done.append(payload))
job = hf.enqueue("order.ship", {"n": 1}, org_id=org_id)
hf.worker(queues=["q:default"]).run_once()
admin = hf.operate(actor="user:root", role="admin")
found = sqlite3.connect(url.removeprefix("sqlite:///")).execute(
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'holdfast_%'")
tables = {name.removeprefix("holdfast_") for (name,) in found}
own = ("store", "artifacts", "sealed_audit", "webhooks", "workflows")
core = read_tables([f"holdfast.{name}" for name in own])
told |= {
    "state": hf.get(job.id, org_id=org_id).state,
    "done": done,
    "explained": admin.explain(job.id).reason,
    "violated": [finding.id for finding in admin.verify().violated],
    "problems": [one.check for one in admin.doctor() if one.severity == "problem"],
    "unknown tables": sorted(tables - core.tenant.keys() - core.cell.keys()),
    "foreign tables": sorted(
        core.tenant.keys() & {"batch_item", "provider_call", "review", "rewrite_request"}
    ),
}
hf.close()
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("alone")
    return tell(
        folder,
        ("artifacts", (SEAL, *OTHERS), WITHOUT_ARTIFACTS, (ORG,)),
        ("seal", (ARTIFACTS, *OTHERS), WITHOUT_SEAL, (f"sqlite:///{folder}/seal.db", ORG)),
        ("others", (ARTIFACTS, SEAL), WITHOUT_OTHERS, (f"sqlite:///{folder}/core.db", ORG)),
    )


def test_every_other_module_imports_without_the_extensions_and_distributions(
    told: dict[str, Any],
) -> None:
    assert told["imported"] > 200
    assert told["loaded"] == []


def test_without_artifacts_a_job_runs_to_its_end_and_reads_how_to_enable_them(
    told: dict[str, Any],
) -> None:
    found = told["artifacts"]

    assert found["modules"] > 200
    assert found["loaded"] == []
    assert found["state"] == "completed"
    assert "no extension 'artifacts'" in found["said"][0]
    assert found["components"] == ["core", "seal", "webhooks", "workflows"]


def test_without_the_sealed_audit_jobs_run_and_their_audit_is_listed(told: dict[str, Any]) -> None:
    found = dict(told["seal"])

    assert found.pop("modules") > 200
    assert found == {
        "loaded": [],
        "components": ["artifacts", "core", "webhooks", "workflows"],
        "events": ["job.succeeded", "job.started", "job.enqueued"],
        "listed": 3,
        "verbs": [],
        "violated": [],
        "problems": [],
        "checks": [],
        "missing": 2,
    }


def test_the_core_works_alone_with_its_own_tables(told: dict[str, Any]) -> None:
    found = dict(told["others"])

    assert found.pop("modules") > 200
    assert found == {
        "loaded": [],
        "state": "completed",
        "done": [{"n": 1}],
        "explained": "completed",
        "violated": [],
        "problems": [],
        "unknown tables": [],
        "foreign tables": [],
    }
