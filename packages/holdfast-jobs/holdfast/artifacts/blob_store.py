"""Interface of blob stores. A place is a key derived from an artifact's id, never from a name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from holdfast.artifacts.settings import ArtifactSettings
from holdfast.errors import ConfigError, RowInvalid

CHUNK_BYTES = 256 * 1024

_PLACE = re.compile(r"([0-9a-f]{2})/([0-9a-f]{2})/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


class Source(Protocol):
    """A readable stream of bytes."""

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class BlobStore(Protocol):
    """A store of bytes. Temporary failures raise ArtifactStoreDown."""

    def write(self, place: str, chunks: Iterable[bytes]) -> None:
        """Store all the chunks, or nothing that :meth:`read` would find."""
        ...

    def read(self, place: str) -> Source | None:
        """Return the bytes, or None if the place is empty."""
        ...

    def discard(self, place: str) -> None:
        """Delete the bytes at *place*, finished or not. Does nothing if the place is empty."""
        ...

    def link_key(self) -> str:
        """Return a key for signing download links, if this store can keep one."""
        ...

    def presign(self, place: str, *, media_type: str, disposition: str, lasts: timedelta) -> str:
        """Return a URL that anyone can download from until it expires, without Holdfast."""
        ...


def parts_of(place: str) -> tuple[str, str, str]:
    """Split a place into its two folders and its name. Any other form is refused."""
    found = _PLACE.fullmatch(place)
    if found is None:
        raise RowInvalid("The storage path of the artifact does not match its id.", column="place")
    first, second, name = found.groups()
    return first, second, name


def open_blob_store(settings: ArtifactSettings, db: str) -> BlobStore:
    """Open the blob store of the settings; the default is a folder beside the database."""
    if settings.store is not None and settings.store.startswith("s3:"):
        try:
            from holdfast.artifacts.s3_store import S3BlobStore
        except ModuleNotFoundError as exc:
            raise ConfigError(
                "Artifacts in S3 need the extra: pip install 'holdfast-jobs[s3]'."
            ) from exc
        bucket, _, prefix = settings.store.removeprefix("s3://").partition("/")
        return S3BlobStore(bucket, prefix.strip("/"), endpoint=settings.endpoint)

    from holdfast.artifacts.file_store import FileBlobStore

    return FileBlobStore(folder_of(settings.store, db))


def folder_of(store: str | None, db: str) -> Path:
    """Return the folder of *store*; by default beside the SQLite file or in the working folder."""
    if store is not None:
        return Path(unquote(urlsplit(store).path))
    file = unquote(db.removeprefix("sqlite:///")) if db.startswith("sqlite:///") else ":memory:"
    return Path("holdfast-artifacts" if file == ":memory:" else f"{file}.artifacts").absolute()
