"""Statements that follow the state of jobs, in the transaction that changes it."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.errors import ConfigError
from holdfast.store.dialect import POSTGRES
from holdfast.store.query import Statement

STATES = frozenset(("queued", "processing", "batch_submitted", "completed", "failed", "canceled"))


@dataclass(frozen=True, slots=True)
class StateStatement:
    """Runs *statement* when jobs of *job_types* reach one of *states*, once per group.

    It takes the row set ``jobs`` with any of the columns ``org_id``, ``job_id``, ``job_type``,
    ``state``, ``first_id`` and ``workflow_id``, and no other parameter. ``first_id`` is the id of
    the job that a replay repeats, or its own. Rows that are equal in the columns that the statement
    names are passed once. Join ``holdfast.job`` for other columns.

    *marker* restricts it to jobs with that marker; see ``engine/state_hook.py``. *further* are
    groups of statements that run after it. If the last statement of a group affects no row, the
    following groups do not run. A statement that returns a column ``queue`` names queues whose
    workers are woken after the commit.
    """

    # None matches every type.
    job_types: frozenset[str] | None
    statement: Statement
    states: frozenset[str] = field(default=STATES)
    marker: str | None = None
    further: tuple[tuple[Statement, ...], ...] = ()

    def __post_init__(self) -> None:
        for statement in (self.statement, *(one for group in self.further for one in group)):
            params = statement.render(POSTGRES).params - {"now"}
            if params != {"jobs"} or not self.states <= STATES:
                raise ConfigError(
                    f"The statement {statement.name!r} must take {{rows jobs: …}} and no other"
                    f" parameter, for states among {', '.join(sorted(STATES))}."
                )
