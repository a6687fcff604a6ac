"""The guarantees of artifacts on every database and every blob store."""

from __future__ import annotations

import collections
import hashlib
import io
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Artifact,
    ArtifactNotFound,
    ArtifactSettings,
    ArtifactState,
    ArtifactStoreDown,
    ArtifactTooLarge,
    ChecksumMismatch,
    FakeClock,
    Holdfast,
    InvalidArtifact,
    JobNotFound,
)
from holdfast.artifacts import cleanup
from holdfast.artifacts.blob_store import CHUNK_BYTES
from holdfast.artifacts.s3_store import PART_BYTES
from tests.artifact.conftest import Bytes
from tests.story import ORG, look, make_holdfast

MIB = 1024 * 1024


def put(hf: Holdfast, content: Any = b"a,b\n1,2\n", **options: Any) -> Artifact:
    return hf.artifacts.put(content, **{"org_id": ORG, "name": "plan.csv", **options})


def read(hf: Holdfast, artifact: Artifact) -> bytes:
    with hf.artifacts.open(artifact.ref, org_id=ORG) as file:
        return file.read()


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.req("Q-10")
@pytest.mark.parametrize(
    "size", [0, 1, CHUNK_BYTES, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES + 5]
)
def test_stored_content_is_returned_with_its_length_and_checksum(shop: Holdfast, size: int) -> None:
    data = noise(size)

    artifact = put(shop, data)

    assert (artifact.bytes, artifact.sha256) == (size, hashlib.sha256(data).hexdigest())
    assert artifact.state is ArtifactState.STORED
    assert read(shop, artifact) == data
    assert shop.artifacts.get(artifact.id, org_id=ORG) == artifact


@pytest.mark.parametrize("kind", ["bytes", "bytearray", "memoryview", "path", "file", "lines"])
def test_anything_that_gives_bytes_can_be_put(shop: Holdfast, tmp_path: Path, kind: str) -> None:
    data = b"".join(b"%d\n" % number for number in range(100_000))
    path = tmp_path / "given"
    path.write_bytes(data)
    given: dict[str, Callable[[], Any]] = {
        "bytes": lambda: data,
        "bytearray": lambda: bytearray(data),
        "memoryview": lambda: memoryview(data),
        "path": lambda: path,
        "file": lambda: io.BytesIO(data),
        "lines": lambda: iter(data.splitlines(keepends=True)),
    }

    assert read(shop, put(shop, given[kind]())) == data


@pytest.mark.parametrize("content", ["text", 7, None, ["text"], [7], "a text file"])
def test_what_gives_no_bytes_is_refused_and_leaves_nothing(
    shop: Holdfast, lying: Bytes, content: Any
) -> None:
    if content == "a text file":
        content = io.StringIO("")

    with pytest.raises(InvalidArtifact) as refused:
        put(shop, content)

    assert set(refused.value.fields) == {"content"}
    assert lying.all() == []
    assert shop.artifacts.list(ORG) == []


@pytest.mark.parametrize("after", [0, 100, PART_BYTES + 1])
def test_a_source_that_fails_on_the_way_leaves_nothing(
    shop: Holdfast, lying: Bytes, after: int
) -> None:
    def breaking() -> Iterator[bytes]:
        yield noise(after)
        raise ConnectionError("the sender went away")

    with pytest.raises(ConnectionError):
        put(shop, breaking())

    (row,) = look(shop.store, "SELECT state, sha256, erase_at FROM holdfast.artifact")
    assert (row["state"], row["sha256"], row["erase_at"]) == ("removed", None, None)
    assert lying.all() == []


@pytest.mark.parametrize("much", [1001, 3 * PART_BYTES])
def test_more_than_may_be_stored_is_refused_before_it_is_read_to_its_end(
    pair: tuple[str, ArtifactSettings], clock: FakeClock, much: int
) -> None:
    url, kept = pair
    limited = ArtifactSettings(store=kept.store, endpoint=kept.endpoint, max_bytes=much - 1)
    hf = make_holdfast(url, clock, artifacts=limited)
    given = []

    def endless() -> Iterator[bytes]:
        for _ in range(1000):
            given.append(much)
            yield noise(much)

    with hf, pytest.raises(ArtifactTooLarge, match=f"larger than {much - 1} bytes"):
        put(hf, endless())

    assert sum(given) <= much + CHUNK_BYTES
    assert Bytes(hf).all() == []


def test_all_that_is_wrong_with_a_request_is_said_at_once(shop: Holdfast) -> None:
    with pytest.raises(InvalidArtifact) as refused:
        put(shop, name="", media_type="html", keep=timedelta(0))

    assert set(refused.value.fields) == {"name", "media_type", "keep"}
    with pytest.raises(InvalidArtifact, match="owner"):
        put(shop, owner="user:")
    assert look(shop.store, "SELECT * FROM holdfast.artifact") == []


def test_a_length_that_is_a_bare_number_is_refused(shop: Holdfast) -> None:
    with pytest.raises(InvalidArtifact, match="keep: must be a positive timedelta"):
        put(shop, keep=5)


def test_removing_an_artifact_requires_a_reason(shop: Holdfast) -> None:
    artifact = put(shop)

    with pytest.raises(InvalidArtifact, match="reason: is required"):
        shop.artifacts.remove(artifact.id, org_id=ORG, actor="user:1", reason=" ")

    assert [kept.id for kept in shop.artifacts.list(ORG)] == [artifact.id]


@pytest.mark.parametrize("field", ["org_id", "job_id", "access"])
def test_an_id_or_an_access_that_is_none_is_refused(shop: Holdfast, field: str) -> None:
    with pytest.raises(InvalidArtifact):
        put(shop, **{field: "none"})


def test_an_artifact_for_a_job_that_is_not_there_is_refused(shop: Holdfast, lying: Bytes) -> None:
    with pytest.raises(JobNotFound):
        put(shop, job_id=ORG)

    assert lying.all() == []


# -- bytes that differ from the stored ones


@pytest.mark.req("Q-10")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:-1] + b"X", "differs"),
        (lambda data: b"X" + data[1:], "differs"),
        (lambda data: data[:-1], "short"),
        (lambda data: b"", "short"),
        (lambda data: data + b"X", "long"),
    ],
    ids=["last", "first", "shorter", "empty", "longer"],
)
def test_changed_bytes_are_never_given_to_the_end(
    shop: Holdfast, lying: Bytes, change: Callable[[bytes], bytes], reason: str
) -> None:
    data = noise(MIB)
    artifact = put(shop, data)
    lying.overwrite(artifact, change(data))

    with shop.artifacts.open(artifact.id, org_id=ORG) as file:
        with pytest.raises(ChecksumMismatch) as refused:
            collections.deque(iter(lambda: file.read(100_000), b""), maxlen=0)
        with pytest.raises(ChecksumMismatch):
            file.read()

    assert refused.value.error_class == "CHECKSUM_MISMATCH"
    assert refused.value.context == {"artifact_id": artifact.id, "reason": reason}
    assert not refused.value.retryable


def test_reading_exactly_all_bytes_verifies_the_checksum(shop: Holdfast, lying: Bytes) -> None:
    artifact = put(shop, b"four")
    lying.overwrite(artifact, b"five")

    with shop.artifacts.open(artifact.id, org_id=ORG) as file, pytest.raises(ChecksumMismatch):
        file.read(4)


def test_an_empty_artifact_that_is_not_empty_is_refused(shop: Holdfast, lying: Bytes) -> None:
    artifact = put(shop, b"")
    lying.overwrite(artifact, b"X")

    with pytest.raises(ChecksumMismatch):
        shop.artifacts.open(artifact.id, org_id=ORG)


def test_lost_bytes_are_a_mismatch_and_not_a_missing_artifact(shop: Holdfast, lying: Bytes) -> None:
    artifact = put(shop)
    lying.lose(artifact)

    with pytest.raises(ChecksumMismatch) as refused:
        shop.artifacts.open(artifact.id, org_id=ORG)

    assert refused.value.context["reason"] == "missing"


def test_an_artifact_that_ends_while_it_is_being_opened_is_not_found(
    shop: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact, blobs = put(shop), shop.artifacts.blobs
    real = blobs.read

    def too_late(place: str) -> Any:
        monkeypatch.undo()
        shop.artifacts.remove(artifact.id, org_id=ORG, actor="user:1", reason="just now")
        return real(place)

    monkeypatch.setattr(blobs, "read", too_late)

    with pytest.raises(ArtifactNotFound):
        shop.artifacts.open(artifact.id, org_id=ORG)


# -- expiry and deletion


def test_an_artifact_is_not_found_from_the_moment_it_expires(
    shop: Holdfast, clock: FakeClock, lying: Bytes
) -> None:
    artifact = put(shop, keep=timedelta(hours=2))
    clock.advance(hours=2, seconds=-1)
    still = read(shop, artifact)
    clock.advance(seconds=1)

    with pytest.raises(ArtifactNotFound):
        shop.artifacts.open(artifact.id, org_id=ORG)

    assert still == b"a,b\n1,2\n"
    assert shop.artifacts.list(ORG) == []
    assert lying.all() == [artifact.place]


def test_a_pass_removes_what_expired_with_its_bytes_and_says_so_in_the_audit(
    shop: Holdfast, clock: FakeClock, lying: Bytes
) -> None:
    ends = put(shop, keep=timedelta(hours=1))
    stays = put(shop, keep=timedelta(hours=3))
    clock.advance(hours=2)

    first, second = shop.artifacts.upkeep(), shop.artifacts.upkeep()

    assert (first["expired"], second["expired"]) == (1, 0)
    assert lying.all() == [stays.place]
    assert shop.artifacts.get(ends.id, org_id=ORG).state is ArtifactState.REMOVED
    said = look(
        shop.store,
        "SELECT name, actor_id, job_type FROM holdfast.job_event WHERE job_id = :id ORDER BY id",
        id=ends.id,
    )
    assert [tuple(row.values()) for row in said] == [
        ("artifact.stored", "holdfast", "artifact"),
        ("artifact.removed", "upkeep", "artifact"),
    ]


def test_a_pass_is_bounded_and_the_next_one_continues(
    shop: Holdfast, clock: FakeClock, lying: Bytes
) -> None:
    for _ in range(5):
        put(shop, keep=timedelta(hours=1))
    clock.advance(hours=2)

    ended = [shop.artifacts.upkeep(limit=2)["expired"] for _ in range(4)]

    assert ended == [2, 2, 1, 0]
    assert lying.all() == []


def test_a_removed_artifact_is_gone_at_once(shop: Holdfast, lying: Bytes) -> None:
    artifact = put(shop, owner="user:1")

    shop.artifacts.remove(artifact.id, org_id=ORG, actor="user:1", reason="sent by mistake")

    assert lying.all() == []
    with pytest.raises(ArtifactNotFound):
        shop.artifacts.open(artifact.id, org_id=ORG)
    with pytest.raises(ArtifactNotFound):
        shop.artifacts.remove(artifact.id, org_id=ORG, actor="user:1", reason="again")
    (said,) = look(shop.store, "SELECT * FROM holdfast.job_event WHERE name = 'artifact.removed'")
    assert (said["actor_type"], said["actor_id"]) == ("user", "1")
    assert "sent by mistake" in str(said["detail"])


class Away:
    """A blob store that is unavailable for a while."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.is_away = True

    def discard(self, place: str) -> None:
        if self.is_away:
            raise ArtifactStoreDown(error="away")
        self.inner.discard(place)


def test_bytes_that_cannot_be_reached_are_erased_when_they_can(
    shop: Holdfast, clock: FakeClock, lying: Bytes
) -> None:
    first, second = put(shop, keep=timedelta(hours=1)), put(shop, keep=timedelta(hours=1))
    clock.advance(hours=2)
    blobs = Away(shop.artifacts.blobs)

    cleanup.expire_artifacts(shop.store, lambda: blobs, limit=10)
    marked = {shop.artifacts.get(each.id, org_id=ORG).state for each in (first, second)}
    left = len(lying.all())
    blobs.is_away = False
    # The failed one waits; it must not delay the other.
    soon = cleanup.erase_artifacts(shop.store, lambda: blobs, limit=10)
    clock.advance(cleanup.PAUSE)
    later = cleanup.erase_artifacts(shop.store, lambda: blobs, limit=10)

    assert marked == {ArtifactState.REMOVED}
    assert (left, soon, later) == (2, 1, 1)
    assert lying.all() == []


def test_the_row_stays_until_its_bytes_are_gone_and_ninety_days_longer(
    shop: Holdfast, clock: FakeClock
) -> None:
    put(shop, keep=timedelta(hours=1))
    clock.advance(hours=2)
    cleanup.expire_artifacts(shop.store, lambda: Away(None), limit=10)
    clock.advance(days=91)
    with_bytes = cleanup.prune_artifacts(shop.store, limit=10)
    shop.artifacts.upkeep()

    assert with_bytes == 0
    assert look(shop.store, "SELECT * FROM holdfast.artifact") == []


# -- memory

MEASURE = """
import os, resource, sys
from datetime import timedelta
from holdfast import Holdfast, Settings
from holdfast import ArtifactSettings

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

def stream(mib):
    for _ in range(mib):
        yield bytes(1024 * 1024)

db, store, endpoint, mib = sys.argv[1:]
settings = Settings(db=db, artifacts=ArtifactSettings(store=store, endpoint=endpoint or None))
with Holdfast(settings=settings) as hf:
    org_id = "0198c0de-0000-7000-8000-00000000000a"
    def there_and_back(mib):
        made = hf.artifacts.put(stream(mib), org_id=org_id, name="big")
        read = 0
        with hf.artifacts.open(made.id, org_id=org_id) as file:
            while chunk := file.read(1024 * 1024):
                read += len(chunk)
        assert read == made.bytes == mib * 1024 * 1024
    there_and_back(17)
    before = peak()
    there_and_back(int(mib))
    print(peak() - before)
"""


@pytest.mark.parametrize("store", ["folder", "s3"])
def test_sixty_four_mebibytes_pass_through_in_constant_memory(
    migrated_sqlite_url: str, request: pytest.FixtureRequest, store: str
) -> None:
    """The memory of 64 MiB beyond that of 17 MiB, measured in a separate process."""
    kept: ArtifactSettings = request.getfixturevalue(store)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            MEASURE,
            migrated_sqlite_url,
            kept.store or "",
            kept.endpoint or "",
            "64",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )

    assert int(done.stdout) <= 4


def test_python_itself_holds_a_few_chunks_and_no_more(
    migrated_sqlite_url: str, clock: FakeClock, folder: ArtifactSettings
) -> None:
    with make_holdfast(migrated_sqlite_url, clock, artifacts=folder) as hf:
        put(hf, b"first")
        tracemalloc.start()
        try:
            artifact = put(hf, (bytes(64 * 1024) for _ in range(1024)))
            with hf.artifacts.open(artifact.id, org_id=ORG) as file:
                while file.read(CHUNK_BYTES):
                    pass
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert artifact.bytes == 64 * MIB
    assert peak < 2 * MIB
