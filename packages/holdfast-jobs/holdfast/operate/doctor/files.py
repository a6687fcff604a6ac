"""Checks of a SQLite file: its file system, and the size of its log and free space."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.operate.doctor.finding import SQL, CheckContext, Finding, Severity

OK = Severity.OK

# Linux lists the mounted file systems here.
MOUNTS = Path("/proc/self/mountinfo")
# A write takes milliseconds, and a handler's transaction should not take much longer.
WRITER_SECONDS = 2.0

# Shared file systems. Locks and shared memory work on one machine only.
SHARED = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "gpfs", "lustre"),
        *("nfs", "nfs4", "ocfs2", "smb3", "smbfs", "virtiofs"),
        *("fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    }
)
_OCTAL = re.compile(r"\\([0-7]{3})")


def check_file(context: CheckContext) -> Iterator[Finding]:
    """Check that the file is on a local disk, and that it does not grow without need."""
    for row in context.many(SQL.find_file):
        if not row["file"]:
            continue
        path = Path(row["file"])
        yield _place(path)
        yield _log(path.with_name(path.name + "-wal"), context)
        yield _writer(context)
        free, pages = row["free_pages"], row["pages"]
        free_bytes = free * row["page_size"]
        if free_bytes < context.limits.free_bytes or free * 2 < pages:
            yield Finding("bloat", OK, f"{free} of {pages} pages of the file are free.")
        else:
            yield Finding(
                "bloat",
                Severity.NOTICE,
                f"{free_bytes // 2**20} MiB of the file are free pages, more than half of it.",
                "Free pages are reused. VACUUM returns them to the disk; stop the workers first.",
                {"free_bytes": free_bytes},
            )


def _place(path: Path) -> Finding:
    kind = file_system_of(path, _mounts())
    if kind not in SHARED:
        return Finding("file", OK, f"The database file is on {kind or 'an unknown file system'}.")
    return Finding(
        "file",
        Severity.PROBLEM,
        f"The database file is on {kind}, which other machines share: its locks are not reliable.",
        "Move it to a disk of this machine, or use PostgreSQL.",
        {"file_system": kind},
    )


def _writer(context: CheckContext) -> Finding:
    stuck = context.store.find_stuck_writer(WRITER_SECONDS)
    if stuck is None:
        return Finding("writer", OK, "The write lock is free or was taken recently.")
    return Finding(
        "writer",
        Severity.WARNING,
        stuck,
        "Resume or kill that process; fuser on the lock files beside the database shows it. Keep"
        " job.transaction() short.",
    )


def _log(path: Path, context: CheckContext) -> Finding:
    size = path.stat().st_size if path.exists() else 0
    if size <= context.limits.wal_bytes:
        return Finding("log", OK, f"The write-ahead log has {size // 2**20} MiB.")
    return Finding(
        "log",
        Severity.WARNING,
        f"The write-ahead log has {size // 2**20} MiB: an open reader prevents checkpoints.",
        "Close that reader; the next write checkpoints the log.",
        {"bytes": size},
    )


def _mounts() -> str:
    return MOUNTS.read_text(errors="replace") if MOUNTS.exists() else ""


def file_system_of(path: Path, mounts: str) -> str | None:
    """Return the file system type of *path*, by its longest mount point."""
    found: tuple[int, str | None] = (-1, None)
    for line in mounts.splitlines():
        before, dash, after = line.partition(" - ")
        fields = before.split()
        if not dash or len(fields) < 5 or not after.split():
            continue
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
        # Of two mounts on one mount point the later one is active.
        if path.is_relative_to(point) and len(point) >= found[0]:
            found = len(point), after.split()[0]
    return found[1]
