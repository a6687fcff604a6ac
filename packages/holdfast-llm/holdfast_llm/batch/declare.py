"""Declare model work: register a class as a job type of batch processing, and its two runs."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

from holdfast.config import Settings
from holdfast.engine.category import Category, CategoryRules
from holdfast.engine.context import Context
from holdfast.engine.handler import (
    HandlerOptions,
    Routed,
    check_options,
    make_handler,
    plain_stage,
)
from holdfast.engine.job import ONLY_STAGE, Outcome
from holdfast.engine.periodic_task import PeriodicTask
from holdfast.engine.retry import RetryPolicy
from holdfast.engine.runs import Application
from holdfast.engine.worker.housekeeping import Chore
from holdfast.errors import ConfigError
from holdfast.extension import Extension
from holdfast_llm.batch.finish_call import with_call_stores
from holdfast_llm.batch.maintenance import maintain_batches
from holdfast_llm.batch.micro_batch import Batcher
from holdfast_llm.batch.resources import BatchResources
from holdfast_llm.batch.service import BatchService
from holdfast_llm.batch.tasks import CollectTask, SubmitTask
from holdfast_llm.batch.work import BatchWork
from holdfast_llm.extension import BatchExtension
from holdfast_llm.provider.account import Accounts
from holdfast_llm.provider.route import ExecutionMode, Route
from holdfast_llm.settings import COLLECTOR, SUBMITTER, CommonProviderSettings

if TYPE_CHECKING:
    from holdfast.operate.doctor.finding import DoctorCheck

W = TypeVar("W")


class BatchApplication(Application, Protocol):
    """The parts of the application that batch processing uses."""

    rng: random.Random | None


class Batching(BatchExtension):
    """The batch processing of one application.

    Call it to declare a job type whose jobs are model requests::

        @hf.batch("text.summarise", route=Route("openai", "openai_responses", "gpt-5.2"))
        class Summarise:
            def request(self, item): ...
            def accept(self, item, reply): ...
    """

    app: BatchApplication

    def __init__(self) -> None:
        self._accounts: Accounts | None = None
        self._made_for: Settings | None = None
        self._batcher = Batcher()

    def load(self) -> Extension:
        """Return this object."""
        return self

    def install(self, app: Any) -> None:
        """Enable batch processing on *app*."""
        self.app = app

    def tasks(self, app: Any) -> Mapping[str, PeriodicTask]:
        """Return the runs that submit and collect batches."""
        return {SUBMITTER: SubmitTask(self), COLLECTOR: CollectTask(self)}

    def maintenance(self, app: Any) -> Sequence[Chore]:
        """Return the steps that rescue claims without a batch and delete old data."""

        def work() -> None:
            maintain_batches(app.store, app.settings, app.events)

        return [Chore("batch", app.settings.rescue_seconds, work, before_runs=work)]

    def doctor_probes(self) -> Mapping[str, DoctorCheck]:
        """Return the checks of the provider accounts."""
        from holdfast_llm.operate.probe import probe_providers

        return {"providers": partial(probe_providers, accounts=self.accounts)}

    def __call__(
        self,
        job_type: str,
        *,
        route: Route | Mapping[str, Any] | None = None,
        category: str = "general",
        max_attempts: int | None = None,
        retry: RetryPolicy | None = None,
        timeout: timedelta | float | None = None,
        stage: str = ONLY_STAGE,
        **options: Unpack[HandlerOptions],
    ) -> Callable[[W], W]:
        """Declare the decorated class as the work of *job_type*.

        Its ``request(item)`` builds the request for one item, and its ``accept(item, reply)``
        returns the job's result. *route* is the destination of the requests; an enqueue can
        override it with ``routing_decision``. *stage* is the name of the only stage. *options* are
        those of ``hf.job``: the statements of ``stores`` store the rows that ``accept`` returns as
        :class:`ResultWithRows`, in the transaction that ends the jobs.
        """
        check_options(job_type, options)
        kind = self.app.registry.category(category)
        _check_category(job_type, kind)
        own = None if route is None else self._read_route(job_type, route)

        def declare(given: W) -> W:
            work = _work_of(job_type, given)
            only = plain_stage(
                self._perform,
                category=kind,
                max_attempts=max_attempts,
                retry=retry,
                timeout=timeout,
                name=stage,
            )
            made = make_handler(job_type, [only], category=kind, **options)
            router = Router(self, own)
            stores = with_call_stores(job_type, made.stores)
            self.app.registry.add(replace(made, router=router, stores=stores, work=work))
            return given

        return declare

    def _read_route(self, job_type: str, route: Route | Mapping[str, Any]) -> Route:
        try:
            if not isinstance(route, (Route, Mapping)):
                raise ValueError("must be a Route or an object")
            found = Route.read(route.decision if isinstance(route, Route) else route)
            if not self.has_own_accounts:
                _check_kind(found)
        except ValueError as exc:
            raise ConfigError(f"Job type {job_type!r}: route {exc}.") from exc
        return found

    @property
    def accounts(self) -> Accounts:
        """The provider accounts from the settings."""
        if self._accounts is None or self._made_for not in (None, self.app.settings):
            from holdfast_llm.batch.accounts import ConfiguredAccounts

            self._accounts = ConfiguredAccounts(self.app.settings, clock=self.app.clock)
            self._made_for = self.app.settings
        return self._accounts

    @accounts.setter
    def accounts(self, accounts: Accounts) -> None:
        self._accounts, self._made_for = accounts, None

    @property
    def has_own_accounts(self) -> bool:
        """True if the application passed its own accounts."""
        return self._accounts is not None and self._made_for is None

    def _perform(self, job: Context, payload: Mapping[str, Any]) -> Outcome:
        return self.service.calls.perform(self._batcher, job)

    @property
    def service(self) -> BatchService:
        """The batch service with the current configuration."""
        return self.service_with(self.app.settings.default_profile.retry_backoff_seconds)

    def service_with(self, backoff_seconds: Sequence[int]) -> BatchService:
        """Return the batch service with these retry delays."""
        app = self.app
        return BatchService(
            BatchResources(
                app.store,
                app.settings,
                app.registry.with_backoff(backoff_seconds),
                app.ids,
                app.events,
                self.accounts,
                app.rng or random.Random(),
            )
        )


@dataclass(frozen=True, slots=True)
class Router:
    """Fixes the route of a job's request at enqueue."""

    batching: Batching
    own: Route | None

    def __call__(self, given: Mapping[str, Any] | None) -> Routed:
        decision = self._decision(given)
        route = Route.read(decision)
        providers = self.batching.app.settings.providers
        if route.provider not in providers:
            known = ", ".join(sorted(providers))
            raise ValueError(f"names provider {route.provider!r}; configured are: {known}")
        is_batched = route.execution_mode is ExecutionMode.BATCH
        if is_batched and providers[route.provider].supports_batches is False:
            raise ValueError(f"{route.provider!r} takes no batches; use execution_mode async")
        if not self.batching.has_own_accounts:
            _check_way(route, providers[route.provider])
        return Routed({**decision, **route.decision}, is_batched, route.max_attempts)

    def _decision(self, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """The caller's decision, merged with the job type's unless it names another provider."""
        if given is not None and not isinstance(given, Mapping):
            raise ValueError("must be an object")
        own = {} if self.own is None else self.own.decision
        if given is None:
            if self.own is None:
                raise ValueError("is required: the job type declares no route")
            return own
        return dict(given) if "provider" in given else {**own, **given}


def _check_kind(route: Route) -> None:
    from holdfast_llm.provider.adapters import ADAPTERS

    if route.adapter_kind not in ADAPTERS:
        known = ", ".join(sorted(ADAPTERS))
        raise ValueError(f"names adapter_kind {route.adapter_kind!r}; known: {known}")


def _check_way(route: Route, provider: CommonProviderSettings) -> None:
    """Check that a route has an account. Otherwise the submitter would fail an hour later."""
    from holdfast_llm.batch.accounts import adapter_of, is_same
    from holdfast_llm.provider.adapters import ADAPTERS

    _check_kind(route)
    name = route.provider
    if route.base_url is not None and not is_same(route.base_url, provider.base_url):
        raise ValueError(
            f"names another base_url than providers.{name}.base_url; declare a provider for it"
        )
    try:
        adapter_of(name, provider, route.adapter_kind)
    except ConfigError as exc:
        raise ValueError(f"cannot be used with provider {name!r}: {str(exc).rstrip('.')}") from exc
    # Only a provider's own URL identifies it; any other may be a server of any kind.
    there = [
        adapter.kind
        for adapter in ADAPTERS.values()
        if is_same(adapter.base_url, provider.base_url)
    ]
    if there and route.adapter_kind not in there:
        says = " or ".join(sorted(there))
        raise ValueError(
            f"uses the adapter {route.adapter_kind} with {name!r}, whose base_url requires {says}"
        )


def _check_category(job_type: str, category: Category) -> None:
    if category.rules is not CategoryRules.GENERAL:
        raise ConfigError(
            f"Job type {job_type!r}: category {category.name!r} has the rules {category.rules},"
            " which a model request cannot follow. Use a category with the rules general."
        )


def _work_of(job_type: str, given: Any) -> BatchWork:
    """The work object; a class is instantiated without arguments."""
    try:
        work = given() if isinstance(given, type) else given
    except TypeError as exc:
        raise ConfigError(
            f"Job type {job_type!r}: {given.__name__} needs arguments; make it yourself and pass"
            " the object: hf.batch(…)(Work(…))."
        ) from exc
    for name in ("request", "accept"):
        method = getattr(work, name, None)
        if not callable(method) or inspect.iscoroutinefunction(method):
            raise ConfigError(
                f"Job type {job_type!r}: the work needs a plain method {name}; see"
                " docs/concepts/batch-processing.md."
            )
    made: BatchWork = work
    return made
