"""Artifacts in a folder.

Every path component is opened relative to a descriptor of its parent folder, and no symbolic link
is followed below the root. No file name comes from a user.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from holdfast.artifacts.blob_store import Source, parts_of
from holdfast.errors import ArtifactStoreDown, ChecksumMismatch, ConfigError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking: opening a named pipe would otherwise block until its other end opens.
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Errors of open() for a symbolic link, for a path through a file and for a socket.
_NOT_OURS = (errno.ELOOP, errno.ENOTDIR, errno.ENXIO)
_KEY_FILE = "link.key"


class FileBlobStore:
    """Blobs as files: two levels of folders with mode 0700, files with mode 0600."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, place: str, chunks: Iterable[bytes]) -> None:
        *folders, name = parts_of(place)
        part = f"{name}.part"
        with _told():
            folder = self._enter(folders, make=True)
        try:
            with _told():
                fd = os.open(part, _NEW, 0o600, dir_fd=folder)
            try:
                # Errors raised by the chunks are the caller's; only errors of the file system are
                # translated.
                for chunk in chunks:
                    with _told():
                        _write_all(fd, chunk)
                with _told():
                    os.fsync(fd)
            finally:
                os.close(fd)
            with _told():
                os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(folder)
        finally:
            os.close(folder)

    def read(self, place: str) -> Source | None:
        *folders, name = parts_of(place)
        try:
            with self._folder(folders) as folder:
                fd = os.open(name, _OLD, dir_fd=folder)
        except FileNotFoundError:
            return None
        except OSError as exc:
            if exc.errno in _NOT_OURS:
                raise ChecksumMismatch(reason="not_a_file") from exc
            raise ArtifactStoreDown(error=_word(exc)) from exc
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise ChecksumMismatch(reason="not_a_file")
        return os.fdopen(fd, "rb", buffering=0)

    def discard(self, place: str) -> None:
        *folders, name = parts_of(place)
        with _told(), suppress(FileNotFoundError), self._folder(folders) as folder:
            for entry in (name, f"{name}.part"):
                with suppress(FileNotFoundError):
                    os.unlink(entry, dir_fd=folder)
            os.fsync(folder)

    def link_key(self) -> str:
        """Return the key in ``link.key``. It is created on first use."""
        with _told(), self._folder([], make=True) as root:
            try:
                return self._read_key(root)
            except FileNotFoundError:
                self._make_key(root)
            return self._read_key(root)

    def _make_key(self, root: int) -> None:
        spare = f"{_KEY_FILE}.{secrets.token_hex(8)}"
        fd = os.open(spare, _NEW, 0o600, dir_fd=root)
        _write_all(fd, secrets.token_hex(32).encode())
        os.fsync(fd)
        os.close(fd)
        # link() never replaces a file: if two processes race, one wins and both read the same key.
        with suppress(FileExistsError):
            os.link(spare, _KEY_FILE, src_dir_fd=root, dst_dir_fd=root)
        os.unlink(spare, dir_fd=root)
        os.fsync(root)

    def _read_key(self, root: int) -> str:
        fd = os.open(_KEY_FILE, _OLD, dir_fd=root)
        try:
            found = os.fstat(fd)
            key = os.read(fd, 1000).decode("ascii", "replace").strip()
        finally:
            os.close(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077 or len(key) < 16:
            raise ConfigError(
                f"{self.root / _KEY_FILE} must contain 16 or more characters and be readable by"
                " its owner only. Fix the file, or delete it: a new key is created, and existing"
                " links become invalid."
            )
        return key

    def presign(self, place: str, *, media_type: str, disposition: str, lasts: timedelta) -> str:
        raise ConfigError("Folder storage has no presigned URLs. Use a download link instead.")

    @contextmanager
    def _folder(self, folders: Iterable[str], *, make: bool = False) -> Iterator[int]:
        fd = self._enter(folders, make=make)
        try:
            yield fd
        finally:
            os.close(fd)

    def _enter(self, folders: Iterable[str], *, make: bool) -> int:
        """Return a descriptor of the innermost folder. Without *make* the folder may be missing."""
        if make:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        here = os.open(self.root, _FOLDER)
        for name in folders:
            above = here
            try:
                here = _step(name, above, make=make)
            finally:
                os.close(above)
        return here


def _step(name: str, above: int, *, make: bool) -> int:
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=above)
            os.fsync(above)
    return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)


def _write_all(fd: int, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(fd, rest) :]


@contextmanager
def _told() -> Iterator[None]:
    """Translate errors of the file system."""
    try:
        yield
    except OSError as exc:
        raise ArtifactStoreDown(error=_word(exc)) from exc


def _word(exc: OSError) -> str:
    return errno.errorcode.get(exc.errno or 0, "OSERROR")
