"""Content: the body of a batch, built from its rows on demand and never stored.

One pass measures the body and finds items that cannot be sent; another pass sends it. Both read the
same rows page by page, so a batch of 50,000 items takes the memory of one page.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from holdfast.engine.execute import outcome_of_error
from holdfast.engine.job import Canceled, Claimed, Outcome
from holdfast.errors import Signal
from holdfast.store import Statements, Tx
from holdfast_llm.batch.lease import BatchLease, BatchLeases
from holdfast_llm.batch.load import ItemLoader, Loaded, item_of
from holdfast_llm.batch.rendered_request import RequestRenderer
from holdfast_llm.batch.resources import BatchResources
from holdfast_llm.provider.account import Account
from holdfast_llm.provider.adapter import Content
from holdfast_llm.provider.reply import ProviderUnsure
from holdfast_llm.provider.route import Route

SQL = Statements("holdfast_llm.batch", "submit.sql")

PAGE = 500
PIECE_BYTES = 64 * 1024
# The number of columns of list_items that belong to the item.
_OWN = 5


class ContentChanged(ProviderUnsure):
    """The body differs from the measured one, and sending was aborted before its end.

    A server ignores a body that is shorter than announced.
    """

    def __init__(self) -> None:
        super().__init__("content_changed")


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """An item of a batch and its job; None if the job has left this batch."""

    index: int
    custom_id: str
    echo: str
    job: Claimed | None


@dataclass(frozen=True, slots=True)
class Dropped:
    """An item that cannot be sent, and the outcome of its job."""

    entry: BatchEntry
    outcome: Outcome | None


@dataclass(frozen=True, slots=True)
class Measured:
    """The measured body, and the items that cannot be sent."""

    content: Content
    route: Route | None
    dropped: tuple[Dropped, ...] = ()


@dataclass(slots=True)
class _Sum:
    size: int = 0
    items: int = 0
    hash: Any = field(default_factory=hashlib.sha256)

    def add(self, line: bytes) -> None:
        self.size += len(line)
        self.items += 1
        self.hash.update(line)


class ContentBuilder:
    """Builds the body of a batch from its rows."""

    def __init__(
        self,
        resources: BatchResources,
        leases: BatchLeases,
        loader: ItemLoader,
        requests: RequestRenderer,
    ) -> None:
        self.resources = resources
        self.store = resources.store
        self.registry = resources.registry
        self.rng = resources.rng
        self.leases = leases
        self.loader = loader
        self.requests = requests

    def measure(self, batch: BatchLease, account: Account) -> Measured:
        """Build every line once, for size and hash; collect the items that cannot be built."""
        total, dropped = _Sum(), []
        route: Route | None = None
        # Items leave a batch but never join it, so the groups are read once.
        groups = self._list_groups(batch)
        for entry, loaded in self._read_entries(batch, groups):
            if entry.job is None or entry.job.cancel_requested_at is not None:
                dropped.append(Dropped(entry, None if entry.job is None else Canceled()))
                continue
            try:
                found, line = self._line(account, entry, entry.job, loaded)
            except (Signal, SystemExit, Exception) as exc:
                dropped.append(Dropped(entry, self._judged(entry.job, exc)))
                continue
            route = route or found
            total.add(line)
        content = Content(
            total.size,
            total.hash.hexdigest(),
            total.items,
            partial(self._pieces, batch, groups, account, total),
        )
        return Measured(content, route, tuple(dropped))

    def _pieces(
        self, batch: BatchLease, groups: Sequence[str], account: Account, expected: _Sum
    ) -> Iterator[bytes]:
        """Yield the same bytes again. Raises ContentChanged before the last byte if they differ."""
        sent, piece = _Sum(), bytearray()
        for entry, loaded in self._read_entries(batch, groups):
            if sent.items == expected.items:
                # With more bytes than measured, the announced length may already be sent.
                raise ProviderUnsure("content_changed")
            if entry.job is None:
                raise ContentChanged
            try:
                _, line = self._line(account, entry, entry.job, loaded)
            except (Signal, SystemExit, Exception) as exc:
                raise ContentChanged from exc
            sent.add(line)
            piece += line
            is_last = sent.items == expected.items
            if sent.size > expected.size or (
                is_last and sent.hash.digest() != expected.hash.digest()
            ):
                raise ContentChanged
            if len(piece) >= PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
        if sent.items != expected.items:
            raise ContentChanged
        if piece:
            yield bytes(piece)

    def _line(
        self, account: Account, entry: BatchEntry, job: Claimed, loaded: Loaded
    ) -> tuple[Route, bytes]:
        item = item_of(job, loaded)
        rendered = self.requests.render_again(item, account, entry.echo)
        return item.route, account.adapter.line(item.route, entry.custom_id, rendered.body)

    def _judged(self, job: Claimed, exc: BaseException) -> Outcome:
        handler = self.registry.get(job.job_type)
        return outcome_of_error(exc, job, handler.stage(job.stage) or handler.first, self.rng)

    def _list_groups(self, batch: BatchLease) -> list[str]:
        return [row[0] for row in self.store.values(SQL.list_groups, batch_id=batch.id)]

    def _read_entries(
        self, batch: BatchLease, groups: Sequence[str]
    ) -> Iterator[tuple[BatchEntry, Loaded]]:
        """The open items of a batch, ordered by group, with the data loaded for each page."""
        keep = Keep(self.leases, batch)
        for group_key in groups:
            after = -1
            while True:
                keep()
                rows = self.store.read(
                    partial(_list_items, batch.id, after=after, group_key=group_key)
                )
                loaded = self.loader.load(entry.job for entry in rows if entry.job is not None)
                yield from ((entry, loaded) for entry in rows)
                if len(rows) < PAGE:
                    break
                after = rows[-1].index


class Keep:
    """Renews a lease during a long pass, every third of its length. Raises BatchLost."""

    def __init__(self, leases: BatchLeases, batch: BatchLease) -> None:
        self.leases = leases
        self.batch = batch
        # The caller has just taken or renewed the lease.
        self._next = self.leases.store.clock.monotonic() + self.leases.lease_ms / 3000

    def __call__(self) -> None:
        now = self.leases.store.clock.monotonic()
        if now >= self._next:
            self.leases.hold(self.batch)
            self._next = now + self.leases.lease_ms / 3000


def _list_items(batch_id: str, tx: Tx, **params: Any) -> list[BatchEntry]:
    return list_entries(tx, batch_id, **params)


def list_entries(
    tx: Tx, batch_id: str, *, after: int = -1, group_key: str | None = None, limit: int = PAGE
) -> list[BatchEntry]:
    """One page of open items."""
    tx.read_in_order()
    rows = tx.values(
        SQL.list_items, batch_id=batch_id, after=after, group_key=group_key, limit=limit
    )
    return [
        BatchEntry(row[0], row[3], row[4], None if row[_OWN] is None else Claimed(*row[_OWN:]))
        for row in rows
    ]
