"""Artifacts are an extension: the core works without them, and says how to enable them."""

from __future__ import annotations

import json
import subprocess
import sys

from holdfast import ConfigError, Context, FakeClock, Holdfast, State
from holdfast.store.migrate import latest
from tests.story import ORG, make_holdfast

WITHOUT_ARTIFACTS = """
import importlib, json, pkgutil, sys

HIDDEN = "holdfast.artifacts"

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == HIDDEN or name.startswith(HIDDEN + "."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
import holdfast

found = [one.name for one in pkgutil.walk_packages(holdfast.__path__, "holdfast.")]
modules = [name for name in found if not name.startswith((HIDDEN, "holdfast.__main__"))]
for name in modules:
    importlib.import_module(name)

hf = holdfast.Holdfast("sqlite:")
said = []

@hf.job("greet")
def greet(job, payload):
    try:
        job.artifacts
    except holdfast.ConfigError as exc:
        said.append(str(exc))
    return {"hello": payload["name"]}

job = hf.enqueue("greet", {"name": "Ada"}, org_id=sys.argv[1])
hf.worker().run_once()
ended = hf.get(job.id, org_id=sys.argv[1])
print(json.dumps({
    "modules": len(modules),
    "state": ended.state,
    "said": said,
    "components": list(hf.store.component_versions()),
}))
"""


def test_without_the_folder_every_other_module_is_imported_and_a_job_runs_to_its_end() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_ARTIFACTS, ORG], capture_output=True, text=True, check=False
    )

    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["modules"] > 200
    assert found["state"] == "completed"
    assert "no extension 'artifacts'" in found["said"][0]
    assert sorted(found["components"]) == ["core", "seal"]


def use_artifacts(hf: Holdfast) -> tuple[str, list[str]]:
    """Run a job that stores a file; return its state and what the handler was told."""
    said: list[str] = []

    @hf.job("export", max_attempts=1)
    def export(job: Context, payload: dict[str, object]) -> object:
        try:
            return job.artifacts.put(b"x", name="x.txt")
        except ConfigError as exc:
            said.append(str(exc))
            raise

    job = hf.enqueue("export", {}, org_id=ORG)
    hf.worker().run_once()
    return hf.get(job.id, org_id=ORG).state, said


def test_settings_that_leave_artifacts_out_are_named_to_the_handler(sqlite_url: str) -> None:
    with make_holdfast(sqlite_url, FakeClock(), extensions=()) as hf:
        state, said = use_artifacts(hf)

        assert state == State.FAILED
        assert said == [
            "The extension 'artifacts' is not enabled. Add it to the setting extensions."
        ]
        assert hf.store.component_versions() == {"core": latest(hf.store.dialect)}


def test_a_worker_enables_artifacts_and_their_maintenance_by_itself(sqlite_url: str) -> None:
    with make_holdfast(sqlite_url, FakeClock()) as hf:
        assert "artifacts" not in hf.extensions

        assert use_artifacts(hf) == (State.COMPLETED, [])

        assert "artifacts" in [chore.name for chore in hf.registry.chores]
        assert hf.artifacts.list(ORG)[0].name == "x.txt"


def test_an_extension_that_requires_artifacts_enables_them(sqlite_url: str) -> None:
    with make_holdfast(sqlite_url, FakeClock(), extensions=("review",)) as hf:
        assert "artifacts" in hf.extensions
        assert {"artifacts", "review"} <= hf.store.component_versions().keys()
