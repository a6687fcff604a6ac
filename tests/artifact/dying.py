"""The points at which a writer is killed, and the bytes that it writes."""

from __future__ import annotations

from holdfast.artifacts.s3_store import PART_BYTES

# More than one part, so that an upload in parts is in progress when the second half arrives.
SIZE = PART_BYTES + 1

POINTS = [
    "after the row",
    "in the middle of the bytes",
    "after the bytes",
    "after the rename",
    "before the commit",
]
