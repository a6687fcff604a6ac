"""Micro-batches: similar direct calls are stored together and sent separately.

A micro-batch is a group, not a prompt: every job keeps its own request, timeout, outcome and
transaction. A group shares its id, its connections and its account's circuit. The first call forms
it; calls that are arriving at that moment join it.
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

# The memory limit of a group while it is formed.
MAX_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Slot:
    """One job that is about to be called."""

    job: Claimed
    route: Route
    account: Account
    rendered: RenderedRequest
    size: int
    reserve_pico: int | None
    loaded: Loaded = field(default_factory=dict)
    # Set when the group is stored: its place, or the reason why it must not be called.
    place: int | None = None
    refused: Released | BaseException | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Slots with the same key may share a group."""
        return self.account.key, self.route.group_key


@dataclass(slots=True)
class Group:
    """Slots with one key, and their shared state."""

    batch_id: str = ""
    slots: list[Slot] = field(default_factory=list)
    size: int = 0
    is_closed: bool = False
    # An account error of one call. The others are not sent.
    stopped_by: Failure | None = None
    error: BaseException | None = None
    is_written: bool = False


class Batcher:
    """Groups the calls that the threads of one process are about to make."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._coming = 0
        self._forming: dict[tuple[str, str], Group] = {}

    @contextmanager
    def arriving(self) -> Iterator[Callable[[], None]]:
        """Announce an arriving call. Call the yielded function when it has arrived."""
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
        """Join a group that is stored when this returns; *write* is called once per group.

        A group is complete when it is full, when no other call is arriving, or when its time is
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
        """The group of *slot*, and whether the slot forms it."""
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
    """Assign places to the slots that may be called, in order of arrival."""
    called = [slot for slot in slots if slot.refused is None]
    for place, slot in enumerate(called):
        slot.place = place
    return called
