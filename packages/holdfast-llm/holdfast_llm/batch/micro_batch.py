"""Micro-batches: calls that are alike are written down and sent together, each on its own.

A micro-batch is a group, not a prompt: every job keeps a request, a timeout, an outcome and a
transaction of its own. What a group shares is its id, its connections and its account's circuit.
Whoever comes first forms it; those who are on their way when it is formed are in it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from holdfast.engine.job import Claimed, Released
from holdfast_llm.batch.load import Loaded
from holdfast_llm.batch.rendered_request import RenderedRequest
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.reply import Failure
from holdfast_llm.provider.route import Route

# What a group may hold in memory while it is formed.
MAX_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Slot:
    """One job that is about to be called for."""

    job: Claimed
    route: Route
    account: Account
    rendered: RenderedRequest
    size: int
    reserve_pico: int | None
    loaded: Loaded = field(default_factory=dict)
    # Set when the group is written down: its place in it, or why it must not be called.
    place: int | None = None
    refused: Released | BaseException | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Members with the same key may be in one group."""
        return self.account.key, self.route.group_key


@dataclass(slots=True)
class Group:
    """Members with one key, and what they share."""

    batch_id: str = ""
    slots: list[Slot] = field(default_factory=list)
    size: int = 0
    is_closed: bool = False
    # What one of them heard of the account: the others need not hear it, too.
    stopped_by: Failure | None = None
    error: BaseException | None = None
    is_written: bool = False


class Batcher:
    """Forms groups out of the calls that the threads of one process are about to make."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._coming = 0
        self._forming: dict[tuple[str, str], Group] = {}

    @contextmanager
    def arriving(self) -> Iterator[Callable[[], None]]:
        """Say that a call is on its way. Call what is yielded when it has arrived."""
        is_here = False

        def arrive() -> None:
            nonlocal is_here
            with self._changed:
                if not is_here:
                    is_here = True
                    self._coming -= 1
                    self._changed.notify_all()

        with self._changed:
            self._coming += 1
        try:
            yield arrive
        finally:
            arrive()

    def join(
        self,
        slot: Slot,
        *,
        arrive: Callable[[], None],
        max_items: int,
        max_seconds: float,
        write: Callable[[Group], None],
    ) -> Group:
        """Be in a group that is written down when this returns; *write* is called once for each.

        A group is complete when it is full, when nobody else is on the way, or when its time is
        over.
        """
        with self._changed:
            group, leads = self._enter(slot, max_items)
            if leads:
                arrive()
                self._changed.wait_for(
                    lambda: group.is_closed or self._coming <= 0, timeout=max_seconds
                )
                self._close(slot.key, group)
            else:
                arrive()
        if leads:
            self._write(group, write)
        else:
            with self._changed:
                self._changed.wait_for(lambda: group.is_written)
        if group.error is not None:
            raise group.error
        return group

    def _enter(self, slot: Slot, max_items: int) -> tuple[Group, bool]:
        """The group that *slot* is in from now on, and whether it is the one who forms it."""
        group = self._forming.get(slot.key)
        if group is not None and group.size + slot.size > MAX_BYTES:
            self._close(slot.key, group)
            group = None
        leads = group is None
        if group is None:
            group = self._forming[slot.key] = Group()
        group.slots.append(slot)
        group.size += slot.size
        if len(group.slots) >= max_items:
            self._close(slot.key, group)
        return group, leads

    def _close(self, key: tuple[str, str], group: Group) -> None:
        group.is_closed = True
        if self._forming.get(key) is group:
            del self._forming[key]
        self._changed.notify_all()

    def _write(self, group: Group, write: Callable[[Group], None]) -> None:
        try:
            write(group)
        except BaseException as exc:
            group.error = exc
        finally:
            with self._changed:
                group.is_written = True
                self._changed.notify_all()


def places(slots: Sequence[Slot]) -> list[Slot]:
    """Give those who may be called their places, in the order in which they came."""
    called = [slot for slot in slots if slot.refused is None]
    for place, slot in enumerate(called):
        slot.place = place
    return called
