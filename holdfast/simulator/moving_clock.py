"""The machine's clock, which can be moved ahead and stopped."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

from holdfast.clock import SystemClock


class MovingClock(SystemClock):
    """Goes by itself, unless it is frozen, and by :meth:`advance`; never back."""

    def __init__(self) -> None:
        self._ahead = timedelta()
        self._frozen_at: datetime | None = None
        self._lock = threading.Lock()

    def now(self) -> datetime:
        with self._lock:
            return (self._frozen_at or super().now()) + self._ahead

    @property
    def is_frozen(self) -> bool:
        return self._frozen_at is not None

    def advance(self, delta: timedelta | None = None, /, **lengths: float) -> None:
        """Move ahead by a timedelta or by its keywords, as in ``advance(hours=24)``."""
        step = delta if delta is not None else timedelta(**lengths)
        if step < timedelta(0):
            raise ValueError("a clock does not go back")
        with self._lock:
            self._ahead += step

    def freeze(self) -> None:
        """Stand still until :meth:`thaw`; it can be moved all the same."""
        with self._lock:
            self._frozen_at = self._frozen_at or super().now()

    def thaw(self) -> None:
        """Go on from where it stands."""
        with self._lock:
            if self._frozen_at is not None:
                self._ahead -= super().now() - self._frozen_at
                self._frozen_at = None
