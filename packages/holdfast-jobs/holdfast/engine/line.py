"""The line in which claims wait for a hand: one of every tenant, round and round."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Line(Generic[T]):
    """A queue that takes turns between tenants: a late one is not behind what another piled up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: dict[str, deque[T]] = {}
        self._turns: deque[str] = deque()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, tenant: str, item: T) -> None:
        with self._lock:
            lane = self._lanes.get(tenant)
            if lane is None:
                lane = self._lanes[tenant] = deque()
                self._turns.append(tenant)
            lane.append(item)
            self._size += 1

    def pop(self) -> T:
        """The next item. Raises IndexError if there is none."""
        with self._lock:
            tenant = self._turns.popleft()
            lane = self._lanes[tenant]
            item = lane.popleft()
            if lane:
                self._turns.append(tenant)
            else:
                del self._lanes[tenant]
            self._size -= 1
            return item
