"""Failure injection for tests: a process that crashes between two steps.

Running applications do not use this module. A test wraps the store, the channels and the external
calls of extensions, and gets a callback before or after a transaction or a call:

    with inject(hf, {"sent": FailPoint.after_call("send")}, crash):
        worker.run_once()
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from holdfast.app import Holdfast
from holdfast.channel.channel import Channel
from holdfast.store import Statement, Store, Tx


class Seam(StrEnum):
    """The kinds of places where a test can intervene."""

    TRANSACTION = "transaction"
    CALL = "call"


@dataclass(frozen=True, slots=True)
class FailPoint:
    """A point before or after one step of an application.

    A transaction is identified by a statement that it runs, a call by the method of the provider
    adapter or channel. *Before* a transaction, nothing of it is stored and no lock is held; *after*
    it, it is committed.
    """

    seam: Seam
    name: str
    is_after: bool

    @classmethod
    def before_transaction(cls, statement: str) -> FailPoint:
        return cls(Seam.TRANSACTION, statement, is_after=False)

    @classmethod
    def after_commit(cls, statement: str) -> FailPoint:
        return cls(Seam.TRANSACTION, statement, is_after=True)

    @classmethod
    def before_call(cls, method: str) -> FailPoint:
        return cls(Seam.CALL, method, is_after=False)

    @classmethod
    def after_call(cls, method: str) -> FailPoint:
        return cls(Seam.CALL, method, is_after=True)


_before, _commit = FailPoint.before_transaction, FailPoint.after_commit
_call = FailPoint.after_call

OUTBOX_POINTS: Mapping[str, FailPoint] = {
    "outbox.after_intent": _commit("insert_deliveries"),
    "outbox.after_attempt": _commit("insert_attempts"),
    "outbox.after_send": _call("send"),
    "outbox.before_mark": _before("mark_deliveries"),
    "outbox.after_mark": _commit("mark_deliveries"),
    "outbox.after_lookup": _call("lookup"),
    # The name that applications use in their own tests.
    "send": _call("send"),
}
# An SMTP channel sends with send_committing; for a test it is the same step.
_SAME_CALL = {"send_committing": "send"}

Hit = Callable[[str], None]
"""Called with the name of the point reached. An exception that it raises ends the application."""


class Kit(Protocol):
    """The part of an extension in ``holdfast_app``: its methods, and points to crash at."""

    @property
    def points(self) -> Mapping[str, FailPoint]:
        """The points that ``crash_after`` accepts, by name."""

    def watched(self, watch: FailPointSet) -> AbstractContextManager[None]:
        """Wrap external calls, so that they reach the points of *watch*."""


@contextmanager
def inject(hf: Holdfast, points: Mapping[str, FailPoint], hit: Hit) -> Iterator[None]:
    """Call *hit* at each of *points* that *hf* reaches in this block."""
    watch = fail_points_of(points, hit)
    with ExitStack() as stack:
        stack.enter_context(watched_store(hf.store, watch))
        stack.enter_context(_watched_channels(hf, watch))
        for kit in kits_of(hf):
            stack.enter_context(kit.watched(watch))
        yield


def kits_of(hf: Holdfast) -> list[Kit]:
    """The test kits of an application's extensions."""
    found = (extension.testing(hf) for extension in hf.extensions.available())
    return [kit for kit in found if kit is not None]


def fail_points_of(points: Mapping[str, FailPoint], hit: Hit) -> FailPointSet:
    """Call *hit* at these points."""
    names: dict[FailPoint, list[str]] = {}
    for name, point in points.items():
        names.setdefault(point, []).append(name)
    return FailPointSet(names, hit)


class FailPointSet(threading.local):
    """The points of a test. Calls made by a hit itself, in its own thread, reach none of them."""

    def __init__(self, names: Mapping[FailPoint, Sequence[str]], hit: Hit) -> None:
        self.names = names
        self.hit = hit
        self.is_busy = False

    def knows(self, point: FailPoint) -> bool:
        return point in self.names and not self.is_busy

    def has_call(self, name: str) -> bool:
        """Whether a call of this name is a point."""
        return any(point.seam is Seam.CALL and point.name == name for point in self.names)

    def trigger(self, point: FailPoint) -> None:
        if not self.knows(point):
            return
        self.is_busy = True
        try:
            for name in self.names[point]:
                self.hit(name)
        finally:
            self.is_busy = False


# -- the store


class _Interrupted(Exception):
    """Rolls a transaction back before its final run."""


@contextmanager
def watched_store(store: Store, watch: FailPointSet) -> Iterator[None]:
    names = ("write", "write_one", "write_soon")
    before = {name: store.__dict__.get(name) for name in names}
    for name in names:
        setattr(store, name, _watched_write(getattr(store, name), watch))
    try:
        yield
    finally:
        for name, write in before.items():
            delattr(store, name)
            if write is not None:
                setattr(store, name, write)


def _watched_write(write: Callable[..., Any], watch: FailPointSet) -> Callable[..., Any]:
    def watched(work: Callable[[Tx], Any], **options: Any) -> Any:
        if isinstance(work, _Work):
            return write(work, **options)
        passed: set[str] = set()
        while True:
            observed = _Work(work, watch, passed)
            try:
                result = write(observed, **options)
            except _Interrupted as interrupted:
                statement = str(interrupted)
                passed.add(statement)
                watch.trigger(FailPoint.before_transaction(statement))
                continue
            for statement in dict.fromkeys(observed.ran):
                watch.trigger(FailPoint.after_commit(statement))
            return result

    return watched


class _Work:
    """A unit of work that records its statements."""

    def __init__(self, work: Callable[[Tx], Any], watch: FailPointSet, passed: set[str]) -> None:
        self.work = work
        self.watch = watch
        self.passed = passed
        self.ran: list[str] = []

    def __call__(self, tx: Tx) -> Any:
        self.ran.clear()
        ready = tx._ready

        def note(statement: Statement, params: dict[str, Any]) -> Any:
            name = statement.name
            if name not in self.passed and self.watch.knows(FailPoint.before_transaction(name)):
                raise _Interrupted(name)
            self.ran.append(name)
            return ready(statement, params)

        tx._ready = note  # type: ignore[method-assign]
        try:
            return self.work(tx)
        finally:
            tx._ready = ready  # type: ignore[method-assign]


# -- external calls


class Watched:
    """An object whose calls are watched."""

    def __init__(self, inner: Any, watch: FailPointSet) -> None:
        self._inner = inner
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        call = _SAME_CALL.get(name, name)
        if not self._watch.has_call(call) or not callable(found):
            return found

        def watched(*args: Any, **options: Any) -> Any:
            self._watch.trigger(FailPoint.before_call(call))
            result = found(*args, **options)
            if isinstance(result, AbstractContextManager):
                return self._reading(result, call)
            self._watch.trigger(FailPoint.after_call(call))
            return result

        return watched

    @contextmanager
    def _reading(self, opened: AbstractContextManager[Any], call: str) -> Iterator[Any]:
        with opened as found:
            yield found
        self._watch.trigger(FailPoint.after_call(call))


class WatchedChannels:
    """Channels whose sends and lookups are watched."""

    def __init__(self, inner: Any, watch: FailPointSet) -> None:
        self._inner = inner
        self._watch = watch

    def get(self, name: str) -> Channel | None:
        found = self._inner.get(name)
        if found is None:
            return None
        channel: Any = Watched(found, self._watch)
        watched: Channel = channel
        return watched

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@contextmanager
def _watched_channels(hf: Holdfast, watch: FailPointSet) -> Iterator[None]:
    outbox = hf.outbox
    before = (outbox._channels, outbox._made_for)
    outbox.channels = WatchedChannels(outbox.channels, watch)
    try:
        yield
    finally:
        outbox._channels, outbox._made_for = before
