"""Load application data for jobs, with one read for all jobs of a type.

A job's row holds ids only. The text of its request is in the application's tables. It is read for
each page and not kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.engine.handler import Handler
from holdfast.engine.job import Claimed
from holdfast.errors import Defect, SchemaInvalid, StoreError
from holdfast_llm.batch.resources import BatchResources
from holdfast_llm.batch.work import Item
from holdfast_llm.provider.request import Request


@dataclass(frozen=True, slots=True)
class NotLoaded:
    """The application's load failed for a job; the error is raised when its item is built."""

    error: Exception


Loaded = dict[str, Any]
"""The loaded data by job id. A job that is missing has nothing to load."""


class ItemLoader:
    """Loads application data for jobs."""

    def __init__(self, resources: BatchResources) -> None:
        self.resources = resources
        self.store = resources.store
        self.registry = resources.registry

    def load(self, jobs: Iterable[Claimed]) -> Loaded:
        """Load the data of these jobs. A failing load does not affect other jobs."""
        by_type: dict[str, list[Claimed]] = defaultdict(list)
        for job in jobs:
            handler = self.registry.handlers.get(job.job_type)
            if handler is not None and hasattr(handler.work, "load"):
                by_type[job.job_type].append(job)
        found: Loaded = {}
        for job_type, same in by_type.items():
            found |= self._load(self.registry.handlers[job_type].work, same)
        return found

    def _load(self, work: Any, jobs: Sequence[Claimed]) -> Loaded:
        try:
            items = [Item.from_job(job) for job in jobs]
            return dict(self.store.read(lambda tx: work.load(tx, items)))
        except StoreError:
            raise
        except Exception as exc:
            if len(jobs) == 1:
                return {jobs[0].id: NotLoaded(exc)}
            half = len(jobs) // 2
            return self._load(work, jobs[:half]) | self._load(work, jobs[half:])


def item_of(job: Claimed, loaded: Loaded) -> Item:
    """The item of a job with its loaded data. Raises the error of its load."""
    given = loaded.get(job.id)
    if isinstance(given, NotLoaded):
        raise given.error
    return Item.from_job(job, given)


def request_again(handler: Handler, item: Item) -> Request:
    """Build the request of an answered item again. Raises a Defect if that fails.

    The request was built before, so the code has changed since, not the item.
    """
    try:
        found: Request = handler.work.request(item)
    except SchemaInvalid as exc:
        raise Defect(exception=type(exc).__name__) from exc
    return found
