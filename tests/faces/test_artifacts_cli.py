"""holdfast artifacts: the commands of operators."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast import Access, Artifact, ArtifactSettings, Holdfast, Settings
from holdfast.cli import cli
from tests.faces.conftest import Run
from tests.story import ORG, OTHER_ORG, look

NOBODY = "0198c0de-0000-7000-8000-0000000000ff"
LISTED = {
    "id", "org_id", "job_id", "stage", "kind", "name", "media_type", "access", "owner", "state",
    "bytes", "sha256", "created_at", "stored_at", "expires_at", "removed_at", "place",
}  # fmt: skip


@pytest.fixture
def hf(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    store = f"file://{tmp_path}/kept"
    monkeypatch.setenv("HOLDFAST_ARTIFACTS_STORE", store)
    with Holdfast(settings=Settings(db=url, artifacts=ArtifactSettings(store=store))) as made:
        yield made


@pytest.fixture
def run(run: Run, hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line, with the same folder: its own fixture removes all variables."""
    monkeypatch.setenv("HOLDFAST_ARTIFACTS_STORE", str(hf.settings.artifacts.store))
    return run


def put(hf: Holdfast, **options: Any) -> Artifact:
    given = {"org_id": ORG, "name": "plan.csv", "owner": "user:42", **options}
    return hf.artifacts.put(b"a,b\n1,2\n", **given)


def test_list_as_json_has_the_documented_fields_newest_first(
    run: Run, hf: Holdfast, url: str
) -> None:
    older, newer = put(hf, access=Access.OWNER), put(hf, org_id=OTHER_ORG)

    everything = run("artifacts", "list", "--json", db=url).json
    mine = run("artifacts", "list", "--json", "--org", ORG, db=url).json
    page = run("artifacts", "list", "--json", "--before", newer.id, db=url).json

    assert [row["id"] for row in everything] == [newer.id, older.id]
    assert [row["id"] for row in mine] == [row["id"] for row in page] == [older.id]
    assert set(everything[0]) == LISTED
    assert mine[0]["owner"] == "user:42"


def test_list_narrows_by_job_and_state(run: Run, hf: Holdfast, url: str) -> None:
    hf.job("report.export")(lambda job, payload: None)
    job = hf.enqueue("report.export", {}, org_id=ORG)
    of_job, other = put(hf, job_id=job.id), put(hf)
    hf.artifacts.remove(other.id, org_id=ORG, actor="user:42", reason="x")

    def ids(*options: str) -> list[str]:
        return [row["id"] for row in run("artifacts", "list", "--json", *options, db=url).json]

    assert ids("--org", ORG, "--job", job.id) == [of_job.id]
    assert ids("--state", "removed") == [other.id]
    assert ids("--state", "writing") == []
    assert run("artifacts", "list", "--job", job.id, db=url).code == 2


def test_a_table_cannot_be_forged_by_a_name(run: Run, hf: Holdfast, url: str) -> None:
    put(hf, name="[31mred")

    out = run("artifacts", "list", db=url).out

    assert out.split()[:3] == ["id", "name", "kind"]
    assert len(out.splitlines()) == 2


def test_show_takes_an_id_or_a_reference(run: Run, hf: Holdfast, url: str) -> None:
    artifact = put(hf)

    by_id = run("artifacts", "show", artifact.id, "--json", db=url)
    by_ref = run("artifacts", "show", artifact.ref, db=url)

    assert by_id.json["sha256"] == artifact.sha256
    assert f"sha256       {artifact.sha256}" in by_ref.out


@pytest.mark.parametrize("command", ["show", "get", "link", "remove"])
@pytest.mark.parametrize("given", [NOBODY, "x", f"artifact:{NOBODY}"])
def test_what_is_not_there_ends_with_three(
    run: Run, hf: Holdfast, url: str, command: str, given: str
) -> None:
    more = {"get": ["--to", "x"], "link": ["--actor", "user:1"], "remove": ["--reason", "x"]}

    done = run("artifacts", command, given, *more.get(command, []), db=url)

    assert done.code == 3
    assert "not found" in done.err


def test_get_copies_the_bytes_to_a_file_that_was_not_there(
    run: Run, hf: Holdfast, url: str, tmp_path: Path
) -> None:
    artifact = put(hf)
    target = tmp_path / "copy.csv"

    first = run("artifacts", "get", artifact.id, "--to", str(target), db=url)
    second = run("artifacts", "get", artifact.id, "--to", str(target), db=url)

    assert (first.code, second.code) == (0, 1)
    assert target.read_bytes() == b"a,b\n1,2\n"
    assert "File exists" in second.err


def test_get_leaves_no_file_that_does_not_match(
    run: Run, hf: Holdfast, url: str, tmp_path: Path
) -> None:
    artifact = put(hf)
    (tmp_path / "kept" / artifact.place).write_bytes(b"a,b\n1,3\n")
    target = tmp_path / "copy.csv"

    done = run("artifacts", "get", artifact.id, "--to", str(target), db=url)

    assert done.code == 1
    assert "does not match its stored checksum" in done.err
    assert not target.exists()


def test_get_writes_to_standard_output(run: Run, hf: Holdfast, url: str) -> None:
    artifact = put(hf)

    done = CliRunner().invoke(cli, ["--db", url, "artifacts", "get", artifact.id, "--to", "-"])

    assert done.stdout_bytes == b"a,b\n1,2\n"


def test_link_prints_a_token_that_opens_the_artifact(run: Run, hf: Holdfast, url: str) -> None:
    artifact = put(hf)

    plain = run("artifacts", "link", artifact.id, "--actor", "user:7", "--hours", "2", db=url)
    as_json = run(
        "artifacts", "link", artifact.id, "--actor", "user:7", "--audience", "me", "--json", db=url
    )

    with hf.artifacts.open_link(plain.out.strip()) as file:
        assert file.read() == b"a,b\n1,2\n"
    assert set(as_json.json) == {"artifact_id", "token"}
    hf.artifacts.open_link(as_json.json["token"], audience="me").close()
    assert run("artifacts", "link", artifact.id, "--actor", "x", "--hours", "169", db=url).code == 2


def test_remove_ends_an_artifact_and_keeps_the_reason(run: Run, hf: Holdfast, url: str) -> None:
    artifact = put(hf, access=Access.OWNER)

    done = run("artifacts", "remove", artifact.id, "--reason", "a mistake", "--json", db=url)

    assert done.json == {"artifact_id": artifact.id, "state": "removed"}
    assert run("artifacts", "list", "--json", db=url).json == []
    (said,) = look(hf.store, "SELECT * FROM holdfast.job_event WHERE name = 'artifact.removed'")
    assert (said["actor_id"], "a mistake" in str(said["detail"])) == ("cli", True)


def test_sweep_says_what_it_ended(run: Run, hf: Holdfast, url: str) -> None:
    put(hf, keep=timedelta(microseconds=1000))

    first = run("artifacts", "sweep", "--json", db=url)
    second = run("artifacts", "sweep", db=url)

    assert first.json == {"swept": 0, "expired": 1, "pruned": 0}
    assert [line.split() for line in second.out.splitlines()] == [
        ["swept", "expired", "pruned"],
        ["0", "0", "0"],
    ]
