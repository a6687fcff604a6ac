"""Both blob stores with the same tests: every test that uses `shop` runs on each."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Artifact, ArtifactSettings, FakeClock, Holdfast
from holdfast.artifacts import s3_store as s3_module
from holdfast.artifacts.file_store import FileBlobStore
from holdfast.artifacts.s3_store import S3BlobStore
from tests.artifact.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server
from tests.story import make_holdfast

# Making a client loads descriptions of services, which takes 0.1 s in every test.
_shared_client = functools.cache(s3_module._client)

LINK_KEY = "a key for the links of tests"


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """The server. If it is missing, the tests fail; they are not skipped."""
    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ArtifactSettings:
    """Settings for the server, under a prefix of the test's own."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    return ArtifactSettings(
        store=f"s3://{BUCKET}/{tmp_path.name}", endpoint=s3_server.endpoint, link_key=LINK_KEY
    )


@pytest.fixture
def folder(tmp_path: Path) -> ArtifactSettings:
    """Settings for a folder of the test's own."""
    return ArtifactSettings(store=f"file://{tmp_path}/kept")


# Rows and bytes are independent: two databases and two stores are covered by three pairs, not four.
@pytest.fixture(params=["sqlite-folder", "postgres-folder", "sqlite-s3"])
def pair(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, ArtifactSettings]:
    """A database, and a blob store."""
    monkeypatch.setattr(s3_module, "_client", _shared_client)
    database, _, kept = request.param.partition("-")
    url = {"sqlite": "migrated_sqlite_url", "postgres": "postgres_url"}[database]
    return request.getfixturevalue(url), request.getfixturevalue(kept)


@pytest.fixture
def shop(pair: tuple[str, ArtifactSettings], clock: FakeClock) -> Iterator[Holdfast]:
    """An application on each pair."""
    url, kept = pair
    made = make_holdfast(url, clock, artifacts=kept)
    # Some tests replace the store before the first artifact.
    made.extensions.get("artifacts")
    yield made
    made.close()


class Bytes:
    """The stored bytes, read without our code."""

    def __init__(self, hf: Holdfast) -> None:
        self.blobs = hf.artifacts.blobs

    def all(self) -> list[str]:
        """Every key with stored bytes, complete or partial."""
        if isinstance(self.blobs, FileBlobStore):
            root = self.blobs.root
            files = (path for path in root.rglob("*") if not path.is_dir())
            return sorted(str(path.relative_to(root)) for path in files if path.name != "link.key")
        assert isinstance(self.blobs, S3BlobStore)
        client, prefix = self.blobs._client, f"{self.blobs.prefix}/"
        found = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        try:
            begun = client.list_multipart_uploads(Bucket=BUCKET, Prefix=prefix).get("Uploads", [])
        except client.exceptions.NoSuchUpload:
            begun = []
        keys = [item["Key"].removeprefix(prefix) for item in found]
        return sorted([*keys, *(item["Key"].removeprefix(prefix) + ".part" for item in begun)])

    def overwrite(self, artifact: Artifact, data: bytes) -> None:
        if isinstance(self.blobs, FileBlobStore):
            (self.blobs.root / artifact.place).write_bytes(data)
        else:
            assert isinstance(self.blobs, S3BlobStore)
            key = self.blobs._key(artifact.place)
            self.blobs._client.put_object(Bucket=BUCKET, Key=key, Body=data)

    def lose(self, artifact: Artifact) -> None:
        self.blobs.discard(artifact.place)


@pytest.fixture
def lying(shop: Holdfast) -> Bytes:
    return Bytes(shop)
