"""Pipelines: a job of several named stages, each with its own budget and stored result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from holdfast.engine.error_rules import ErrorMatches
from holdfast.engine.handler import (
    HandlerOptions,
    Registry,
    Stage,
    check_declaration,
    make_handler,
    make_stage,
)
from holdfast.engine.retry import CRITIC, STAGE_ATTEMPTS, RetryPolicy
from holdfast.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])


class Pipeline:
    """Ordered named stages of one job type, added by a decorator."""

    def __init__(
        self,
        registry: Registry,
        job_type: str,
        accepts: Sequence[str],
        category: str,
        options: HandlerOptions,
    ) -> None:
        self._registry = registry
        self._stages: list[Stage] = []
        kind = registry.category(category)
        check_declaration(job_type, kind, accepts, options)
        if options.get("batch_size") is not None:
            raise ConfigError(f"Pipeline {job_type!r}: batch_size= is for jobs of one stage.")
        self._options: dict[str, Any] = {"accepts": accepts, "category": kind, **options}
        self.job_type = job_type

    def stage(
        self,
        name: str,
        *,
        max_attempts: int = STAGE_ATTEMPTS,
        retry: RetryPolicy = CRITIC,
        timeout: timedelta | float | None = None,
        retry_on: ErrorMatches | None = None,
        give_up_on: ErrorMatches | None = None,
    ) -> Callable[[F], F]:
        """Add the decorated function as the next stage.

        *retry_on* and *give_up_on* replace those of the pipeline.
        """

        def declare(function: F) -> F:
            stage = make_stage(
                function,
                name=name,
                max_attempts=max_attempts,
                retry=retry,
                timeout=timeout,
                retry_on=retry_on,
                give_up_on=give_up_on,
            )
            handler = make_handler(self.job_type, [*self._stages, stage], **self._options)
            if self._stages:
                del self._registry.handlers[self.job_type]
            self._registry.add(handler)
            self._stages.append(stage)
            return function

        return declare

    @property
    def version(self) -> str:
        """The version that jobs record when they start."""
        return self._registry.get(self.job_type).version
