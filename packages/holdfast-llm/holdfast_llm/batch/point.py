"""The points of the lane at which a process may die; tests make it die at each of them."""

from __future__ import annotations

from enum import StrEnum


class Point(StrEnum):
    """A point between two steps. What stands before it is done, what stands behind it is not."""

    # Submitting.
    CLAIMED = "claimed"
    PREPARED = "prepared"
    UPLOADED = "uploaded"
    UPLOAD_RECORDED = "upload_recorded"
    CREATING_RECORDED = "creating_recorded"
    CREATED = "created"
    CREATE_RECORDED = "create_recorded"
    # Giving back.
    BACK_RECORDED = "back_recorded"
    BACK_GROUP_RECORDED = "back_group_recorded"
    # Recovering.
    SCANNED = "scanned"
    FENCED = "fenced"
    FENCE_RECORDED = "fence_recorded"
    STEPPED_BACK = "stepped_back"
    # Collecting.
    POLLED = "polled"
    END_RECORDED = "end_recorded"
    READING = "reading"
    GROUP_RECORDED = "group_recorded"
    READ = "read"
    COLLECT_RECORDED = "collect_recorded"
    FILES_DELETED = "files_deleted"
    DELETE_RECORDED = "delete_recorded"
    # A call of its own.
    CALL_RECORDED = "call_recorded"
    CALLED = "called"
