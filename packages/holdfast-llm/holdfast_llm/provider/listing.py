"""Read a listing of batches, newest first. A missed batch would be paid for twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from holdfast_llm.provider.adapter import ProviderBatch
from holdfast_llm.provider.reply import ProviderRefused, ProviderUnsure

PAGE = 100
# The limit for a server that pages in circles.
MAX_PAGES = 1_000


def read_listing(
    pages: Iterator[Sequence[ProviderBatch]],
    since: datetime,
    get: Callable[[str], ProviderBatch] | None = None,
    *,
    may_repeat: bool = False,
) -> Iterator[ProviderBatch]:
    """Every batch of *pages* created after *since*, once.

    Fields that a listing omits are requested with *get*. A page with only known batches ends the
    listing, unless pages are numbered and thus shift with every new batch.
    """
    met: set[str] = set()
    for number, page in enumerate(pages):
        if number >= MAX_PAGES:
            raise ProviderUnsure("endless_listing")
        fresh = {seen.provider_batch_id: seen for seen in page if seen.provider_batch_id not in met}
        met |= fresh.keys()
        for seen in fresh.values():
            if not _is_before(seen, since):
                yield seen if seen.key or get is None else _whole(seen, get)
        if page and all(_is_before(seen, since) for seen in page):
            return
        if not fresh and not may_repeat:
            return


def _is_before(seen: ProviderBatch, since: datetime) -> bool:
    return seen.created_at is not None and seen.created_at < since


def _whole(seen: ProviderBatch, get: Callable[[str], ProviderBatch]) -> ProviderBatch:
    try:
        return get(seen.provider_batch_id)
    except ProviderRefused:
        return seen
