"""Where a writer may die, and what it writes."""

from __future__ import annotations

from holdfast.artifacts.s3_store import PART_BYTES

# More than one part, so that an upload in parts is under way when the second half comes.
SIZE = PART_BYTES + 1

POINTS = [
    "after the row",
    "in the middle of the bytes",
    "after the bytes",
    "after the rename",
    "before the commit",
]
