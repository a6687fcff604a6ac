"""Where bytes lie. A place is a key made of an artifact's id; no name is ever part of it."""

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
    """Bytes to be read."""

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class BlobStore(Protocol):
    """A store of bytes. What cannot be done for now is ArtifactStoreDown."""

    def write(self, place: str, chunks: Iterable[bytes]) -> None:
        """Store all the chunks, or nothing that :meth:`read` would find."""
        ...

    def read(self, place: str) -> Source | None:
        """The bytes; None if nothing lies there."""
        ...

    def discard(self, place: str) -> None:
        """Take away what lies there, finished or not. Nothing there is as good."""
        ...

    def link_key(self) -> str:
        """A key of this store's own for download links, if it can keep one."""
        ...

    def presign(self, place: str, *, media_type: str, disposition: str, lasts: timedelta) -> str:
        """An address from which anybody may download for a while, without asking us."""
        ...


def parts_of(place: str) -> tuple[str, str, str]:
    """The two folders and the name of a place. A row with any other place is not ours."""
    found = _PLACE.fullmatch(place)
    if found is None:
        raise RowInvalid("The place of an artifact is not made of its id.", column="place")
    first, second, name = found.groups()
    return first, second, name


def open_blob_store(settings: ArtifactSettings, db: str) -> BlobStore:
    """The blob store that the settings name; without any, a folder beside the database."""
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
    """The folder for artifacts: as set, or beside the SQLite file, or here."""
    if store is not None:
        return Path(unquote(urlsplit(store).path))
    file = unquote(db.removeprefix("sqlite:///")) if db.startswith("sqlite:///") else ":memory:"
    return Path("holdfast-artifacts" if file == ":memory:" else f"{file}.artifacts").absolute()
