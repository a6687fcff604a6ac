"""A step of a workflow: a declared job with its arguments, before it is enqueued."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from holdfast.errors import InvalidJob

if TYPE_CHECKING:
    from holdfast.declared_job import DeclaredJob

R = TypeVar("R")

# The results of a larger map are read with job.results and not copied into a payload.
MOST_OUTPUTS = 1_000
HIGHEST_BUDGET = Decimal(1_000_000)
# The unit in which budgets are stored.
LOWEST_BUDGET = Decimal("1e-12")


class OnFailure(StrEnum):
    """What a workflow does when a step has failed."""

    FAIL = "fail"
    """The workflow fails, and no further step starts. This is the default."""
    CONTINUE = "continue"
    """Steps that do not depend on it go on. The workflow fails when they have ended."""
    IGNORE = "ignore"
    """Steps that depend on it run with the result None. The workflow can complete."""


@dataclass(frozen=True, slots=True)
class Output:
    """The result of a step as an argument of a later one."""

    of: Step[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Step(Generic[R]):
    """A job of a workflow, made with ``declared_job.step(…)`` or ``declared_job.map(…)``.

    *items* are its payloads: one, or those of a map. *outputs* are the arguments that are results
    of other steps.
    """

    job: DeclaredJob[..., ..., Any, Any]
    items: tuple[Mapping[str, Any], ...]
    outputs: Mapping[str, Output] = field(default_factory=dict)
    is_mapped: bool = False
    name: str | None = None
    deps: tuple[Step[Any] | str, ...] = ()
    on_failure: OnFailure = OnFailure.FAIL
    deadline: timedelta | None = None
    budget: Decimal | None = None

    @property
    def output(self) -> R:
        """The result of this step, to pass to ``step(…)`` of a later one."""
        return cast(R, Output(self))

    def configure(
        self,
        *,
        name: str | None = None,
        deps: Iterable[Step[Any] | str] | None = None,
        on_failure: OnFailure | str | None = None,
        deadline: timedelta | float | None = None,
        budget: Decimal | float | str | None = None,
    ) -> Step[R]:
        """Return the same step with other options; see :meth:`Workflow.add`."""
        found = self
        if name is not None:
            found = replace(found, name=name)
        if deps is not None:
            found = replace(found, deps=tuple(deps))
        if on_failure is not None:
            found = replace(found, on_failure=read_policy(on_failure))
        if deadline is not None:
            found = replace(found, deadline=read_deadline(deadline))
        if budget is not None:
            found = replace(found, budget=read_budget(budget))
        return found


def make_step(
    job: DeclaredJob[..., ..., Any, R], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Step[R]:
    """A step with the arguments of one job. Raises InvalidJob."""
    places = [name for name, _ in zip(job.signature.parameters, args, strict=False)]
    outputs = {
        name: value
        for name, value in (*zip(places, args, strict=False), *kwargs.items())
        if isinstance(value, Output)
    }
    if not outputs:
        return Step(job, (job.signature.document(args, kwargs),))
    if job.signature.model is not None:
        raise InvalidJob(
            dict.fromkeys(outputs, "is a result; a handler that takes a model cannot take one")
        )
    for name, output in outputs.items():
        if output.of.is_mapped and len(output.of.items) > MOST_OUTPUTS:
            raise InvalidJob(
                {
                    name: f"has {len(output.of.items)} results; up to {MOST_OUTPUTS} can be an"
                    " argument. Add the step as a dependency and read job.results."
                }
            )
    given = {name: value for name, value in kwargs.items() if name not in outputs}
    own = tuple(value for name, value in zip(places, args, strict=False) if name not in outputs)
    if len(own) != len(args):
        given |= dict(zip([name for name in places if name not in outputs], own, strict=True))
        own = ()
    return Step(job, (job.signature.document(own, given, later=outputs),), outputs)


def make_map(job: DeclaredJob[..., ..., Any, R], items: Iterable[Any]) -> Step[list[R]]:
    """A step with one job for each item. Raises InvalidJob."""
    found = tuple(job.documents(items))
    if not found:
        raise InvalidJob({"items": "is empty; a map needs at least one item"})
    return Step(cast(Any, job), found, is_mapped=True)


def read_policy(value: object) -> OnFailure:
    """A failure policy from its name. Raises InvalidJob."""
    try:
        return OnFailure(cast(str, value))
    except ValueError:
        known = ", ".join(OnFailure)
        raise InvalidJob({"on_failure": f"must be one of {known}"}) from None


def read_deadline(value: object) -> timedelta:
    """A time after the start of a step, from seconds or a timedelta. Raises InvalidJob."""
    found = timedelta(seconds=value) if isinstance(value, (int, float)) else value
    if not isinstance(found, timedelta) or found <= timedelta(0):
        raise InvalidJob({"deadline": "must be a positive number of seconds or a timedelta"})
    return found


def read_budget(value: object) -> Decimal:
    """The maximum cost of a step in US dollars. Raises InvalidJob."""
    try:
        is_number = isinstance(value, (int, float, str, Decimal)) and not isinstance(value, bool)
        found = Decimal(str(value)) if is_number else Decimal(0)
    except InvalidOperation:
        found = Decimal(0)
    if not (found.is_finite() and LOWEST_BUDGET <= found <= HIGHEST_BUDGET):
        raise InvalidJob(
            {"budget": f"must be US dollars, more than 0 and at most {HIGHEST_BUDGET}, like 2.50"}
        )
    return found
