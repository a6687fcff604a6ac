"""Artifacts are an extension; test_core_alone.py proves that the core works without the folder."""

from __future__ import annotations

from holdfast import ConfigError, Context, FakeClock, Holdfast, State
from holdfast.store.migrate import latest
from tests.story import ORG, make_holdfast


def use_artifacts(hf: Holdfast) -> tuple[str, list[str]]:
    """Run a job that stores a file; return its state and the errors that the handler caught."""
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
