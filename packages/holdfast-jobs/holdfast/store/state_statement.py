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

    It takes the row set ``jobs`` with any of the columns ``org_id``, ``job_id``, ``job_type`` and
    ``state``, and no other parameter. Join ``holdfast.job`` for other columns.
    """

    # None matches every type.
    job_types: frozenset[str] | None
    statement: Statement
    states: frozenset[str] = field(default=STATES)

    def __post_init__(self) -> None:
        params = self.statement.render(POSTGRES).params - {"now"}
        if params != {"jobs"} or not self.states <= STATES:
            raise ConfigError(
                f"The statement {self.statement.name!r} must take {{rows jobs: …}} and no other"
                f" parameter, for states among {', '.join(sorted(STATES))}."
            )
