"""Byte buffers: in memory while small, in an unnamed temporary file when large."""

from __future__ import annotations

import hashlib
import tempfile
import threading
import weakref
from array import array
from collections.abc import Iterator

PIECE = 64 * 1024
IN_MEMORY = 1024 * 1024


class Blob:
    """A byte buffer that supports appends and random reads from several threads."""

    def __init__(self, data: bytes = b"") -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115
        self._lock = threading.Lock()
        weakref.finalize(self, self._file.close)
        self.size = 0
        self._place = 0
        if data:
            self.write(data)

    def write(self, data: bytes) -> None:
        with self._lock:
            self._go(self.size)
            self._file.write(data)
            self.size += len(data)
            self._place = self.size

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        with self._lock:
            self._go(start)
            data = self._file.read(self.size - start if size is None else size)
            self._place = start + len(data)
            return data

    def _go(self, place: int) -> None:
        # seek() drops the buffer even if the position does not change: 0.05 ms a line.
        if place != self._place:
            self._file.seek(place)

    def pieces(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from *start* up to *stop*, 64 KiB at a time."""
        end = self.size if stop is None else min(stop, self.size)
        while start < end:
            piece = self.read(start, min(PIECE, end - start))
            if not piece:
                return
            yield piece
            start += len(piece)

    def line_starts(self) -> array[int]:
        """Return the offset of each line and the end of the data. Only 0x0A ends a line."""
        starts = array("Q", [0]) if self.size else array("Q")
        at = 0
        for piece in self.pieces():
            found = piece.find(b"\n")
            while found >= 0:
                starts.append(at + found + 1)
                found = piece.find(b"\n", found + 1)
            at += len(piece)
        if self.size and starts[-1] != self.size:
            starts.append(self.size)
        return starts

    @property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        for piece in self.pieces():
            digest.update(piece)
        return digest.hexdigest()
