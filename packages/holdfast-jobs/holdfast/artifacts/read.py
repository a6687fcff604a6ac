"""Reading artifacts: the checksum is verified during the read."""

from __future__ import annotations

import hashlib
import io
from typing import Any

from holdfast.artifacts.artifact import Artifact
from holdfast.artifacts.blob_store import CHUNK_BYTES, Source
from holdfast.errors import ChecksumMismatch


class ArtifactReader(io.BufferedReader):
    """A readable file that returns its last bytes only if the checksum of all bytes matches.

    Raises ChecksumMismatch at the end, or as soon as bytes are missing or surplus. Bytes read
    before the end are not yet verified.
    """

    def __init__(self, artifact: Artifact, source: Source) -> None:
        self.artifact = artifact
        super().__init__(_Compared(artifact, source), CHUNK_BYTES)


class _Compared(io.RawIOBase):
    def __init__(self, artifact: Artifact, source: Source) -> None:
        assert artifact.bytes is not None
        self._artifact = artifact
        self._source = source
        self._left = artifact.bytes
        self._hash = hashlib.sha256()
        self._fault = ""
        if not self._left:
            self._compare()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._fault:
            # A read after a fault must not look like a normal end of file.
            self._refuse(self._fault)
        if not self._left:
            return 0
        data = self._source.read(min(len(buffer), self._left))
        if not data:
            self._refuse("short")
        self._hash.update(data)
        self._left -= len(data)
        if not self._left:
            self._compare()
        buffer[: len(data)] = data
        return len(data)

    def _compare(self) -> None:
        if self._source.read(1):
            self._refuse("long")
        if self._hash.hexdigest() != self._artifact.sha256:
            self._refuse("differs")

    def _refuse(self, fault: str) -> None:
        self._fault = fault
        raise ChecksumMismatch(
            f"The content of artifact {self._artifact.id} does not match its stored checksum.",
            artifact_id=self._artifact.id,
            reason=fault,
        )

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()
