"""Exports and imports: inputs are stored with checksums, the output is an artifact."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, FakeClock, Holdfast
from holdfast.engine.job import State
from holdfast.errors import ArtifactNotFound
from tests.engine.domain import DONE, ended, run_one, with_files
from tests.story import ORG, OTHER_ORG, look

ran: list[str] = []


@pytest.fixture
def hf(url: str, clock: FakeClock, tmp_path: Path) -> Iterator[Holdfast]:
    with with_files(url, tmp_path, clock) as made:
        yield made


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


def declare(hf: Holdfast, category: str = "export") -> None:
    @hf.job("sheet.export", category=category)
    def export(job: Context, payload: dict[str, Any]) -> dict[str, Any]:
        ran.append(job.id)
        content = b"id,title\n"
        for ref in payload.get("sources", []):
            with job.artifacts.open(ref) as reader:
                content += reader.read()
        return {"sources": payload.get("sources", []), "file": put(job, content)}

    def put(job: Context, content: bytes) -> str:
        return job.artifacts.put(content, name="sheet.csv", media_type="text/csv").ref


@pytest.mark.req("Q-09", "Q-19")
@pytest.mark.parametrize("category", ["export", "import"])
def test_exports_and_imports_share_a_queue_and_a_duty(hf: Holdfast, category: str) -> None:
    declare(hf, category)
    source = hf.artifacts.put(b"1,opening\n", org_id=ORG, name="rows.csv")

    done = run_one(hf, "sheet.export", {"sources": [source.ref]})

    assert ended(hf, done) == DONE
    found = hf.get(done.id, org_id=ORG)
    assert (found.origin_queue, found.record["category"]) == ("q:exports", category)
    with hf.artifacts.open(found.result["file"], org_id=ORG) as reader:
        assert reader.read() == b"id,title\n1,opening\n"


@pytest.mark.req("Q-11")
def test_the_output_is_an_artifact_that_another_tenant_cannot_open(hf: Holdfast) -> None:
    declare(hf)
    done = run_one(hf, "sheet.export", {})
    ref = hf.get(done.id, org_id=ORG).result["file"]

    assert hf.artifacts.get(ref, org_id=ORG).job_id == done.id
    with pytest.raises(ArtifactNotFound):
        hf.artifacts.open(ref, org_id=OTHER_ORG)


@pytest.mark.req("Q-11")
@pytest.mark.parametrize("result", [None, {"rows": 3}, {"file": "/tmp/sheet.csv"}])
def test_an_export_without_an_artifact_is_dead(hf: Holdfast, result: Any) -> None:
    hf.job("sheet.export", category="export")(lambda job, payload: result)

    assert ended(hf, run_one(hf, "sheet.export", {})) == (State.FAILED, "RESULT_INVALID")


@pytest.mark.req("Q-11")
def test_what_it_was_given_is_not_what_it_made(hf: Holdfast) -> None:
    source = hf.artifacts.put(b"1,opening\n", org_id=ORG, name="rows.csv")
    hf.job("sheet.export", category="export")(lambda job, payload: payload)

    done = run_one(hf, "sheet.export", {"file": source.ref})

    assert ended(hf, done) == (State.FAILED, "RESULT_INVALID")


@pytest.mark.req("Q-10")
def test_every_input_has_a_checksum_before_the_handler_runs(hf: Holdfast) -> None:
    declare(hf, "import")
    source = hf.artifacts.put(b"1,opening\n", org_id=ORG, name="rows.csv")
    done = run_one(hf, "sheet.export", {"sources": [source.ref]})

    (stored,) = look(hf.store, "SELECT sha256 FROM holdfast.artifact WHERE kind = 'input'")
    assert len(stored["sha256"]) == 64
    # Inputs other than files are in the payload, which has its own checksum.
    assert len(hf.get(done.id, org_id=ORG).record["payload_hash"]) == 32


@pytest.mark.req("Q-10")
def test_a_missing_input_is_gone_before_foreign_code_runs(hf: Holdfast, clock: FakeClock) -> None:
    declare(hf, "import")
    theirs = hf.artifacts.put(b"x", org_id=OTHER_ORG, name="rows.csv")
    passing = hf.artifacts.put(b"x", org_id=ORG, name="rows.csv", keep=timedelta(hours=1))
    removed = hf.artifacts.put(b"x", org_id=ORG, name="rows.csv")
    hf.artifacts.remove(removed.id, org_id=ORG, actor="user:1", reason="wrong file")
    there = hf.artifacts.put(b"x", org_id=ORG, name="rows.csv")
    clock.advance(timedelta(hours=2))

    for ref in (theirs.ref, passing.ref, removed.ref, "artifact:" + ORG):
        done = run_one(hf, "sheet.export", {"sources": [there.ref, {"deep": [ref]}]})
        assert ended(hf, done) == (State.FAILED, "GONE"), ref
    assert ran == []


@pytest.mark.req("Q-10")
def test_an_input_that_was_altered_is_found_when_it_is_read(hf: Holdfast, tmp_path: Path) -> None:
    declare(hf, "import")
    source = hf.artifacts.put(b"1,opening\n", org_id=ORG, name="rows.csv")
    (file,) = (tmp_path / "files").rglob(source.id)
    file.write_bytes(b"1,forgery\n")

    done = run_one(hf, "sheet.export", {"sources": [source.ref]})

    assert ran == [done.id]
    assert ended(hf, done) == (State.FAILED, "CHECKSUM_MISMATCH")


@pytest.mark.req("Q-09")
def test_an_asynchronous_import_has_the_same_duty(hf: Holdfast) -> None:
    @hf.job("sheet.import", category="import")
    async def load(job: Context, payload: dict[str, Any]) -> None:
        ran.append(job.id)

    gone = hf.enqueue("sheet.import", {"source": "artifact:" + ORG}, org_id=ORG)
    silent = hf.enqueue("sheet.import", {}, org_id=ORG)
    hf.worker().run(until_idle=True)

    assert ended(hf, gone) == (State.FAILED, "GONE")
    assert ended(hf, silent) == (State.FAILED, "RESULT_INVALID")
    assert ran == [silent.id]


def test_another_category_may_speak_of_artifacts_as_it_likes(hf: Holdfast) -> None:
    hf.job("order.ship")(lambda job, payload: None)

    assert ended(hf, run_one(hf, "order.ship", {"about": "artifact:" + ORG})) == DONE
