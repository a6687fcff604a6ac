"""Test helpers: runs of batch processing, fail points, and a provider conformance kit.

:class:`ProviderConformance` has the tests that every provider adapter must pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from holdfast.engine.bounded_run import perform_run
from holdfast.engine.run_log import RunReport, Trigger, TriggerKind
from holdfast.testing_faults import (
    FailPoint,
    FailPointSet,
    Hit,
    Watched,
    fail_points_of,
    watched_store,
)
from holdfast_llm.batch.service import BatchService
from holdfast_llm.provider.account import Account, Accounts
from holdfast_llm.provider.route import Route
from holdfast_llm.settings import collector_of, submitter_of
from holdfast_llm.testing_far_end import ProviderFault
from holdfast_llm.testing_providers import ProviderConformance

__all__ = [
    "BATCH_POINTS",
    "BatchKit",
    "ProviderConformance",
    "ProviderFault",
    "WatchedAccounts",
    "inject_service",
]

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

_BY_TIMER = Trigger(TriggerKind.CRON)


class BatchKit:
    """A mixin of ``holdfast_app``; its methods are called on that."""

    points = BATCH_POINTS

    def __init__(self, hf: Any) -> None:
        self.hf = hf

    def submit(self) -> RunReport:
        """Submit waiting jobs: one run of the submitter."""
        return perform_run(self.hf, submitter_of(self.hf.settings), trigger=_BY_TIMER)

    def collect(self) -> RunReport:
        """Collect the answers of batches: one run of the collector."""
        return perform_run(self.hf, collector_of(self.hf.settings), trigger=_BY_TIMER)

    @contextmanager
    def watched(self, watch: FailPointSet) -> Iterator[None]:
        """Watch the calls of the provider accounts."""
        batch = self.hf.batch
        before = (batch._accounts, batch._made_for)
        batch.accounts = WatchedAccounts(batch.accounts, watch)
        try:
            yield
        finally:
            batch._accounts, batch._made_for = before


@contextmanager
def inject_service(
    service: BatchService, points: Mapping[str, FailPoint], hit: Hit
) -> Iterator[BatchService]:
    """Watch one batch service; use the service that this yields."""
    watch, resources = fail_points_of(points, hit), service.resources
    with watched_store(resources.store, watch):
        accounts = WatchedAccounts(resources.accounts, watch)
        yield BatchService(replace(resources, accounts=accounts))


class WatchedAccounts:
    """Accounts whose adapters are watched."""

    def __init__(self, inner: Accounts, watch: FailPointSet) -> None:
        self._inner = inner
        self._watch = watch

    def for_route(self, route: Route) -> Account:
        return self._watched(self._inner.for_route(route))

    def by_key(self, key: str) -> Account | None:
        found = self._inner.by_key(key)
        return None if found is None else self._watched(found)

    def in_place_of(self, key: str) -> Account | None:
        found = self._inner.in_place_of(key)
        return None if found is None else self._watched(found)

    def _watched(self, account: Account) -> Account:
        adapter: Any = Watched(account.adapter, self._watch)
        return replace(account, adapter=adapter)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
