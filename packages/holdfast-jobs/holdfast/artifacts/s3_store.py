"""Artifacts in an S3-compatible store. Credentials and region come from the standard AWS sources:
the environment, a profile or the machine's role."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.session import Session

from holdfast.artifacts.blob_store import Source, parts_of
from holdfast.errors import ArtifactStoreDown, AuthDenied, ConfigError

# A part is held in memory while it is sent. S3 allows 10,000 parts: 78 GiB.
PART_BYTES = 8 * 1024 * 1024

_DENIED = frozenset(
    {
        "AccessDenied",
        "AuthorizationHeaderMalformed",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
    }
)


class S3BlobStore:
    """Blobs as objects of one bucket."""

    def __init__(self, bucket: str, prefix: str, *, endpoint: str | None = None) -> None:
        self.bucket = bucket
        self.prefix = prefix
        self._client = _client(endpoint)

    def write(self, place: str, chunks: Iterable[bytes]) -> None:
        key = self._key(place)
        parts = _parts(chunks)
        first = next(parts, b"")
        if len(first) < PART_BYTES:
            with _told():
                self._client.put_object(Bucket=self.bucket, Key=key, Body=first)
            return
        with _told():
            begun = self._client.create_multipart_upload(Bucket=self.bucket, Key=key)
        upload = {"Bucket": self.bucket, "Key": key, "UploadId": begun["UploadId"]}
        sent = [self._send(upload, 1, first)]
        del first
        for number, part in enumerate(parts, 2):
            sent.append(self._send(upload, number, part))
        with _told():
            # Nothing is visible under the key before this request.
            self._client.complete_multipart_upload(**upload, MultipartUpload={"Parts": sent})

    def _send(self, upload: dict[str, Any], number: int, part: bytes) -> dict[str, Any]:
        with _told():
            done = self._client.upload_part(**upload, PartNumber=number, Body=part)
        return {"PartNumber": number, "ETag": done["ETag"]}

    def read(self, place: str) -> Source | None:
        with _told():
            try:
                found = self._client.get_object(Bucket=self.bucket, Key=self._key(place))
            except self._client.exceptions.NoSuchKey:
                return None
        return _Body(found["Body"])

    def discard(self, place: str) -> None:
        key = self._key(place)
        with _told():
            self._client.delete_object(Bucket=self.bucket, Key=key)
            # Some stores return this error for a bucket without multipart uploads. Another pass may
            # also have aborted this upload.
            with suppress(self._client.exceptions.NoSuchUpload):
                begun = self._client.list_multipart_uploads(Bucket=self.bucket, Prefix=key)
                for upload in begun.get("Uploads", []):
                    self._client.abort_multipart_upload(
                        Bucket=self.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                    )

    def link_key(self) -> str:
        raise ConfigError(
            "Links to artifacts in S3 need a key that all your processes share: "
            "set artifacts.link_key, or HOLDFAST_ARTIFACTS_LINK_KEY."
        )

    def presign(self, place: str, *, media_type: str, disposition: str, lasts: timedelta) -> str:
        with _told():
            address: str = self._client.generate_presigned_url(
                "get_object",
                Params={
                    "Bucket": self.bucket,
                    "Key": self._key(place),
                    "ResponseContentType": media_type,
                    "ResponseContentDisposition": disposition,
                },
                ExpiresIn=int(lasts.total_seconds()),
            )
        return address

    def _key(self, place: str) -> str:
        key = "/".join(parts_of(place))
        return f"{self.prefix}/{key}" if self.prefix else key


class _Body:
    """The body of an object. A broken connection is not reported as a damaged object."""

    def __init__(self, body: Any) -> None:
        self._body = body

    def read(self, size: int, /) -> bytes:
        with _told():
            data: bytes = self._body.read(size)
        return data

    def close(self) -> None:
        self._body.close()


def _client(endpoint: str | None) -> Any:
    session = Session()
    config = Config(
        connect_timeout=5,
        read_timeout=60,
        retries={"mode": "standard", "total_max_attempts": 3},
        signature_version="s3v4",
        # Some stores reject the newer checksum headers. Without them the signature of each request
        # covers the SHA-256 of its body, which every such store checks.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if endpoint else "auto"},
    )
    with _told():
        region = session.get_config_variable("region") or "us-east-1"
        return session.create_client("s3", region, endpoint_url=endpoint, config=config)


def _parts(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Split the bytes into parts of equal size; the last may be shorter."""
    pending = bytearray()
    for chunk in chunks:
        pending += chunk
        while len(pending) >= PART_BYTES:
            part = bytes(memoryview(pending)[:PART_BYTES])
            del pending[:PART_BYTES]
            yield part
    if pending:
        yield bytes(pending)


@contextmanager
def _told() -> Iterator[None]:
    """Translate errors of the store and the client. Their own messages may quote a key."""
    try:
        yield
    except ClientError as exc:
        code = str(exc.response.get("Error", {}).get("Code", ""))
        if code in _DENIED:
            raise AuthDenied("The artifact store rejected the credentials.", code=code) from exc
        if code == "NoSuchBucket":
            raise ConfigError("The bucket of artifacts.store does not exist.") from exc
        raise ArtifactStoreDown(error=code) from exc
    except (NoCredentialsError, PartialCredentialsError) as exc:
        raise ConfigError(
            "No credentials for artifacts in S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,"
            " or name a profile in AWS_PROFILE."
        ) from exc
    except BotoCoreError as exc:
        raise ArtifactStoreDown(error=type(exc).__name__) from exc
