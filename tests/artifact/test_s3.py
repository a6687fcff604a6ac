"""Faults that only an S3-compatible store can have."""

from __future__ import annotations

import hashlib
import io
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from urllib3 import HTTPResponse

from holdfast import (
    Artifact,
    ArtifactSettings,
    ArtifactStoreDown,
    AuthDenied,
    ConfigError,
    FakeClock,
    Holdfast,
)
from holdfast.artifacts.artifact import place_of
from holdfast.artifacts.blob_store import open_blob_store
from holdfast.artifacts.s3_store import PART_BYTES, S3BlobStore
from tests.artifact.s3_server import BUCKET, SECRET_KEY
from tests.story import ORG, make_holdfast

PLACE = place_of(ORG)


@pytest.fixture
def hf(migrated_sqlite_url: str, clock: FakeClock, s3: ArtifactSettings) -> Iterator[Holdfast]:
    with make_holdfast(migrated_sqlite_url, clock, artifacts=s3) as made:
        yield made


@pytest.fixture
def blobs(s3: ArtifactSettings) -> S3BlobStore:
    found = open_blob_store(s3, "sqlite:")
    assert isinstance(found, S3BlobStore)
    return found


def put(hf: Holdfast, content: Any = b"a,b\n") -> Artifact:
    return hf.artifacts.put(content, org_id=ORG, name="plan.csv")


def test_the_key_of_an_object_is_the_prefix_and_the_id(hf: Holdfast, s3: ArtifactSettings) -> None:
    artifact = put(hf)
    client = hf.artifacts.blobs._client  # type: ignore[attr-defined]

    listed = client.list_objects_v2(Bucket=BUCKET, Prefix=str(s3.store).rpartition("/")[2])

    assert [item["Key"].partition("/")[2] for item in listed["Contents"]] == [artifact.place]


@pytest.mark.parametrize(("store", "key"), [("s3://b-1", PLACE), ("s3://b-1/a/b/", f"a/b/{PLACE}")])
def test_a_prefix_may_be_empty_or_deep(s3: ArtifactSettings, store: str, key: str) -> None:
    found = open_blob_store(ArtifactSettings(store=store, endpoint=s3.endpoint), "sqlite:")

    assert isinstance(found, S3BlobStore)
    assert found._key(PLACE) == key


def calls_of(blobs: S3BlobStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []
    real = blobs._client._make_api_call

    def watched(name: str, params: dict[str, Any]) -> Any:
        done.append(name)
        return real(name, params)

    monkeypatch.setattr(blobs._client, "_make_api_call", watched)
    return done


@pytest.mark.parametrize(
    ("size", "calls"),
    [
        (0, ["PutObject"]),
        (PART_BYTES - 1, ["PutObject"]),
        (
            2 * PART_BYTES + 1,
            ["CreateMultipartUpload", *["UploadPart"] * 3, "CompleteMultipartUpload"],
        ),
    ],
)
def test_little_is_one_request_and_much_is_an_upload_in_parts(
    blobs: S3BlobStore, monkeypatch: pytest.MonkeyPatch, size: int, calls: list[str]
) -> None:
    done = calls_of(blobs, monkeypatch)

    blobs.write(PLACE, (bytes(100_000) for _ in range(size // 100_000)))
    blobs.write(PLACE, [bytes(size)])

    assert done[-len(calls) :] == calls


def test_every_body_is_signed_with_its_checksum_also_where_tls_would_seem_enough(
    s3: ArtifactSettings,
) -> None:
    settings = ArtifactSettings(store=s3.store, endpoint="https://127.0.0.1:1")
    blobs = open_blob_store(settings, "sqlite:")
    assert isinstance(blobs, S3BlobStore)
    sent: list[Any] = []

    def answer(request: Any, **_: Any) -> AWSResponse:
        sent.append(request.headers["X-Amz-Content-SHA256"])
        return AWSResponse(request.url, 200, {}, HTTPResponse(io.BytesIO(), preload_content=False))

    blobs._client.meta.events.register("before-send.s3", answer)

    blobs.write(PLACE, [b"x"])

    assert [item.decode() if isinstance(item, bytes) else item for item in sent] == [
        hashlib.sha256(b"x").hexdigest()
    ]


def test_wrong_credentials_are_denied_and_say_nothing_of_them(
    s3: ArtifactSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong" + SECRET_KEY)
    blobs = open_blob_store(s3, "sqlite:")

    with pytest.raises(AuthDenied) as refused:
        blobs.write(PLACE, [b"x"])

    assert refused.value.context == {"code": "SignatureDoesNotMatch"}
    assert SECRET_KEY not in str(refused.value)


def test_missing_credentials_and_a_missing_bucket_are_a_matter_of_settings(
    s3: ArtifactSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = open_blob_store(
        ArtifactSettings(store="s3://nowhere", endpoint=s3.endpoint), "sqlite:"
    )
    with pytest.raises(ConfigError, match="bucket"):
        elsewhere.write(PLACE, [b"x"])

    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(ConfigError, match="AWS_ACCESS_KEY_ID"):
        open_blob_store(s3, "sqlite:").write(PLACE, [b"x"])


@pytest.fixture
def deaf() -> Iterator[str]:
    """An address without a listener."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def test_a_store_that_is_away_may_be_tried_again(
    s3: ArtifactSettings, deaf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda seconds: None)
    blobs = open_blob_store(ArtifactSettings(store=s3.store, endpoint=deaf), "sqlite:")

    for call in (
        lambda: blobs.write(PLACE, [b"x"]),
        lambda: blobs.read(PLACE),
        lambda: blobs.discard(PLACE),
    ):
        with pytest.raises(ArtifactStoreDown) as refused:
            call()
        assert refused.value.retryable
        assert refused.value.context == {"error": "EndpointConnectionError"}


class Cutting:
    """A server that announces a thousand bytes, sends ten and closes the connection."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + bytes(10))

    def close(self) -> None:
        self._listener.close()
        self._thread.join(5)


@pytest.fixture
def cutting() -> Iterator[Cutting]:
    made = Cutting()
    yield made
    made.close()


def test_a_connection_that_breaks_is_no_damage_to_the_bytes(
    hf: Holdfast, s3: ArtifactSettings, cutting: Cutting, migrated_sqlite_url: str, clock: FakeClock
) -> None:
    artifact = put(hf, bytes(1000))
    through = ArtifactSettings(store=s3.store, endpoint=cutting.endpoint)
    with (
        make_holdfast(migrated_sqlite_url, clock, artifacts=through) as other,
        other.artifacts.open(artifact.id, org_id=ORG) as file,
        pytest.raises(ArtifactStoreDown),
    ):
        file.read()


def test_without_the_extra_the_error_says_what_to_install(
    s3: ArtifactSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "holdfast.artifacts.s3_store", None)

    with pytest.raises(ConfigError, match=r"pip install 'holdfast-jobs\[s3\]'"):
        open_blob_store(s3, "sqlite:")


@pytest.mark.parametrize(
    "endpoint", ["s3.example.com", "https://user:secret@s3.example.com", "ftp://x", "https://a/b"]
)
def test_an_endpoint_is_an_address_without_credentials_or_path(endpoint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ArtifactSettings(store="s3://bucket", endpoint=endpoint)

    assert "secret" not in str(refused.value)
