"""ChangeFeed: committed changes for any number of readers of one process.

One thread reads the audit and gives each change to the readers that want it. A reader has a bounded
queue: one that is too slow is cut off, and resumes from its position.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary, ref

from holdfast.errors import HoldfastError
from holdfast.feed.change import Change, ChangeFilter
from holdfast.feed.position import Position, clip, subtract, without
from holdfast.feed.read import PAGE, Track, begin, find_late, resume, stamp, step
from holdfast.store import Store, WakeUp

_log = logging.getLogger("holdfast.feed")

# Changes that wait for one reader.
MOST_WAITING = 256
# Ranges that readers bring along and that the thread looks for.
MOST_WATCHED = 256
CHANNEL = "feed"
# SQLite reports a commit at once; PostgreSQL announces only enqueued jobs.
POLL_SECONDS = 0.25
EMBEDDED_POLL_SECONDS = 1.0
# A busy database is read this often.
PAUSE_SECONDS = 0.05
RETRY_SECONDS = 1.0


class FeedEnded(HoldfastError):
    """The stream of changes ended. Its reader may resume from its position."""


class FeedLagged(FeedEnded):
    """The reader was too slow. It may resume from its position."""

    def __init__(self) -> None:
        super().__init__("The reader was too slow for the feed. Resume from the last position.")


class FeedClosed(FeedEnded):
    """The feed is shutting down."""

    def __init__(self) -> None:
        super().__init__("The feed is shutting down. Resume from the last position.")


class Subscription:
    """The changes of one reader, from its position on. Read it in one thread or one task."""

    def __init__(self, feed: ChangeFeed, wanted: ChangeFilter, start: Position) -> None:
        self.wanted = wanted
        self.position = start
        self._feed = feed
        self._start = start
        self._backlog: Iterator[tuple[Change, ...]] | None = None
        self._waiting: deque[Change] = deque()
        self._news = threading.Condition()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._awake: asyncio.Event | None = None
        self._ended: FeedEnded | None = None

    # -- by the reader

    def read(self, timeout: float) -> tuple[Change, ...]:
        """The next changes; none if there are none within *timeout* seconds. Raises FeedEnded."""
        if (page := self._next_page()) is not None:
            return self._passed(page)
        with self._news:
            if not self._waiting and self._ended is None:
                self._news.wait(timeout)
        return self._take()

    async def aread(self, timeout: float) -> tuple[Change, ...]:
        """:meth:`read` on an event loop."""
        if self._backlog is not None:
            page = await asyncio.to_thread(self._next_page)
            if page is not None:
                return self._passed(page)
        if self._awake is None:
            self._loop, self._awake = asyncio.get_running_loop(), asyncio.Event()
        if not self._waiting and self._ended is None:
            try:
                async with asyncio.timeout(timeout):
                    await self._awake.wait()
            except TimeoutError:
                pass
        self._awake.clear()
        return self._take()

    def settle(self) -> Position:
        """Move the position of a reader without changes to where the feed has come."""
        with self._feed.lock, self._news:
            track = self._feed.track
            if not self._waiting and self._backlog is None and track.top >= self.position.top:
                self.position = track.position
            return self.position

    def close(self) -> None:
        self._feed.drop(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _next_page(self) -> tuple[Change, ...] | None:
        if self._backlog is not None:
            for page in self._backlog:
                return page
            self._backlog = None
        return None

    def _take(self) -> tuple[Change, ...]:
        with self._news:
            found = tuple(self._waiting)
            self._waiting.clear()
            if not found and self._ended is not None:
                raise self._ended
        return self._passed(found)

    def _passed(self, changes: Iterable[Change]) -> tuple[Change, ...]:
        return tuple(one for one in changes if self.wanted.matches(one))

    def moved_past(self, change: Change) -> Position:
        """The position of the reader after it has handled *change*."""
        own = self.position
        is_late = change.id <= own.top
        self.position = own.after(change.id) if is_late else change.position
        return self.position

    # -- by the thread of the feed, under its lock

    def push(self, change: Change) -> bool:
        """Offer a change; return whether the reader has to be woken."""
        if self._start.has_read(change.id) or not self.wanted.matches(change):
            return False
        with self._news:
            if self._ended is not None:
                return False
            if len(self._waiting) >= MOST_WAITING:
                # What waits is given up: the reader resumes from what it has handled.
                self._waiting.clear()
                self._ended = FeedLagged()
            else:
                self._waiting.append(change)
        return True

    def end(self, why: FeedEnded) -> None:
        with self._news:
            self._ended = self._ended or why

    def resume_with(self, backlog: Iterator[tuple[Change, ...]]) -> None:
        self._backlog = backlog

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        return self._loop

    def wake(self) -> None:
        """Wake the reader; of an event loop, only on that loop."""
        if self._awake is not None:
            self._awake.set()
        with self._news:
            self._news.notify_all()


class ChangeFeed:
    """The committed changes of one database, for the readers of this process."""

    def __init__(self, store: Callable[[], Store], channels: Callable[[], Sequence[str]]) -> None:
        self._store = store
        self._channels = channels
        self.track = Track()
        self._readers: dict[str | None, set[Subscription]] = {}
        self._watched = 0
        # Guards the readers and the track: a change is published in the step that moves the track.
        self.lock = threading.Lock()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake: WakeUp | None = None
        self._closing = False

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_closed(self) -> bool:
        return self._closing

    @property
    def readers(self) -> int:
        """The number of readers."""
        return sum(len(found) for found in self._readers.values())

    def subscribe(self, wanted: ChangeFilter, after: Position | None = None) -> Subscription:
        """The changes that *wanted* matches, from *after* or from now on.

        Raises InvalidArgument if *after* is not a position of this feed.
        """
        while True:
            self._ensure_running()
            with self.lock:
                if not self.is_running:
                    continue  # It ended in between, without readers.
                track = self.track
                made = Subscription(self, wanted, track.position if after is None else after)
                self._readers.setdefault(wanted.org_id, set()).add(made)
                break
        if after is not None:
            try:
                made.resume_with(self._backlog(after, track, wanted.org_id))
            except BaseException:
                made.close()
                raise
        return made

    def _backlog(
        self, after: Position, track: Track, org_id: str | None
    ) -> Iterator[tuple[Change, ...]]:
        store = self._store()
        wanted = subtract(clip(after.missing, 1, track.top), track.position.missing)
        late = find_late(store, wanted)
        absent = without(wanted, (row["id"] for row in late))
        with self.lock:
            # Usually rolled back. If not, the thread publishes them when they appear.
            room = MOST_WATCHED - self._watched
            self._watched += len(absent[:room])
            self.track = self.track.watching(absent[:room])
        return resume(store, after, track, late, org_id)

    def drop(self, reader: Subscription) -> None:
        """Remove a reader."""
        with self.lock:
            found = self._readers.get(reader.wanted.org_id, set())
            found.discard(reader)
            if not found:
                self._readers.pop(reader.wanted.org_id, None)

    def poke(self) -> None:
        """Read now instead of at the next poll."""
        if self._wake is not None:
            self._wake.poke()

    def close(self) -> None:
        """End every reader and the thread."""
        with self._starting:
            self._closing = True
            thread, self._thread = self._thread, None
        self.poke()
        if thread is not None:
            thread.join(timeout=5.0)
        with self.lock:
            readers = [reader for found in self._readers.values() for reader in found]
            for reader in readers:
                reader.end(FeedClosed())
            self._readers.clear()
        _wake(readers)

    # -- the thread

    def _ensure_running(self) -> None:
        with self._starting:
            if self._closing:
                raise FeedClosed
            if not self.is_running:
                store = self._store()
                self.track = begin(store)
                self._wake = store.wake_up([CHANNEL, *self._channels()])
                self._thread = threading.Thread(
                    target=self._run, args=(store, self._wake), name="holdfast-feed", daemon=True
                )
                self._thread.start()

    def _run(self, store: Store, wake: WakeUp) -> None:
        seconds = EMBEDDED_POLL_SECONDS if store.is_embedded else POLL_SECONDS
        try:
            while not self._closing:
                try:
                    is_full = self.read_once(store)
                except Exception as exc:
                    # The database is away; readers get the changes later.
                    if self._is_over():
                        return
                    _log.warning("the change feed could not be read: %s", type(exc).__name__)
                    time.sleep(RETRY_SECONDS)
                    continue
                if not is_full and wake.wait(seconds) and not self._closing:
                    time.sleep(PAUSE_SECONDS)
                if self._is_over():
                    return
        finally:
            wake.close()

    def _is_over(self) -> bool:
        """Whether the thread ends: the last reader has left."""
        with self.lock:
            if self._readers:
                return False
            self._thread = None
            return True

    def read_once(self, store: Store) -> bool:
        """Read and publish the next changes; return whether there may be more."""
        with self.lock:
            before = self.track
        track = stamp(store, before)
        found = store.read(lambda tx: step(tx, track, PAGE))
        with self.lock:
            # Ranges that readers brought along in the meantime.
            brought = subtract(self.track.position.missing, before.position.missing)
            self.track = found.track.watching(brought)
            self._watched = min(self._watched, len(self.track.gaps))
            woken = self._publish(found.changes)
        _wake(woken)
        return found.is_full

    def _publish(self, changes: Sequence[Change]) -> set[Subscription]:
        woken: set[Subscription] = set()
        for change in changes:
            for org_id in (change.org_id, None):
                for reader in self._readers.get(org_id, ()):
                    if reader.push(change):
                        woken.add(reader)
        return woken


def _wake(readers: Iterable[Subscription]) -> None:
    """Wake readers: those on one event loop in one call."""
    on_loops: dict[asyncio.AbstractEventLoop, list[Subscription]] = {}
    for reader in readers:
        if reader.loop is None:
            reader.wake()
        else:
            on_loops.setdefault(reader.loop, []).append(reader)
    for loop, found in on_loops.items():
        try:
            loop.call_soon_threadsafe(_wake_all, found)
        except RuntimeError:
            # The loop is closed; its readers are gone.
            continue


def _wake_all(readers: Iterable[Subscription]) -> None:
    for reader in readers:
        reader.wake()


class FedApp(Protocol):
    """The parts of an application that its feed uses."""

    @property
    def store(self) -> Store: ...

    @property
    def known_queues(self) -> list[str]: ...


_feeds: WeakKeyDictionary[Any, ChangeFeed] = WeakKeyDictionary()
_making = threading.Lock()


def feed_of(app: FedApp) -> ChangeFeed:
    """The feed of an application: one thread, however many readers."""
    with _making:
        found = _feeds.get(app)
        if found is None or found.is_closed:
            behind = ref(app)

            def alive() -> FedApp:
                held = behind()
                if held is None:
                    raise FeedClosed
                return held

            found = ChangeFeed(lambda: alive().store, lambda: alive().known_queues)
            _feeds[app] = found
        return found
