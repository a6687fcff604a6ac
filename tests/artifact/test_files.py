"""A folder that other users can write: planted links and pipes, modes, a full disk."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Artifact,
    ArtifactSettings,
    ArtifactStoreDown,
    ChecksumMismatch,
    ConfigError,
    FakeClock,
    Holdfast,
)
from holdfast.artifacts.artifact import place_of
from holdfast.artifacts.blob_store import folder_of
from holdfast.artifacts.file_store import FileBlobStore
from tests.story import ORG, make_holdfast

ID = "0198c0de-0000-7000-8000-00000000abcd"
PLACE = place_of(ID)


@pytest.fixture
def blobs(tmp_path: Path) -> FileBlobStore:
    return FileBlobStore(tmp_path / "kept")


@pytest.fixture
def hf(migrated_sqlite_url: str, clock: FakeClock, folder: ArtifactSettings) -> Holdfast:
    return make_holdfast(migrated_sqlite_url, clock, artifacts=folder)


def test_folders_and_files_are_for_their_owner_alone(blobs: FileBlobStore) -> None:
    before = os.umask(0)
    try:
        blobs.write(PLACE, [b"x"])
        blobs.link_key()
    finally:
        os.umask(before)

    modes = {
        path: stat.S_IMODE(path.stat().st_mode) for path in [blobs.root, *blobs.root.rglob("*")]
    }
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert len(modes) == 5


def test_nothing_lies_in_a_folder_that_is_not_there(blobs: FileBlobStore) -> None:
    assert blobs.read(PLACE) is None
    blobs.discard(PLACE)
    assert not blobs.root.exists()


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("kind", ["link", "broken link", "pipe", "folder"])
def test_a_symlink_in_the_place_of_a_file_is_not_read(
    blobs: FileBlobStore, tmp_path: Path, level: int, kind: str
) -> None:
    outside = tmp_path / "outside"
    inner = outside.joinpath(*PLACE.split("/")[level + 1 :])
    inner.parent.mkdir(parents=True, exist_ok=True)
    inner.write_bytes(b"a secret of somebody else") if level < 2 else outside.mkdir(exist_ok=True)
    target = outside if level < 2 else outside / "secret"
    if level == 2:
        target.write_bytes(b"a secret of somebody else")
    planted = blobs.root.joinpath(*PLACE.split("/")[: level + 1])
    planted.parent.mkdir(parents=True)
    if kind == "link":
        planted.symlink_to(target)
    elif kind == "broken link":
        planted.symlink_to(tmp_path / "nowhere")
    elif kind == "pipe":
        os.mkfifo(planted)
    else:
        planted.mkdir()
        if level < 2:
            assert blobs.read(PLACE) is None
            return

    with pytest.raises(ChecksumMismatch) as refused:
        blobs.read(PLACE)

    assert refused.value.context == {"reason": "not_a_file"}


@pytest.mark.parametrize("level", [0, 1])
def test_a_planted_link_is_not_written_through_nor_erased_through(
    blobs: FileBlobStore, tmp_path: Path, level: int
) -> None:
    outside = tmp_path / "outside"
    victim = outside.joinpath(*PLACE.split("/")[level + 1 :])
    victim.parent.mkdir(parents=True)
    victim.write_bytes(b"precious")
    planted = blobs.root.joinpath(*PLACE.split("/")[: level + 1])
    planted.parent.mkdir(parents=True)
    planted.symlink_to(outside)

    with pytest.raises(ArtifactStoreDown):
        blobs.write(PLACE, [b"x"])
    with pytest.raises(ArtifactStoreDown):
        blobs.discard(PLACE)

    assert victim.read_bytes() == b"precious"
    assert [path for path in outside.rglob("*") if path.is_file()] == [victim]


@pytest.mark.parametrize("name", [ID, f"{ID}.part"])
def test_a_link_in_the_place_of_the_file_itself_never_reaches_its_target(
    blobs: FileBlobStore, tmp_path: Path, name: str
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    planted = (blobs.root / PLACE).parent / name
    planted.parent.mkdir(parents=True)
    planted.symlink_to(victim)

    if name == ID:
        blobs.write(PLACE, [b"mine"])
        assert (blobs.root / PLACE).read_bytes() == b"mine"
    else:
        with pytest.raises(ArtifactStoreDown):
            blobs.write(PLACE, [b"mine"])
    blobs.discard(PLACE)

    assert victim.read_bytes() == b"precious"
    assert list(planted.parent.iterdir()) == []


def test_the_file_is_on_the_disk_before_its_name_is_and_the_name_before_the_word(
    blobs: FileBlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs.write(place_of(ORG), [b"the folders are there"])
    done: list[str] = []

    def watch(name: str, label: Callable[..., str]) -> None:
        real = getattr(os, name)

        def watched(*args: Any, **options: Any) -> Any:
            done.append(label(*args))
            return real(*args, **options)

        monkeypatch.setattr(os, name, watched)

    def is_folder(fd: int) -> str:
        return "flush folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "flush file"

    watch("write", lambda *_: "write")
    watch("fsync", is_folder)
    watch("rename", lambda *_: "rename")

    blobs.write(PLACE, [b"x"])

    # Two folders were made first, each flushed into the one above it.
    assert done[-4:] == ["write", "flush file", "rename", "flush folder"]
    assert set(done[:-4]) == {"flush folder"}


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_a_disk_that_is_full_is_a_store_that_is_down_and_nothing_is_left(
    hf: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    hf.artifacts.put(b"before", org_id=ORG, name="before")
    before = {path for path in (tmp_path / "kept").rglob("*") if path.is_file()}

    real = os.fsync

    def full(*args: Any, **options: Any) -> Any:
        if call == "fsync" and stat.S_ISDIR(os.fstat(args[0]).st_mode):
            return real(*args)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(f"holdfast.artifacts.file_store.os.{call}", full)
        with pytest.raises(ArtifactStoreDown) as refused:
            hf.artifacts.put(b"x", org_id=ORG, name="x")

    assert refused.value.context == {"error": "ENOSPC"}
    assert refused.value.retryable
    assert {path for path in (tmp_path / "kept").rglob("*") if path.is_file()} == before
    hf.close()


def test_a_partial_write_continues_with_the_rest(
    blobs: FileBlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:3]))

    blobs.write(PLACE, [b"ten bytes!", b"and some more"])

    assert (blobs.root / PLACE).read_bytes() == b"ten bytes!and some more"


def test_what_cannot_be_written_at_all_is_said_before_anything_is_stored(
    hf: Holdfast, tmp_path: Path
) -> None:
    (tmp_path / "kept").write_text("a file where the folder should be")

    with hf, pytest.raises(ArtifactStoreDown):
        hf.artifacts.put(b"x", org_id=ORG, name="x")


def test_two_who_write_at_once_do_not_meet(hf: Holdfast) -> None:
    barrier = threading.Barrier(4)
    made: list[Artifact] = []

    def write(letter: bytes) -> None:
        def chunks() -> Any:
            barrier.wait(10)
            yield letter * 300_000
            barrier.wait(10)
            yield letter * 300_000

        made.append(hf.artifacts.put(chunks(), org_id=ORG, name="same.csv"))

    threads = [
        threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c", b"d")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    contents = set()
    for artifact in made:
        with hf.artifacts.open(artifact.id, org_id=ORG) as file:
            contents.add(file.read())
    assert contents == {letter * 600_000 for letter in (b"a", b"b", b"c", b"d")}
    hf.close()


# -- the key for links


def test_the_key_is_made_once_however_many_ask(blobs: FileBlobStore) -> None:
    barrier = threading.Barrier(8)
    keys: list[str] = []

    def ask() -> None:
        barrier.wait(10)
        keys.append(FileBlobStore(blobs.root).link_key())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(keys) == 8
    assert len(set(keys)) == 1
    assert len(keys[0]) == 64
    assert [path.name for path in blobs.root.iterdir()] == ["link.key"]


@pytest.mark.parametrize("fault", ["readable", "short", "link"])
def test_a_key_that_others_could_know_is_not_used(
    blobs: FileBlobStore, tmp_path: Path, fault: str
) -> None:
    blobs.link_key()
    key = blobs.root / "link.key"
    if fault == "readable":
        key.chmod(0o640)
    elif fault == "short":
        key.write_text("short")
    else:
        key.rename(tmp_path / "elsewhere")
        key.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(ConfigError if fault != "link" else ArtifactStoreDown):
        blobs.link_key()


# -- the location


@pytest.mark.parametrize(
    ("store", "db", "folder"),
    [
        ("file:///var/lib/x", "sqlite:///work.db", "/var/lib/x"),
        ("file:///var/a%20b", "postgresql://h/n", "/var/a b"),
        (None, "sqlite:////data/work.db", "/data/work.db.artifacts"),
        (None, "sqlite:////data/a%20b.db", "/data/a b.db.artifacts"),
        (None, "sqlite:///work.db", "HERE/work.db.artifacts"),
        (None, "sqlite:", "HERE/holdfast-artifacts"),
        (None, "sqlite:///:memory:", "HERE/holdfast-artifacts"),
        (None, "postgresql://h/n", "HERE/holdfast-artifacts"),
    ],
)
def test_the_folder_is_where_the_settings_say_or_beside_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str | None, db: str, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)

    assert str(folder_of(store, db)) == folder.replace("HERE", str(tmp_path))
