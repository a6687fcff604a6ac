"""``batch_size=`` and ``batch_wait=`` of a job type: one handler call for many jobs. Pure."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.engine.category import Category, CategoryRules
from holdfast.engine.due import read_delay
from holdfast.engine.payload_reader import Signature, named, payload_reader
from holdfast.engine.payload_values import hints_of
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.engine.handler import Registry, Stage
    from holdfast.engine.job import Claimed

MOST = 1_000
DEFAULT_WAIT = timedelta(milliseconds=100)
LONGEST_WAIT = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """How many jobs one call takes at most, and how long the first of them waits for others."""

    size: int
    wait_seconds: float


def read_batch(
    job_type: str, category: Category, options: Mapping[str, Any]
) -> BatchOptions | None:
    """Read the options of a declaration. Raises ConfigError."""
    size, wait = options.get("batch_size"), options.get("batch_wait")
    if size is None:
        if wait is not None:
            raise ConfigError(f"Job type {job_type!r}: batch_wait= needs batch_size=.")
        return None
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MOST:
        raise ConfigError(
            f"Job type {job_type!r}: batch_size= must be a whole number from 1 to {MOST:,}."
        )
    try:
        length = DEFAULT_WAIT if wait is None else read_delay(wait)
        if length > LONGEST_WAIT:
            raise ValueError("must be at most one minute: the jobs are leased while they wait")
    except ValueError as exc:
        raise ConfigError(f"Job type {job_type!r}: batch_wait= {exc}.") from None
    if options.get("isolation") == "process":
        raise ConfigError(f"Job type {job_type!r}: batch_size= needs isolation='thread'.")
    if category.rules is not CategoryRules.GENERAL:
        raise ConfigError(
            f"Job type {job_type!r}: batch_size= is for jobs of general categories, not of category"
            f" {category.name!r}."
        )
    return BatchOptions(size, length.total_seconds())


def batch_stage(stage: Stage, function: Callable[..., Any], batch: BatchOptions | None) -> Stage:
    """The stage of a handler that takes many jobs; without *batch*, the stage as it is."""
    if batch is None:
        return stage
    signature = _signature(function)
    return replace(
        stage,
        function=function,
        signature=signature,
        read_payload=payload_reader(signature),
        batch=batch,
    )


def _signature(function: Callable[..., Any]) -> Signature:
    """How a payload of the handler is read: the annotation ``list[Order]`` makes it an Order."""
    place = getattr(function, "__qualname__", named(function))
    parameters = list(inspect.signature(function).parameters.values())
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if len(parameters) != 2 or any(one.kind not in kinds for one in parameters):
        raise ConfigError(
            f"{place} must take two arguments, because its job type has batch_size=: the list of"
            " jobs and the list of their payloads."
        )
    given = parameters[1]
    of = typing.get_args(hints_of(function).get(given.name))
    hints = {"payload": of[0]} if len(of) == 1 else {}
    return Signature(function, True, "payload", {"payload": given.replace(name="payload")}, hints)


def group_claims(claimed: Sequence[Claimed], registry: Registry) -> list[list[Claimed]]:
    """Claimed jobs by call of their handler: one job each, or several of one tenant and type."""
    groups: list[list[Claimed]] = []
    open_groups: dict[tuple[str, str, str], list[Claimed]] = {}
    for job in claimed:
        handler = registry.handlers.get(job.job_type)
        batch = None if handler is None else handler.first.batch
        key = job.job_type, job.stage, job.org_id
        group = open_groups.get(key)
        if batch is None or group is None or len(group) >= batch.size:
            group = []
            groups.append(group)
            if batch is not None:
                open_groups[key] = group
        group.append(job)
    return groups
