"""What every pass of the lane needs, in one place."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.config import Settings
from holdfast.engine.handler import Registry
from holdfast.event import Events
from holdfast.ids import IdSource
from holdfast.store import Store
from holdfast_llm.batch.point import Point
from holdfast_llm.provider.account import Accounts


def go_on(point: Point) -> None:
    """Nothing happens at a point unless a test wants it to."""


@dataclass(frozen=True, slots=True)
class BatchLane:
    """An application's batch lane: its store, its job types, and its accounts at providers."""

    store: Store
    settings: Settings
    registry: Registry
    ids: IdSource
    events: Events
    accounts: Accounts
    rng: random.Random = field(default_factory=random.Random)
    reached: Callable[[Point], None] = go_on
