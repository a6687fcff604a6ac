"""Writing artifacts: the row first, then the bytes, then the state 'stored'.

A crash in between leaves a row in state 'writing' and perhaps some bytes; cleanup.py removes both.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, BinaryIO

from holdfast.actor import Actor
from holdfast.artifacts.artifact import (
    Access,
    Artifact,
    ArtifactState,
    Kind,
    place_of,
    problem_of_media_type,
    problem_of_name,
)
from holdfast.artifacts.audit import record_artifacts
from holdfast.artifacts.blob_store import CHUNK_BYTES, BlobStore
from holdfast.clock import ms
from holdfast.errors import (
    ArtifactTooLarge,
    HoldfastError,
    InvalidArtifact,
    JobNotFound,
    WriteConflict,
)
from holdfast.store import Row, Session, Statements, Tx

SQL = Statements("holdfast.artifacts", "artifact.sql")

Content = bytes | bytearray | memoryview | os.PathLike[str] | BinaryIO | Iterable[bytes]

LONGEST_KEEP = timedelta(days=366 * 100)

_log = logging.getLogger("holdfast.artifacts")


@dataclass(frozen=True, slots=True)
class Draft:
    """The attributes of an artifact before its bytes are written."""

    id: str
    org_id: str
    job_id: str | None
    stage: str
    kind: Kind
    name: str
    media_type: str
    access: Access
    owner: Actor
    keep: timedelta

    @property
    def row(self) -> dict[str, Any]:
        return {
            "org_id": self.org_id,
            "id": self.id,
            "job_id": self.job_id,
            "stage": self.stage,
            "kind": self.kind,
            "name": self.name,
            "media_type": self.media_type,
            "access": self.access,
            "owner_type": self.owner.type,
            "owner_id": self.owner.id,
            "place": place_of(self.id),
        }

    def check(self) -> None:
        """Raise InvalidArtifact with every bad field."""
        problems = {
            "name": problem_of_name(self.name),
            "media_type": problem_of_media_type(self.media_type),
            "keep": None
            if isinstance(self.keep, timedelta) and timedelta(0) < self.keep <= LONGEST_KEEP
            else "must be a positive timedelta of at most 100 years",
        }
        bad = {field: problem for field, problem in problems.items() if problem}
        if bad:
            raise InvalidArtifact(bad)


Guard = Callable[[Tx], None]


def write_artifact(
    session: Session,
    blobs: BlobStore,
    draft: Draft,
    content: Content,
    *,
    max_bytes: int,
    first: Session | None = None,
    guard: Guard | None = None,
) -> Artifact:
    """Store the bytes of *content* with the attributes of *draft*.

    *first* inserts the row after *guard* has passed, and abandons it on failure; it commits at once
    where possible. *session* marks the row as stored and may be an open transaction.
    """
    draft.check()
    first = first or session
    with opened(content) as chunks:
        first.write(lambda tx: _begin(tx, draft, guard))
        measured = Measured(rechunk(chunks), max_bytes)
        try:
            blobs.write(place_of(draft.id), measured)
            return session.write(lambda tx: _store(tx, draft, measured))
        except BaseException:
            _give_up(first, blobs, draft)
            raise


def _begin(tx: Tx, draft: Draft, guard: Guard | None) -> None:
    if guard is not None:
        guard(tx)
    tx.affected(SQL.begin_artifact, begun=[draft.row], keep_ms=ms(draft.keep))
    # Read back instead of counted: a repeated insert finds its own row.
    if tx.maybe(SQL.find_artifact, org_id=draft.org_id, id=draft.id) is None:
        raise JobNotFound(str(draft.job_id))


def _store(tx: Tx, draft: Draft, measured: Measured) -> Artifact:
    stored = tx.affected(
        SQL.store_artifact,
        org_id=draft.org_id,
        id=draft.id,
        bytes=measured.bytes,
        sha256=measured.sha256,
    )
    row: Row | None = tx.maybe(SQL.find_artifact, org_id=draft.org_id, id=draft.id)
    if row is None or row["state"] != ArtifactState.STORED:
        raise WriteConflict("The upload timed out and was abandoned. Store the artifact again.")
    # Already stored by this call: the response to the first commit was lost, and the work ran
    # again.
    artifact = Artifact.from_row(row)
    if stored:
        about = {
            "kind": artifact.kind,
            "stage": artifact.stage,
            "bytes": artifact.bytes,
            "sha256": artifact.sha256,
        }
        record_artifacts(tx, draft.owner, "artifact.stored", [(row, about)])
    return artifact


def _give_up(session: Session, blobs: BlobStore, draft: Draft) -> None:
    """Undo an unfinished write. The sweep removes whatever cannot be undone now."""
    where = {"org_id": draft.org_id, "id": draft.id}
    try:
        marked = session.write_one(lambda tx: tx.affected(SQL.abandon_artifact, **where))
        row = session.read(lambda tx: tx.maybe(SQL.find_artifact, **where))
        # If the row says 'stored', only the response was lost: keep the bytes.
        if row is None or row["state"] == ArtifactState.STORED:
            return
        blobs.discard(place_of(draft.id))
        if marked:
            session.write_one(
                lambda tx: tx.affected(SQL.mark_erased, erased=[where], gone=1, pause_ms=0)
            )
    except HoldfastError as exc:
        _log.warning("unfinished artifact left for the cleanup: %s", type(exc).__name__)


class Measured:
    """Chunks that are hashed and counted while they are read."""

    def __init__(self, chunks: Iterable[bytes], max_bytes: int) -> None:
        self._chunks = chunks
        self._max_bytes = max_bytes
        self._hash = hashlib.sha256()
        self.bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.bytes += len(chunk)
            if self.bytes > self._max_bytes:
                raise ArtifactTooLarge({"content": f"is larger than {self._max_bytes} bytes"})
            self._hash.update(chunk)
            yield chunk

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


@contextmanager
def opened(content: Content) -> Iterator[Iterable[Any]]:
    """Yield the chunks of *content*. A file that the caller opened stays open."""
    if isinstance(content, (bytes, bytearray, memoryview)):
        yield [content]
    elif isinstance(content, os.PathLike):
        with open(content, "rb") as file:
            yield iter(lambda: file.read(CHUNK_BYTES), b"")
    elif read := getattr(content, "read", None):
        yield iter(lambda: read(CHUNK_BYTES), b"")
    elif isinstance(content, Iterable) and not isinstance(content, str):
        yield content
    else:
        raise InvalidArtifact(
            {"content": "must be bytes, a Path, a file opened in binary mode or chunks of bytes"}
        )


def rechunk(chunks: Iterable[Any]) -> Iterator[bytes]:
    """Yield the same bytes in chunks of CHUNK_BYTES or less."""
    pending = bytearray()
    for chunk in chunks:
        if not isinstance(chunk, (bytes, bytearray, memoryview)):
            raise InvalidArtifact({"content": f"yields {type(chunk).__name__} instead of bytes"})
        view = memoryview(chunk).cast("B")
        for at in range(0, len(view), CHUNK_BYTES):
            pending += view[at : at + CHUNK_BYTES]
            if len(pending) >= CHUNK_BYTES:
                yield bytes(pending)
                pending.clear()
    if pending:
        yield bytes(pending)
