"""Failure injection for tests: a process that crashes between two steps.

Nothing here is part of a running application. A test wraps the store, the provider accounts and the
channels of an application, and gets a call before or after a transaction or an outside call:

    with inject(hf, {"created": FailPoint.after_call("create")}, crash):
        hf.run("rewrite_batch_submitter")
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from holdfast.app import Holdfast
from holdfast.channel.channel import Channel
from holdfast.store import Statement, Store, Tx
from holdfast_llm.batch.service import BatchService
from holdfast_llm.provider.account import Account, Accounts
from holdfast_llm.provider.route import Route


class Seam(StrEnum):
    """Where a test can step in."""

    TRANSACTION = "transaction"
    CALL = "call"


@dataclass(frozen=True, slots=True)
class FailPoint:
    """Before or after one step of an application.

    A transaction is named by a statement that it runs, a call by the method of the provider adapter
    or the channel. *Before* a transaction nothing of it is stored and no lock is held; *after* it,
    it is committed.
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

BATCH_POINTS: Mapping[str, FailPoint] = {
    # Submit.
    "claimed": _before("find_open_units"),
    "prepared": _commit("insert_items"),
    "uploaded": _call("upload"),
    "upload_recorded": _commit("record_upload"),
    "creating_recorded": _commit("begin_create"),
    "created": _call("create"),
    "create_recorded": _commit("submit_batch"),
    # Release.
    "back_recorded": _commit("mark_back"),
    "back_group_recorded": _commit("release_items"),
    # Recover.
    "scanned": _call("scan"),
    "fenced": _call("delete_file"),
    "fence_recorded": _commit("record_fence"),
    "stepped_back": _commit("step_back"),
    # Collect.
    "polled": _call("get"),
    "end_recorded": _commit("end_batch"),
    "reading": _call("read"),
    "group_recorded": _commit("record_items"),
    "read": _before("close_batch"),
    "collect_recorded": _commit("close_batch"),
    "files_deleted": _before("forget_files"),
    "delete_recorded": _commit("forget_files"),
    # Direct calls.
    "call_recorded": _commit("add_items"),
    "called": _call("call"),
}
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
# An SMTP channel sends with send_committing; to a test it is the same step.
_SAME_CALL = {"send_committing": "send"}
_CALLS = {point.name for point in (*BATCH_POINTS.values(), *OUTBOX_POINTS.values())}

Hit = Callable[[str], None]
"""Called with the name of the point that was reached. What it raises ends the application."""


@contextmanager
def inject(hf: Holdfast, points: Mapping[str, FailPoint], hit: Hit) -> Iterator[None]:
    """Call *hit* at every one of *points* that *hf* reaches in this block."""
    watch = watch_of(points, hit)
    with ExitStack() as stack:
        stack.enter_context(_watched_store(hf.store, watch))
        stack.enter_context(_watched_accounts(hf, watch))
        stack.enter_context(_watched_channels(hf, watch))
        yield


@contextmanager
def inject_service(
    service: BatchService, points: Mapping[str, FailPoint], hit: Hit
) -> Iterator[BatchService]:
    """The same for one batch service; use the service that this yields."""
    watch, resources = watch_of(points, hit), service.resources
    with _watched_store(resources.store, watch):
        accounts = _WatchedAccounts(resources.accounts, watch)
        yield BatchService(replace(resources, accounts=accounts))


def watch_of(points: Mapping[str, FailPoint], hit: Hit) -> _Watch:
    names: dict[FailPoint, list[str]] = {}
    for name, point in points.items():
        names.setdefault(point, []).append(name)
    return _Watch(names, hit)


class _Watch(threading.local):
    """The points of a test. What a hit itself does, in its own thread, reaches none of them."""

    def __init__(self, names: Mapping[FailPoint, Sequence[str]], hit: Hit) -> None:
        self.names = names
        self.hit = hit
        self.is_busy = False

    def knows(self, point: FailPoint) -> bool:
        return point in self.names and not self.is_busy

    def reach(self, point: FailPoint) -> None:
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
    """Rolls a transaction back before it is run for good."""


@contextmanager
def _watched_store(store: Store, watch: _Watch) -> Iterator[None]:
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


def _watched_write(write: Callable[..., Any], watch: _Watch) -> Callable[..., Any]:
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
                watch.reach(FailPoint.before_transaction(statement))
                continue
            for statement in dict.fromkeys(observed.ran):
                watch.reach(FailPoint.after_commit(statement))
            return result

    return watched


class _Work:
    """A unit of work that notes its statements."""

    def __init__(self, work: Callable[[Tx], Any], watch: _Watch, passed: set[str]) -> None:
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


# -- providers and channels


class _Watched:
    """An object whose calls are watched."""

    def __init__(self, inner: Any, watch: _Watch) -> None:
        self._inner = inner
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        call = _SAME_CALL.get(name, name)
        if call not in _CALLS or not callable(found):
            return found

        def watched(*args: Any, **options: Any) -> Any:
            self._watch.reach(FailPoint.before_call(call))
            result = found(*args, **options)
            if isinstance(result, AbstractContextManager):
                return self._reading(result, call)
            self._watch.reach(FailPoint.after_call(call))
            return result

        return watched

    @contextmanager
    def _reading(self, opened: AbstractContextManager[Any], call: str) -> Iterator[Any]:
        with opened as found:
            yield found
        self._watch.reach(FailPoint.after_call(call))


class _WatchedAccounts:
    """Accounts whose adapters are watched."""

    def __init__(self, inner: Accounts, watch: _Watch) -> None:
        self._inner = inner
        self._watch = watch

    def of(self, route: Route) -> Account:
        return self._watched(self._inner.of(route))

    def by_key(self, key: str) -> Account | None:
        found = self._inner.by_key(key)
        return None if found is None else self._watched(found)

    def in_place_of(self, key: str) -> Account | None:
        found = self._inner.in_place_of(key)
        return None if found is None else self._watched(found)

    def _watched(self, account: Account) -> Account:
        adapter: Any = _Watched(account.adapter, self._watch)
        return replace(account, adapter=adapter)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@contextmanager
def _watched_accounts(hf: Holdfast, watch: _Watch) -> Iterator[None]:
    batch = hf.batch
    before = (batch._accounts, batch._made_for)
    batch.accounts = _WatchedAccounts(batch.accounts, watch)
    try:
        yield
    finally:
        batch._accounts, batch._made_for = before


class _WatchedChannels:
    """Channels whose sends and lookups are watched."""

    def __init__(self, inner: Any, watch: _Watch) -> None:
        self._inner = inner
        self._watch = watch

    def get(self, name: str) -> Channel | None:
        found = self._inner.get(name)
        if found is None:
            return None
        channel: Any = _Watched(found, self._watch)
        watched: Channel = channel
        return watched

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@contextmanager
def _watched_channels(hf: Holdfast, watch: _Watch) -> Iterator[None]:
    outbox = hf.outbox
    before = (outbox._channels, outbox._made_for)
    outbox.channels = _WatchedChannels(outbox.channels, watch)
    try:
        yield
    finally:
        outbox._channels, outbox._made_for = before
