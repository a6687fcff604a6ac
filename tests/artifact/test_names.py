"""Names are for display: harmful ones are refused, and no name is part of a path."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast import Artifact, ArtifactSettings, FakeClock, Holdfast, InvalidArtifact
from holdfast.artifacts.artifact import place_of, problem_of_media_type, problem_of_name
from holdfast.artifacts.blob_store import parts_of
from holdfast.engine.reference import refs_in
from holdfast.errors import RowInvalid
from tests.story import ORG, look, make_holdfast

HOSTILE = [
    "../../etc/passwd",
    "/etc/passwd",
    "..",
    ".",
    "a/b",
    "a\\b",
    "C:\\windows\\system32",
    "nul\x00l.csv",
    "line\nfeed",
    "car\rriage",
    "esc\x1b[31m",
    "\u202egnp.exe",
    "zero\u200bwidth",
    "line\u2028separator",
    "\ud800",
    "",
    " ",
    " padded",
    "padded ",
    "x" * 256,
    "x" * 4096,
    "ü" * 128,
]


@pytest.fixture
def hf(migrated_sqlite_url: str, clock: FakeClock, folder: ArtifactSettings) -> Holdfast:
    return make_holdfast(migrated_sqlite_url, clock, artifacts=folder)


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:30])
def test_a_hostile_name_is_refused_and_nothing_is_written_anywhere(
    hf: Holdfast, tmp_path: Path, name: str
) -> None:
    before = {path for path in tmp_path.rglob("*") if "work.db" not in path.name}

    with hf, pytest.raises(InvalidArtifact) as refused:
        hf.artifacts.put(b"x", org_id=ORG, name=name)

    assert set(refused.value.fields) == {"name"}
    assert {path for path in tmp_path.rglob("*") if "work.db" not in path.name} == before


@pytest.mark.parametrize("name", [7, None, b"bytes", ["list"]])
def test_a_name_that_is_no_text_is_refused(name: object) -> None:
    assert problem_of_name(name) is not None


@pytest.mark.parametrize(
    "name",
    [
        "plan.csv",
        ".hidden",
        "a b (1).pdf",
        "Übersicht.pdf",
        "計画.csv",
        '"; rm -rf',
        "%2e%2e",
        "x" * 255,
    ],
)
def test_a_decent_name_is_kept_as_it_is_and_leaves_no_trace_on_the_disk(
    hf: Holdfast, tmp_path: Path, name: str
) -> None:
    with hf:
        artifact = hf.artifacts.put(b"x", org_id=ORG, name=name)
        (row,) = look(hf.store, "SELECT name, place FROM holdfast.artifact")

    assert (artifact.name, row["name"]) == (name, name)
    assert row["place"] == place_of(artifact.id)
    (file,) = [path for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert file.name == artifact.id


@pytest.mark.parametrize(
    ("name", "plain", "encoded"),
    [
        ("plan.csv", "plan.csv", "plan.csv"),
        ("Übersicht 1.pdf", "_bersicht 1.pdf", "%C3%9Cbersicht%201.pdf"),
        ('"; filename="evil.exe', "__ filename__evil.exe", "%22%3B%20filename%3D%22evil.exe"),
        ("a\u00adb.txt", None, None),
    ],
)
def test_a_download_is_saved_and_never_shown(
    hf: Holdfast, name: str, plain: str | None, encoded: str | None
) -> None:
    if plain is None:
        assert problem_of_name(name) is not None
        return
    with hf:
        artifact = hf.artifacts.put(
            b"<svg onload=alert(1)>", org_id=ORG, name=name, media_type="image/svg+xml"
        )

    headers = artifact.headers()

    assert headers["Content-Disposition"] == (
        f"attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}"
    )
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert headers["Cache-Control"] == "private, no-store"
    assert headers["Content-Length"] == "21"
    assert headers["Content-Type"] == "image/svg+xml"
    assert re.fullmatch(r"sha-256=:[A-Za-z0-9+/]{43}=:", headers["Repr-Digest"])
    assert not any(re.search(r"[\r\n]", value) for value in headers.values())


@pytest.mark.parametrize(
    "media_type", ["text/csv", "application/vnd.ms-excel", "text/csv; charset=utf-8"]
)
def test_media_types_are_taken(media_type: str) -> None:
    assert problem_of_media_type(media_type) is None


@pytest.mark.parametrize(
    "media_type",
    [
        "",
        "csv",
        "text/",
        "/csv",
        "Text/CSV",
        "text/csv\r\nX-Evil: 1",
        "text/csv;a=b",
        "a/" + "b" * 65,
        7,
    ],
)
def test_what_is_no_media_type_is_refused(media_type: object) -> None:
    assert problem_of_media_type(media_type) is not None


@pytest.mark.parametrize(
    "place",
    ["../../etc/passwd", "/etc/passwd", "6b/17/..", "6b/17/x", "6b/17", "", "6B/17/" + ORG,
     f"6b/17/{ORG}/", f"6b/17/{ORG}\n", f"6b//{ORG}"],
)  # fmt: skip
def test_a_place_that_is_not_made_of_an_id_is_refused(place: str) -> None:
    with pytest.raises(RowInvalid):
        parts_of(place)


# -- references

OTHER = "0198c0de-0000-7000-8000-0000000000bb"


def test_references_are_found_in_order_wherever_they_are() -> None:
    value = {
        "one": f"artifact:{ORG}",
        "list": [1, None, f"artifact:{OTHER}", {"deep": (f"artifact:{ORG}",)}],
    }

    assert refs_in(value) == [f"artifact:{ORG}", f"artifact:{OTHER}"]


def test_an_artifact_counts_as_its_reference(hf: Holdfast) -> None:
    with hf:
        artifact: Artifact = hf.artifacts.put(b"x", org_id=ORG, name="x")

    assert refs_in(artifact) == refs_in([artifact]) == refs_in({"a": artifact}) == [artifact.ref]


@pytest.mark.parametrize(
    "value", [None, 7, "", "artifact:", "artifact:x", f"see artifact:{ORG}", ORG]
)
def test_what_is_no_reference_is_none(value: object) -> None:
    assert refs_in(value) == []
