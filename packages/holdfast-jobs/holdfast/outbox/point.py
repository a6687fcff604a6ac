"""The points of a delivery's way at which a process may die; tests make it die at each of them."""

from __future__ import annotations

from enum import StrEnum


class Point(StrEnum):
    """A point between two steps. What stands before it is done, what stands behind it is not."""

    AFTER_INTENT = "outbox.after_intent"
    AFTER_ATTEMPT = "outbox.after_attempt"
    AFTER_SEND = "outbox.after_send"
    BEFORE_MARK = "outbox.before_mark"
    AFTER_MARK = "outbox.after_mark"
    AFTER_LOOKUP = "outbox.after_lookup"
